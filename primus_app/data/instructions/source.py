"""data=instructions: the examples of a corpus, tokenised once and kept in the cache by their content."""

from dataclasses import asdict
from functools import partial
from hashlib import blake2b
from pathlib import Path

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import DataConfig
from primus_app.data.cache import Facts, cache_root, resumable_folder
from primus_app.data.indexed import open_pair
from primus_app.data.instructions.build import LEARNED, Recipe, build_examples
from primus_app.data.instructions.conversation import Fields
from primus_app.data.instructions.find_template import open_template
from primus_app.data.instructions.windows import ExampleWindows, Fit, fit_examples
from primus_app.data.prepared import Examples, PreparedData, SplitData
from primus_app.data.scan import Progress, scan_pair
from primus_app.data.text.files import TextFile, content_digest, list_files, refuse_changes
from primus_app.data.text.source import check_vocabulary, valid_share
from primus_app.data.tokenizer import open_tokenizer
from primus_app.plan.data_files import paths_of

FORMAT = "primus_app instructions 1"


def prepare_instructions(data: DataConfig, vocab_size: int, seq_len: int, progress: Progress | None = None) -> PreparedData:
    """The examples of ``data``, from the cache or made now, for windows of ``seq_len``.

    Raises:
        UserError: files, tokenizer or template are missing or broken, records are, the tokenizer has ids that a model with ``vocab_size``
            rows lacks, or examples are too long and data.too_long does not say what is to be done with them.
    """
    tokenizer = open_tokenizer(data.tokenizer, data.end_of_document)
    check_vocabulary(tokenizer, vocab_size)
    fields = Fields(data.prompt_key, data.response_key, data.messages_key)
    recipe = Recipe(fields, open_template(data, tokenizer), tokenizer, valid_share(data.split))
    files, cache = list_files(paths_of(data)), cache_root(data.cache_dir)
    content = content_digest(files, cache, progress)
    folder, facts = resumable_folder(cache, f"instructions-{_key(content, recipe)}", partial(_build, files, recipe, progress))
    prefixes = {name: str(folder / name) for name in facts}
    fits = {name: _fit(prefix, seq_len, data) for name, prefix in prefixes.items()}
    _refuse_long(fits, seq_len, data)
    splits = {name: _split(prefix, fits[name], seq_len, data, tokenizer.end_of_document) for name, prefix in prefixes.items()}
    digests = [digest for each in facts.values() for digest in each["digests"]]
    if any(fit.too_long for fit in fits.values()):
        digests.append(data.too_long)
    return PreparedData(
        source=data.source,
        train=splits["train"],
        valid=splits.get("valid"),
        digest=blake2b(" ".join(digests).encode(), digest_size=16).hexdigest(),
        tokenizer=tokenizer.name,
        vocab_size=tokenizer.vocab_size,
        num_documents=sum(each["examples"] for each in facts.values()),
    )


def open_examples(split: SplitData, seq_len: int) -> ExampleWindows:
    """The windows of a split that ``prepare_instructions`` made.

    Raises:
        UserError: its files are missing on this machine, or are no longer what was prepared.
    """
    assert split.prefix is not None
    assert split.examples is not None
    examples = split.examples
    windows = ExampleWindows(split.prefix, seq_len, packing=examples.packing, too_long=examples.too_long, padding=examples.padding)
    if len(windows) != examples.num_windows:
        what = f"is no longer what was prepared: {len(windows)} windows instead of {examples.num_windows}."
        raise UserError(Problem(f"{split.prefix}.idx", what, ("start the run again: it prepares the data anew",)))
    return windows


def _build(files: list[TextFile], recipe: Recipe, progress: Progress | None, folder: Path) -> Facts:
    build_examples(folder, files, recipe, progress)
    refuse_changes(files)
    return {name: _facts(folder / name) for name in (("train", "valid") if recipe.valid_share > 0 else ("train",))}


def _facts(prefix: Path) -> Facts:
    scans = [scan_pair(open_pair(f"{prefix}{ending}")) for ending in ("", LEARNED)]
    return {"examples": scans[0].num_documents, "digests": [scan.content_digest for scan in scans]}


def _key(content: str, recipe: Recipe) -> str:
    template, tokenizer = recipe.template, recipe.tokenizer
    facts = [FORMAT, content, tokenizer.identity, template.source, str(sorted(template.tokens.items())), str(asdict(recipe.fields))]
    return blake2b("\0".join([*facts, str(recipe.valid_share)]).encode(), digest_size=16).hexdigest()


def _fit(prefix: str, seq_len: int, data: DataConfig) -> Fit:
    return fit_examples(open_pair(prefix), open_pair(f"{prefix}{LEARNED}"), seq_len, data.too_long)


def _refuse_long(fits: dict[str, Fit], seq_len: int, data: DataConfig) -> None:
    number, total = sum(fit.too_long for fit in fits.values()), sum(len(fit.lengths) for fit in fits.values())
    if not number or data.too_long != "refuse":
        return
    longest = max(fit.longest[1] for fit in fits.values())
    what = f"{number:,} of {total:,} examples have more than the {seq_len + 1:,} tokens of a sample, the longest {longest:,}."
    fix = (
        f"training.seq_len={longest - 1} holds all",
        "data.too_long=drop leaves them out",
        "data.too_long=truncate cuts their ends, and leaves out those whose responses all lie behind the cut",
    )
    raise UserError(Problem("training.seq_len", what, fix))


def _split(prefix: str, fit: Fit, seq_len: int, data: DataConfig, padding: int) -> SplitData:
    pair = open_pair(prefix)
    windows = 0
    if fit.lengths.any():
        windows = len(ExampleWindows(prefix, seq_len, packing=data.packing, too_long=data.too_long, padding=padding))
    examples = Examples(data.packing, data.too_long, padding, windows, cut=fit.too_long - fit.dropped, dropped=fit.dropped)
    return SplitData(prefix, 0, pair.num_documents, int(fit.lengths.sum()), examples=examples)
