"""From files of instructions to two pairs for each split: the tokens, and for each token whether it is learnt."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from primus_app.config.errors import Problem, UserError
from primus_app.data.instructions.conversation import Fields, Mistake, conversation
from primus_app.data.instructions.mistakes import Mistakes
from primus_app.data.instructions.records import Record, records
from primus_app.data.instructions.template import ChatTemplate, Rendered
from primus_app.data.scan import Progress
from primus_app.data.text.build import UINT16_IDS, is_valid
from primus_app.data.text.files import TextFile
from primus_app.data.text.growing import GrowingPair, finish, remove
from primus_app.data.tokenizer import Tokenizer

LEARNED = "-learned"
"""Behind the name of a pair of tokens: the pair of the same lengths that has 1 for each token that is learnt, else 0."""
BATCH_CHARACTERS = 1 << 21
"""Text that is tokenised together."""


@dataclass(frozen=True)
class Recipe:
    """All but the records that decides which tokens come out; ``valid_share`` is the share of validation, from 0 to below 1."""

    fields: Fields
    template: ChatTemplate
    tokenizer: Tokenizer
    valid_share: Fraction


@dataclass(frozen=True)
class Example:
    """Tokens of one conversation and, uint8, whether each is learnt; both [tokens]."""

    tokens: NDArray[np.int64]
    learned: NDArray[np.uint8]


@dataclass(frozen=True)
class _Text:
    rendered: Rendered
    path: str
    where: str
    bytes_done: int


class _Split:
    """The two growing pairs of one split. The last example stays at hand until the next comes, to be given away at the end."""

    def __init__(self, prefix: Path, dtype: type[np.integer]) -> None:
        self.pairs = GrowingPair(prefix, dtype), GrowingPair(Path(f"{prefix}{LEARNED}"), np.uint8)
        self.last: Example | None = None
        self.num_examples = 0

    def add(self, example: Example) -> None:
        self.write_last()
        self.last = example
        self.num_examples += 1

    def write_last(self) -> None:
        if self.last is not None:
            tokens, learned = self.pairs
            tokens.add([self.last.tokens])
            learned.add([self.last.learned])
        self.last = None

    def finish(self) -> None:
        for pair in self.pairs:
            pair.close()
            finish(pair.prefix, pair.dtype)

    def remove(self) -> None:
        for pair in self.pairs:
            pair.close()
            remove(pair.prefix)


def build_examples(folder: Path, files: Sequence[TextFile], recipe: Recipe, progress: Progress | None = None) -> None:
    """Write train.bin, train.idx, train-learned.bin, train-learned.idx and, with a share, the same for valid, into ``folder``.

    Example k of all files is for validation where floor((k+1)·share) is above floor(k·share); of too few for that, the last one.
    ``progress`` is told (bytes read, all bytes).

    Raises:
        UserError: what is wrong with the records, each with its place.
    """
    dtype = np.uint16 if recipe.tokenizer.vocab_size < UINT16_IDS else np.int32
    train, valid = (_Split(folder / name, dtype) for name in ("train", "valid"))
    for number, example in enumerate(_examples(files, recipe, progress)):
        (valid if is_valid(number, recipe.valid_share) else train).add(example)
    if recipe.valid_share and not valid.num_examples:
        _give_one(train, valid)
    for split in (train, valid):
        split.write_last()
        split.finish() if split.num_examples else split.remove()


def _give_one(train: _Split, valid: _Split) -> None:
    if train.num_examples < 2:
        fix = ("data.split=[100,0] training.eval_every=0 trains on all of it, without validation",)
        raise UserError(Problem("data.split", "a single example cannot be divided.", fix))
    assert train.last is not None
    valid.add(train.last)
    train.last, train.num_examples = None, train.num_examples - 1


def _examples(files: Sequence[TextFile], recipe: Recipe, progress: Progress | None) -> Iterator[Example]:
    """All examples in their order; after a mistake the rest is only looked through for more of them."""
    mistakes = Mistakes()
    total = sum(file.size for file in files)
    for texts in _batches(files, recipe, mistakes):
        if mistakes:
            continue
        for text, example in zip(texts, _encoded(texts, recipe.tokenizer), strict=True):
            if not example.learned[1:].any():
                what = "nothing of its response is left as a token after the first."
                mistakes.add(Problem(text.path, f"{text.where}: {what}", ("leave it out",)), what)
            elif not mistakes:
                yield example
        if progress is not None and texts:
            progress(texts[-1].bytes_done, total)
    if mistakes:
        raise UserError(mistakes.problems())


def _batches(files: Sequence[TextFile], recipe: Recipe, mistakes: Mistakes) -> Iterator[list[_Text]]:
    texts: list[_Text] = []
    characters = 0
    for text in _texts(files, recipe, mistakes):
        texts.append(text)
        characters += len(text.rendered.text)
        if characters >= BATCH_CHARACTERS:
            yield texts
            texts, characters = [], 0
    yield texts


def _texts(files: Sequence[TextFile], recipe: Recipe, mistakes: Mistakes) -> Iterator[_Text]:
    before = 0
    for file in files:
        try:
            for record in records(file, recipe.fields):
                if (text := _text_of(file, record, recipe, before, mistakes)) is not None:
                    yield text
                elif mistakes.enough:
                    return
        except UserError as error:
            for problem in error.problems:
                mistakes.add(problem)
        if mistakes.enough:
            return
        before += file.size


def _text_of(file: TextFile, record: Record, recipe: Recipe, before: int, mistakes: Mistakes) -> _Text | None:
    try:
        if isinstance(record.values, Problem):
            mistakes.add(record.values)
            return None
        rendered = recipe.template.render(conversation(record.values, recipe.fields))
    except Mistake as mistake:
        mistakes.add(Problem(file.path, f"{record.where}: {mistake}", mistake.fix), str(mistake))
        return None
    return _Text(rendered, file.path, record.where, before + record.position)


def _encoded(texts: Sequence[_Text], tokenizer: Tokenizer) -> Iterator[Example]:
    encoded = tokenizer.encode_with_offsets([text.rendered.text for text in texts])
    for text, (ids, offsets) in zip(texts, encoded, strict=True):
        yield Example(ids, learned_tokens(offsets, text.rendered.spans))


def learned_tokens(offsets: NDArray[np.int64], spans: Sequence[tuple[int, int]]) -> NDArray[np.uint8]:
    """1 for each token, of characters ``offsets`` [tokens, 2], that has a character in one of ``spans``; uint8 [tokens]."""
    learned = np.zeros(len(offsets), dtype=np.uint8)
    for begin, end in spans:
        learned |= (offsets[:, 1] > begin) & (offsets[:, 0] < end)
    return learned
