"""The default corpus through Megatron's own builder and reader, and under concurrency and kill -9."""

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from primus_app.config.errors import UserError
from primus_app.config.schema import DataConfig
from primus_app.data import PreparedData, open_samples, prepare
from primus_app.data.stdlib_text import documents
from primus_app.data.tokenizer import ByteTokenizer

pytestmark = pytest.mark.slow  # importing megatron.core takes seconds

PROCESS = """
import json, os, signal, sys
from primus_app.config.schema import DataConfig
from primus_app.data import prepare
calls = []
def progress(done, total):
    calls.append(done)
    if sys.argv[2] == "die" and done > total // 2:
        os.kill(os.getpid(), signal.SIGKILL)
data = prepare(DataConfig(cache_dir=sys.argv[1]), vocab_size=257, seq_len=256, global_batch_size=16, progress=progress)
print(json.dumps({"built": bool(calls), "data": data.to_dict()}))
"""


def start(cache: Path, act: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, str(cache), act]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], env=environment)


def prepare_here(cache: Path) -> PreparedData:
    return prepare(DataConfig(cache_dir=str(cache)), vocab_size=257, seq_len=256, global_batch_size=16)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def corpus(cache: Path) -> PreparedData:
    return prepare_here(cache)


def test_megatron_reads_back_every_source_file(corpus: PreparedData) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    dataset, tokenizer = IndexedDataset(corpus.train.prefix), ByteTokenizer()
    assert len(dataset) == corpus.num_documents
    assert all(sequence[-1] == 256 for sequence in dataset)
    assert sorted(tokenizer.decode(sequence) for sequence in dataset) == sorted(document.text for document in documents())


def test_both_splits_are_one_pair_without_gap(corpus: PreparedData) -> None:
    assert corpus.valid is not None
    assert corpus.num_documents is not None
    num_train = round(0.98 * corpus.num_documents)
    assert (corpus.train.first_document, corpus.train.end_document) == (0, num_train)
    assert (corpus.valid.first_document, corpus.valid.end_document) == (num_train, corpus.num_documents)
    assert corpus.train.num_tokens + corpus.valid.num_tokens == sum(len(document.text.encode()) + 1 for document in documents())


def test_samples_are_text(corpus: PreparedData) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    dataset = IndexedDataset(corpus.train.prefix)
    stream = np.concatenate([dataset[d] for d in range(corpus.train.end_document)])
    samples = open_samples(corpus, "train", seq_len=256, seed=1234, document_mask=False)
    for index in (0, 1, 10**9):
        window = samples.window_of(index)
        assert np.array_equal(samples.sample(index).tokens, stream[256 * window : 256 * window + 257])


def test_positions_restart_after_each_end_of_document(corpus: PreparedData) -> None:
    samples = open_samples(corpus, "valid", seq_len=256, seed=0, document_mask=True)
    assert samples.num_windows is not None
    restarts = 0
    for index in range(samples.num_windows):
        sample = samples.sample(index)
        after_end = np.flatnonzero(sample.tokens[:255] == 256) + 1
        assert np.flatnonzero(sample.positions == 0).tolist() == sorted({0, *after_end.tolist()})
        restarts += len(after_end)
    assert restarts > 0


def test_a_second_preparation_is_the_same_and_builds_nothing(corpus: PreparedData, cache: Path) -> None:
    folder = Path(corpus.train.prefix or "").parent
    before = (folder / "corpus.bin").stat()
    assert prepare_here(cache) == corpus
    assert (folder / "corpus.bin").stat().st_ino == before.st_ino


def test_a_cache_built_elsewhere_has_the_same_digest(corpus: PreparedData, tmp_path: Path) -> None:
    assert prepare_here(tmp_path).digest == corpus.digest


def test_a_truncated_cache_is_built_again(tmp_path: Path, corpus: PreparedData, caplog: pytest.LogCaptureFixture) -> None:
    first = prepare_here(tmp_path)
    os.truncate(f"{first.train.prefix}.bin", 1_000_000)
    with caplog.at_level(logging.WARNING):
        assert prepare_here(tmp_path) == first
    assert "is damaged" in caplog.text
    assert Path(f"{first.train.prefix}.bin").stat().st_size == Path(f"{corpus.train.prefix}.bin").stat().st_size


def test_of_two_processes_one_builds(tmp_path: Path, corpus: PreparedData) -> None:
    processes = [start(tmp_path, "build") for _ in range(2)]
    results = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    assert sorted(result["built"] for result in results) == [False, True]
    assert results[0]["data"] == results[1]["data"]
    assert PreparedData.from_dict(results[0]["data"]).digest == corpus.digest


def test_killed_while_tokenising_then_again(tmp_path: Path, corpus: PreparedData) -> None:
    victim = start(tmp_path, "die")
    victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    assert list(tmp_path.glob(".building-*/corpus.bin"))
    assert not list(tmp_path.glob("stdlib_text-*"))
    again = prepare_here(tmp_path)
    assert again.digest == corpus.digest
    assert not list(tmp_path.glob(".building-*"))


def test_a_full_disk(tmp_path: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        with pytest.raises(UserError, match=r"written to .*: No space left on device. It takes [\d,]{9,} bytes"):
            prepare_here(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {".lock"}
    finally:
        subprocess.run(["umount", tmp_path], check=True)
