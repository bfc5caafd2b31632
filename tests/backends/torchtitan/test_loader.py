"""The order of samples through TorchTitan's loader: the same whatever the ranks, the micro batches, and after a resumption."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from primus_app.config.schema import DataConfig
from primus_app.data.prepare import prepare
from primus_app.data.samples import open_samples
from primus_app.data.text.growing import GrowingPair, finish

GLOBAL_BATCH, SEQ_LEN, SEED, STEPS = 8, 32, 5, 3


def text(folder: Path) -> DataConfig:
    for name in ("a", "b"):
        documents = [f"{name} {number}: " + "text " * (number % 23) for number in range(200)]
        lines = "".join(json.dumps({"text": document}) + "\n" for document in documents)
        (folder / f"{name}.jsonl").write_text(lines)
    return DataConfig(source="text", path=str(folder), cache_dir=str(folder / "cache"))


def blend(folder: Path) -> DataConfig:
    """Three pairs of random tokens that hold less than what the test reads of them, so that epochs end at different times."""
    generator = np.random.default_rng(1)
    for name, num_documents in (("a", 60), ("b", 40), ("c", 20)):
        pair = GrowingPair(folder / name, np.uint16)
        pair.add([generator.integers(0, 300, 20) for _ in range(num_documents)])
        pair.close()
        finish(folder / name, np.uint16)
    paths = [str(folder / name) for name in "abc"]
    return DataConfig(source="indexed", path=paths, weights=[0.2, 0.3, 0.5], cache_dir=str(folder / "cache"))


def instructions(folder: Path) -> DataConfig:
    lines = [json.dumps({"prompt": "p", "response": f"{number % 7}" * (number % 3 + 1)}) for number in range(200)]
    (folder / "a.jsonl").write_text("\n".join(lines))
    return DataConfig(source="instructions", path=str(folder), cache_dir=str(folder / "cache"), packing=False, split=(1.0, 0.0))


SOURCES = {"mock": lambda folder: DataConfig(source="mock"), "text": text, "blend": blend, "instructions": instructions}


@pytest.fixture(scope="module", params=SOURCES)
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    data = SOURCES[request.param](tmp_path_factory.mktemp(request.param))
    return prepare(data, vocab_size=320, seq_len=SEQ_LEN, global_batch_size=GLOBAL_BATCH, evaluates=False).to_dict()


def loader(prepared: dict[str, Any], ranks: int, rank: int, micro: int) -> Any:
    from primus_app.backends.torchtitan.loader import SampleLoader

    config = SampleLoader.Config(prepared=prepared, split="train", seed=SEED, document_mask=False)
    return config.build(dp_world_size=ranks, dp_rank=rank, tokenizer=None, seq_len=SEQ_LEN, local_batch_size=micro)


def read(prepared: dict[str, Any], ranks: int, micro: int) -> np.ndarray[Any, Any]:
    """Tokens [sample of the run, position] in the order of the global index."""
    rounds = GLOBAL_BATCH // (ranks * micro) * STEPS
    parts = [list(islice(iter(loader(prepared, ranks, rank, micro)), rounds)) for rank in range(ranks)]
    return np.concatenate([parts[rank][turn][0]["input"].numpy() for turn in range(rounds) for rank in range(ranks)])


@pytest.mark.parametrize(("ranks", "micro"), [(1, 8), (1, 2), (2, 4), (2, 1), (4, 2), (8, 1)])
def test_every_division_reads_the_same_samples(prepared: dict[str, Any], ranks: int, micro: int) -> None:
    from primus_app.data.prepared import PreparedData

    samples = open_samples(PreparedData.from_dict(prepared), "train", seq_len=SEQ_LEN, seed=SEED, document_mask=False)
    expected = np.stack([samples.sample(index).tokens[:-1] for index in range(GLOBAL_BATCH * STEPS)])
    assert np.array_equal(read(prepared, ranks, micro), expected)


def test_labels_are_the_next_tokens(prepared: dict[str, Any]) -> None:
    inputs, labels = next(iter(loader(prepared, 1, 0, 4)))
    learned = labels[:, :-1] != -100  # torch's own number for a label that does not count.
    assert learned.all() == (prepared["source"] != "instructions")
    assert torch.equal(inputs["input"][:, 1:][learned], labels[:, :-1][learned])
    assert inputs["positions"].tolist() == [list(range(SEQ_LEN))] * 4


def test_a_loader_goes_on_under_another_layout(prepared: dict[str, Any]) -> None:
    """Two steps on one rank, then the third on two."""
    first = loader(prepared, 1, 0, 8)
    list(islice(iter(first), 2))
    state = first.state_dict()
    parts = []
    for rank in range(2):
        second = loader(prepared, 2, rank, 4)
        second.load_state_dict(state)
        parts.append(next(iter(second))[0]["input"].numpy())
    assert np.array_equal(np.concatenate(parts), read(prepared, 1, 8)[16:24])
