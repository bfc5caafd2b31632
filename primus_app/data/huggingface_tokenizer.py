"""A Hugging Face tokenizer.json, read from this machine, and the token that ends documents."""

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_app.config.errors import Problem, UserError
from primus_app.config.suggest import nearest
from primus_app.plan.data_files import missing_tokenizer, tokenizer_file

BESIDE = ("tokenizer_config.json", "special_tokens_map.json")
"""Files that may lie beside tokenizer.json and name its ``eos_token``."""

ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "<｜end▁of▁sentence｜>", "<|im_end|>")
"""What the end of a text is called by GPT, Llama 3, Llama 2 and Mistral, Gemma, Llama 3 Instruct, DeepSeek and Qwen's chat models."""


class HuggingFaceTokenizer:
    """The tokenizers library on a tokenizer.json, without truncation, padding, or tokens that its template would add.

    Attributes:
        name: as the configuration gives it.
        identity: digest of all that decides the tokens of a text.
        vocab_size: all ids are below this number.
        end_of_document: id that ends each document.
        end_token: its text.
    """

    def __init__(self, path: str, end_of_document: str | None = None) -> None:
        if missing := missing_tokenizer(path):
            raise UserError(missing)
        file = tokenizer_file(path)
        raw = _read(file)
        self.name = path
        self._tokenizer = _parse(file, raw)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        self.end_token = _end_of_document(file, vocabulary, end_of_document)
        self.end_of_document = vocabulary[self.end_token]
        self.identity = blake2b(raw + f"\0{self.end_of_document}".encode(), digest_size=16).hexdigest()

    def encode_batch(self, texts: Sequence[str]) -> list[Any]:
        """One result for each text, for ``ids``; on all cores, without Python's lock."""
        encoded: list[Any] = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return encoded

    def ids(self, encoded: Any) -> NDArray[np.int64]:
        """Token ids of one result, shape [tokens], without an end of document."""
        ids = encoded.ids
        return np.fromiter(ids, dtype=np.int64, count=len(ids))

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For each text its ids [tokens] and, [tokens, 2], the first character of each token and the one behind its last."""
        encoded = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [(self.ids(one), np.array(one.offsets, dtype=np.int64).reshape(-1, 2)) for one in encoded]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(Problem(str(file), f"cannot be read: {error.strerror}.", ("data.tokenizer=byte needs no file",))) from error


def _parse(file: Path, raw: bytes) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_buffer(raw)
    except Exception as error:  # the library raises no narrower one
        reason = " ".join(str(error).split())[:200].rstrip(".")
        fix = ("copy or download it again; a sentencepiece .model must be converted first (transformers' save_pretrained does)",)
        raise UserError(Problem(str(file), f"is no tokenizer.json that the tokenizers library reads: {reason}.", fix)) from error


def _end_of_document(file: Path, vocabulary: dict[str, int], chosen: str | None) -> str:
    if chosen is not None:
        if chosen not in vocabulary:
            near = nearest(chosen, [token for token in vocabulary if token[:1] in "<["], cutoff=0.5)
            fix = tuple(f"data.end_of_document='{token}' is one" for token in near) or ("its added_tokens list the special ones",)
            raise UserError(Problem("data.end_of_document", f"{chosen!r} is no token of {file}.", fix))
        return chosen
    for name, token in _named_beside(file):
        if token in vocabulary:
            return token
        fix = ("data.end_of_document=<token> names another",)
        raise UserError(Problem(str(file.parent / name), f"its eos_token {token!r} is no token of {file.name}.", fix))
    if known := [token for token in ENDS if token in vocabulary]:
        return known[0]
    special = [token for token in vocabulary if token.startswith("<") and token.endswith(">") and len(token) > 2][:5]
    fix = ("data.end_of_document=<token> names it", *([f"tokens that look special: {', '.join(special)}"] if special else []))
    what = f"no end of text is known for {file}: neither {' nor '.join(BESIDE)} beside it names an eos_token, and no usual one is in it."
    raise UserError(Problem("data.end_of_document", what, fix))


def _named_beside(file: Path) -> Iterator[tuple[str, str]]:
    """(file, eos_token) of the files beside tokenizer.json that name one."""
    for name, values in settings_beside(file):
        token = token_text(values.get("eos_token"))
        if token is not None:
            yield name, token


def settings_beside(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, content) of those of BESIDE that lie beside tokenizer.json; UserError for one that is no JSON."""
    for name in BESIDE:
        path = file.parent / name
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            fix = ("copy it again, or remove it and give data.end_of_document=<token>",)
            raise UserError(Problem(str(path), f"cannot be read as JSON: {error}.", fix)) from error
        if isinstance(values, dict):
            yield name, values


def token_text(value: Any) -> str | None:
    """The text of a special token as these files give it: plainly, or with its properties around it."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None
