"""What preparation hands to training: where each split lies, and the digest of its content."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

SplitName = Literal["train", "valid"]


@dataclass(frozen=True)
class Examples:
    """How the examples of data=instructions lie in windows.

    Attributes:
        packing: whether several share a window.
        too_long: what became of those with more tokens than a window: ``cut`` of them are cut, ``dropped`` left out.
        padding: the token that fills a window.
        num_windows: what comes out.
    """

    packing: bool
    too_long: Literal["refuse", "drop", "truncate"]
    padding: int
    num_windows: int
    cut: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class SplitData:
    """One split: documents ``first_document`` up to, without, ``end_document`` of the pair ``prefix``.bin, ``prefix``.idx.

    A blend of several pairs has them as ``parts``, each read in proportion to its entry of ``weights``, and no prefix of its own. The mock
    source has no files and no end: neither prefix nor parts. ``examples`` is set where documents are examples of data=instructions.
    """

    prefix: str | None = None
    first_document: int | None = None
    end_document: int | None = None
    num_tokens: int | None = None
    parts: "tuple[SplitData, ...]" = ()
    weights: tuple[float, ...] = ()
    examples: Examples | None = None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of ``asdict``, also after a way through JSON."""
        parts = tuple(cls.from_dict(part) for part in values.get("parts", ()))
        examples = Examples(**values["examples"]) if values.get("examples") else None
        return cls(**{**values, "parts": parts, "weights": tuple(values.get("weights", ())), "examples": examples})


@dataclass(frozen=True)
class PreparedData:
    """Prepared data of one run, stored as JSON in the run directory and read by every rank.

    Attributes:
        digest: blake2b (32 hex digits) of what determines the samples: tokens, document borders, split and weights; not of the place.
        tokenizer: name of the tokenizer, None where tokens are taken as they are.
        vocab_size: all token ids are below this number.
        num_documents: of both splits; None for the endless mock source.
    """

    source: str
    train: SplitData
    valid: SplitData | None
    digest: str
    tokenizer: str | None
    vocab_size: int
    num_documents: int | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of ``to_dict``."""
        valid = values["valid"]
        splits = {"train": SplitData.from_dict(values["train"]), "valid": None if valid is None else SplitData.from_dict(valid)}
        return cls(**{**values, **splits})
