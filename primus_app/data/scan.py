"""One pass over a pair: whether its index is sound, which ids it has, and the digest of its content; remembered between runs."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from primus_app.config.errors import Problem, UserError
from primus_app.data.indexed import IndexedPair

FORMAT = "primus_app corpus 1"
CHUNK = 1 << 22
"""Tokens, or entries of the index, looked at together."""

Progress = Callable[[int, int], None]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scan:
    """What a pair holds. ``least_at`` and ``largest_at`` are the first tokens that have the least and the largest id."""

    num_documents: int
    num_tokens: int
    least_id: int
    least_at: int
    largest_id: int
    largest_at: int
    content_digest: str


def scan_pair(pair: IndexedPair, progress: Progress | None = None) -> Scan:
    """Reads all of ``pair`` once; ``progress`` is told (tokens read, all tokens). The digest does not depend on the number format.

    Raises:
        UserError: the index contradicts itself, with its sequence.
    """
    _check_index(pair)
    digest = blake2b(FORMAT.encode(), digest_size=16)
    for begin in range(0, pair.num_documents, CHUNK):
        starts = pair.document_starts(begin, min(begin + CHUNK, pair.num_documents))
        digest.update(np.ascontiguousarray(starts, dtype="<i8").data)
    least, largest = (np.iinfo(np.int64).max, 0), (-1, 0)
    for begin in range(0, pair.num_tokens, CHUNK):
        chunk = pair.tokens[begin : begin + CHUNK]
        digest.update(np.ascontiguousarray(chunk, dtype="<i4").data)
        low, high = int(chunk.argmin()), int(chunk.argmax())
        least = min(least, (int(chunk[low]), begin + low))
        largest = max(largest, (int(chunk[high]), begin + high), key=lambda found: found[0])
        if progress is not None:
            progress(begin + len(chunk), pair.num_tokens)
    return Scan(pair.num_documents, pair.num_tokens, *least, *largest, digest.hexdigest())


def remembered_scan(pair: IndexedPair, cache: Path, progress: Progress | None = None) -> Scan:
    """``scan_pair``, or what it found before in the same files (by path, size and time of change)."""
    memory = cache / f"scan-{_fingerprint(pair)}.json"
    try:
        return Scan(**json.loads(memory.read_text()))
    except (OSError, ValueError, TypeError):
        scan = scan_pair(pair, progress)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(memory, asdict(scan))
    except OSError as error:
        log.warning("%s cannot be written (%s): each start will read all of %s.bin again.", memory, error.strerror, pair.prefix)
    return scan


def check_ids(scan: Scan, prefix: str, itemsize: int, vocab_size: int) -> None:
    """Raises UserError where a token has no row in an embedding table of ``vocab_size`` rows, naming its byte in the .bin."""
    for token, at in ((scan.least_id, scan.least_at), (scan.largest_id, scan.largest_at)):
        if 0 <= token < vocab_size:
            continue
        found = f"has token id {token} at byte {at * itemsize} (token {at})"
        allowed = f"model.vocab_size={vocab_size} has ids 0 to {vocab_size - 1}"
        least = f"model.vocab_size={token + 1} is the least that fits" if token > 0 else "negative ids are no tokens: write the pair again"
        fix = (least, "or data.path=… of a corpus made with the model's own tokenizer")
        raise UserError(Problem(f"{prefix}.bin", f"{found}, but {allowed}.", fix))


def _check_index(pair: IndexedPair) -> None:
    itemsize, expected = pair.tokens.itemsize, 0
    for begin in range(0, len(pair.lengths), CHUNK):
        lengths = pair.lengths[begin : begin + CHUNK].astype(np.int64)
        ends = expected + np.cumsum(lengths) * itemsize
        wrong = (lengths < 0) | (pair.pointers[begin : begin + CHUNK] != np.concatenate([[expected], ends[:-1]]))
        if wrong.any():
            at = begin + int(wrong.argmax())
            found = f"is said to have {pair.lengths[at]} tokens from byte {pair.pointers[at]} of the .bin"
            raise _contradiction(pair, f"sequence {at} {found}; sequences follow each other from byte 0 without gaps.")
        expected = int(ends[-1])
    for begin, borders in _overlapping_chunks(pair.document_indices):
        wrong = np.diff(borders) < 0
        if wrong.any():
            at = begin + int(wrong.argmax())
            raise _contradiction(
                pair, f"document {at} ends before it begins (sequences {borders[at - begin]} to {borders[at - begin + 1]})."
            )


def _overlapping_chunks(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    return ((begin, values[begin : begin + CHUNK + 1]) for begin in range(0, len(values) - 1, CHUNK))


def _contradiction(pair: IndexedPair, what: str) -> UserError:
    return UserError(Problem(f"{pair.prefix}.idx", f"contradicts itself: {what}", ("write the .bin/.idx pair again",)))


def _fingerprint(pair: IndexedPair) -> str:
    files = [(path, os.stat(path)) for path in (f"{pair.prefix}.bin", f"{pair.prefix}.idx")]
    facts = [FORMAT, *((path, stat.st_size, stat.st_mtime_ns) for path, stat in files)]
    return blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def write_atomically(path: Path, values: dict[str, Any]) -> None:
    """Replaces the JSON file ``path`` as a whole."""
    with NamedTemporaryFile("w", dir=path.parent, prefix=".scan-", delete=False) as stream:
        try:
            json.dump(values, stream)
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
            os.replace(stream.name, path)
        except OSError:
            os.unlink(stream.name)
            raise
