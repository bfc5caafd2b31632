"""Tokenises documents into Megatron's .bin/.idx pair."""

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.data.indexed import HEADER
from primus_app.data.scan import Progress
from primus_app.data.stdlib_text import Document
from primus_app.data.tokenizer import ByteTokenizer


def pair_bytes(num_documents: int, num_tokens: int, itemsize: int) -> int:
    """Size of a pair with one sequence per document: 12 bytes for each sequence and 8 for each border of documents in the .idx."""
    return num_tokens * itemsize + HEADER.size + 12 * num_documents + 8 * (num_documents + 1)


def write_pair(prefix: Path, documents: list[Document], tokenizer: ByteTokenizer, progress: Progress | None = None) -> None:
    """Writes ``documents`` in their order, each followed by the end-of-document id; ``progress`` is told (characters done, all of them)."""
    indexed_dataset = _megatron()
    builder = indexed_dataset.IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    total, done = sum(len(document.text) for document in documents), 0
    try:
        for document in documents:
            tokens = np.append(tokenizer.encode(document.text), np.uint16(tokenizer.end_of_document))
            builder.add_document(tokens, [len(tokens)])
            done += len(document.text)
            if progress is not None:
                progress(done, total)
        builder.finalize(f"{prefix}.idx")
    finally:
        with suppress(OSError):  # on a full disk, closing fails once more
            builder.data_file.close()


def _megatron() -> Any:
    try:
        with warnings.catch_warnings():
            # Of no concern to a user who has not chosen Megatron as the engine.
            warnings.filterwarnings("ignore", message="Transformer Engine and Apex are not installed")
            from megatron.core.datasets import indexed_dataset
    except ImportError as error:
        message = f"stdlib_text is stored in Megatron's format, and megatron-core cannot be imported: {error}."
        fix = ("pip install megatron-core", "data=mock needs neither")
        raise UserError(Problem("data.source", message, fix), ExitCode.UNFIT_MACHINE) from error
    return indexed_dataset
