"""From files of instructions to samples: what is read and learnt, worked out by hand for bytes, and every mistake with its place."""

import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from primus_app.config.errors import UserError
from primus_app.config.schema import DataConfig
from primus_app.data import PreparedData, Sample, open_samples, prepare
from primus_app.data.samples import IGNORED
from tests.data.instructions.conftest import Tune

Write = Callable[..., str]
PAIRS = [{"prompt": f"Say {number}.", "response": "yes " * number + "end"} for number in range(8)]
END = 256


def asked(prompt: str) -> list[int]:
    return list(f"user:\n{prompt}\n\nassistant:\n".encode())


def written(prompt: str, response: str) -> tuple[list[int], list[int]]:
    """Tokens of the plain template in bytes, and whether each is learnt."""
    before, learnt, after = asked(prompt), [*response.encode(), END], list(b"\n\n")
    return before + learnt + after, [0] * len(before) + [1] * len(learnt) + [0] * len(after)


WRITTEN = [written(pair["prompt"], pair["response"]) for pair in PAIRS]


def prepared(
    path: str | list[str], tmp_path: Path, *, seq_len: int = 70, batch: int = 1, vocab: int = 320, **settings: Any
) -> PreparedData:
    values = {"split": (100.0, 0.0), "cache_dir": str(tmp_path / "cache"), "packing": False, **settings}
    return prepare(DataConfig(source="instructions", path=path, **values), vocab_size=vocab, seq_len=seq_len, global_batch_size=batch)


def samples(data: PreparedData, seq_len: int = 70, split: Any = "train") -> list[Sample]:
    """Those of the first epoch, after the way of ``data`` through JSON."""
    again = PreparedData.from_dict(json.loads(json.dumps(data.to_dict())))
    assert again == data
    opened = open_samples(again, split, seq_len=seq_len, seed=1, document_mask=True)
    return [opened.sample(index) for index in range(opened.num_windows or 0)]


def mistake(path: str, tmp_path: Path, **settings: Any) -> str:
    with pytest.raises(UserError) as caught:
        prepared(path, tmp_path, **settings)
    assert all(problem.fix and problem.what.endswith(".") for problem in caught.value.problems)
    return str(caught.value)


def test_each_example_alone_is_padded(write: Write, tmp_path: Path) -> None:
    data = prepared(write(PAIRS), tmp_path)
    assert (data.source, data.num_documents, data.vocab_size, data.tokenizer) == ("instructions", 8, 257, "byte")
    found = sorted(samples(data), key=lambda sample: int((sample.tokens == END).argmax()))
    for sample, (tokens, learned) in zip(found, WRITTEN, strict=True):
        padding = 71 - len(tokens)
        assert sample.tokens.tolist() == tokens + [END] * padding
        expected = [token if learnt else IGNORED for token, learnt in zip(tokens[1:], learned[1:], strict=True)]
        assert sample.labels.tolist() == expected + [IGNORED] * padding
        assert sample.positions.tolist() == list(range(70))


def test_several_examples_share_a_sample(write: Write, tmp_path: Path) -> None:
    """Lengths 31, 35, … 59 in windows of 131, the longest first: 59 + 55, 51 + 47 + 31, 43 + 39 + 35."""
    lengths = [len(tokens) for tokens, _ in WRITTEN]
    data = prepared(write(PAIRS), tmp_path, seq_len=130, packing=True)
    assert data.train.examples is not None
    assert data.train.examples.num_windows == 3
    seen = []
    for sample in samples(data, 130):
        begins = [*np.flatnonzero(sample.positions == 0).tolist(), 130]
        tokens, labels = sample.tokens.tolist(), sample.labels.tolist()
        for begin, end in pairwise(begins):
            assert sample.positions[begin:end].tolist() == list(range(end - begin))
            number = next((n for n, (known, _) in enumerate(WRITTEN) if tokens[begin : begin + len(known)] == known), None)
            if number is None:
                assert set(tokens[begin:]) == {END}, "what is no example is padding"
                assert set(labels[begin:]) == {IGNORED}
                continue
            seen.append(number)
            known, learned = WRITTEN[number]
            assert end - begin in (lengths[number], 130 - begin)
            expected = [token if learnt else IGNORED for token, learnt in zip(known[1:], learned[1:], strict=True)]
            assert labels[begin : begin + len(expected)] == expected
            if begin + len(expected) < 130:
                assert labels[begin + len(expected)] == IGNORED, "no example is learnt from the one before"
    assert sorted(seen) == list(range(8))


def test_lines_lists_rows_and_compressed_files_are_the_same(write: Write, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    digests = {prepared(write(PAIRS), tmp_path).digest}
    write([json.dumps(PAIRS, indent=1)], "list.json")
    write(PAIRS, "lines.json")
    (tmp_path / "data" / "packed.jsonl.gz").write_bytes(gzip.compress((tmp_path / "data" / "chats.jsonl").read_bytes()))
    columns = {name: [pair[name] for pair in PAIRS] for name in ("prompt", "response")}
    pq.write_table(pa.table({**columns, "id": [0] * 8}), tmp_path / "data" / "rows.parquet")
    messages = [[{"role": "user", "content": p["prompt"]}, {"role": "assistant", "content": p["response"]}] for p in PAIRS]
    pq.write_table(pa.table({"messages": messages}), tmp_path / "data" / "chats.parquet")
    for name in ("list.json", "lines.json", "packed.jsonl.gz", "rows.parquet", "chats.parquet"):
        digests.add(prepared(str(tmp_path / "data" / name), tmp_path).digest)
    assert len(digests) == 1
    assert prepared(str(tmp_path / "data"), tmp_path).num_documents == 48


def test_a_tokenizer_with_its_template(tokenizer_folder: Tune, write: Write, tmp_path: Path) -> None:
    folder = tokenizer_folder()
    data = prepared(write(PAIRS[:1]), tmp_path, tokenizer=str(folder))
    (sample,) = samples(data)
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast.from_pretrained(folder)
    messages = [{"role": "user", "content": "Say 0."}, {"role": "assistant", "content": "end"}]
    ids = theirs.apply_chat_template(messages, return_dict=True)["input_ids"]
    assert sample.tokens[: len(ids)].tolist() == ids
    assert theirs.decode(sample.labels[sample.labels != IGNORED]) == "end<|im_end|>"


def test_validation_gets_its_share_and_at_least_one(write: Write, tmp_path: Path) -> None:
    path = write(PAIRS)
    data = prepared(path, tmp_path, split=(75.0, 25.0))
    assert data.valid is not None
    assert (data.train.end_document, data.valid.end_document) == (6, 2)
    held = {tuple(sample.tokens.tolist()) for sample in samples(data, split="valid")}
    assert held == {tuple(WRITTEN[number][0] + [END] * (71 - len(WRITTEN[number][0]))) for number in (3, 7)}
    data = prepared(path, tmp_path, split=(98.0, 2.0))
    assert data.valid is not None
    assert (data.train.end_document, data.valid.end_document) == (7, 1)
    (sample,) = samples(data, split="valid")
    assert sample.tokens[: len(WRITTEN[7][0])].tolist() == WRITTEN[7][0]
    assert "a single example cannot be divided" in mistake(write(PAIRS[:1], "one.jsonl"), tmp_path, split=(98.0, 2.0))


def test_too_long_ones_are_refused_left_out_or_cut_as_is_asked(write: Write, tmp_path: Path) -> None:
    path = write(PAIRS)  # 31 to 59 tokens, 25 of them before the response; 40 in a window.
    told = mistake(path, tmp_path, seq_len=39)
    assert "training.seq_len: 5 of 8 examples have more than the 40 tokens of a sample, the longest 59." in told
    assert "training.seq_len=58 holds all" in told
    assert prepared(path, tmp_path, seq_len=58)
    left = prepared(path, tmp_path, seq_len=39, too_long="drop")
    assert left.train.examples is not None
    assert (left.train.examples.num_windows, left.train.examples.dropped, left.train.examples.cut) == (3, 5, 0)
    assert len(samples(left, 39)) == 3
    cut = prepared(path, tmp_path, seq_len=39, too_long="truncate")
    assert cut.train.examples is not None
    assert (cut.train.examples.num_windows, cut.train.examples.dropped, cut.train.examples.cut) == (8, 0, 5)
    expected = {tuple(tokens[:40] + [END] * (40 - len(tokens))) for tokens, _ in WRITTEN}
    assert {tuple(sample.tokens.tolist()) for sample in samples(cut, 39)} == expected
    assert len({left.digest, cut.digest, prepared(path, tmp_path).digest}) == 3
    # Where nothing is too long, the choice is of no account.
    assert prepared(path, tmp_path, too_long="drop").digest == prepared(path, tmp_path).digest
    shorter = len(asked("Say 0."))
    told = mistake(path, tmp_path, seq_len=shorter - 1, too_long="truncate")
    assert "the train split has 0 examples (8 were too long and left out) in 0 samples; one global batch needs 1." in told


def test_fewer_samples_than_a_global_batch(write: Write, tmp_path: Path) -> None:
    path = write(PAIRS)
    told = mistake(path, tmp_path, batch=9)
    assert "data.path: the train split has 8 examples in 8 samples; one global batch needs 9." in told
    assert "training.global_batch_size=8 is the largest that fits" in told
    told = mistake(path, tmp_path, seq_len=130, packing=True, batch=4)
    assert "data.packing=false gives each example a sample of its own" in told


def test_the_cache_knows_what_decides_the_tokens(write: Write, tmp_path: Path, tokenizer_folder: Tune) -> None:
    path = write(PAIRS)

    def entries() -> int:
        return len(list((tmp_path / "cache").glob("instructions-*")))

    prepared(path, tmp_path)
    prepared(path, tmp_path, seq_len=130, packing=True)
    assert entries() == 1
    folder = tokenizer_folder()
    prepared(path, tmp_path, tokenizer=str(folder))
    prepared(path, tmp_path, tokenizer=str(folder), chat_template="plain")
    prepared(path, tmp_path, response_key="prompt")
    prepared(path, tmp_path, split=(75.0, 25.0))
    assert entries() == 5


def test_all_mistakes_are_told_with_their_places(write: Write, tmp_path: Path) -> None:
    write(["{", json.dumps(PAIRS[0]), "", '{"prompt": "a"}', "[]", '{"prompt": "a", "response": ""}'], "a.jsonl")
    write(['[{"prompt": "a", "response": "b"}, 7, {"messages": [{"role": "bot", "content": "a"}]}]'], "b.json")
    write(["plain"], "c.txt")
    write(["{}", "not a list"], "d.json")
    (tmp_path / "data" / "e.jsonl").write_bytes(b'{"prompt": "\xff"}\n')
    told = mistake(str(tmp_path / "data"), tmp_path)
    for place in (
        "a.jsonl: line 1, byte 0: is not JSON",
        "a.jsonl: line 4, byte 43: has no field 'response'",
        "a.jsonl: line 5, byte 59: is no JSON object",
        "a.jsonl: line 6, byte 62: field 'response' is empty",
        "b.json: entry 1, counted from 0: is no JSON object",
        'b.json: entry 2, counted from 0: message 0 has the unknown role "bot"',
        "c.txt: holds no instructions by its name",
        "d.json: line 1, byte 0: has neither 'messages'",
        "d.json: line 2, byte 3: is not JSON",
        "e.jsonl: line 1, byte 12: 0xff is not UTF-8",
    ):
        assert place in told, told
    assert not list((tmp_path / "cache").glob("instructions-*"))
    assert not list((tmp_path / "cache").glob(".unfinished-*"))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.json", "[]", "is an empty list"),
        ("a.json", '"text"', "is no list of objects"),
        ("a.json", "[{]", "line 1, column 3: is not JSON"),
        ("a.jsonl", "\n\n", "holds no document"),
        ("a.jsonl.gz", "no gzip", "is cut short or damaged"),
        ("a.parquet", "no parquet", "is no whole Parquet file"),
    ],
)
def test_a_broken_file(tmp_path: Path, name: str, content: str, told: str) -> None:
    (tmp_path / name).write_text(content)
    assert f"{name}: {told}" in mistake(str(tmp_path / name), tmp_path)


def test_rows_of_parquet_are_told_too(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"prompt": ["a"] * 3, "response": ["b", None, ""]}), tmp_path / "a.parquet")
    told = mistake(str(tmp_path / "a.parquet"), tmp_path)
    assert "a.parquet: row 1: field 'response' is null, not text." in told
    assert "a.parquet: row 2: field 'response' is empty" in told
    pq.write_table(pa.table({"question": ["a"], "answer": ["b"]}), tmp_path / "b.parquet")
    told = mistake(str(tmp_path / "b.parquet"), tmp_path)
    assert "b.parquet: every row: has neither 'messages'" in told
    assert "it has 'question', 'answer'" in told

    pq.write_table(pa.table({"prompt": ["a"], "answer": ["b"]}), tmp_path / "c.parquet")
    told = mistake(str(tmp_path / "c.parquet"), tmp_path)
    assert "c.parquet: every row: has no field 'response'" in told
    assert "data.response_key=answer names a field that it has" in told


def test_the_same_mistake_again_and_again_is_told_once_for_each_file(write: Write, tmp_path: Path) -> None:
    write([{"prompt": "a", "answer": "b"}] * 7, "a.jsonl")
    write([*PAIRS, {"prompt": "a", "answer": "b"}], "b.jsonl")
    told = mistake(str(tmp_path / "data"), tmp_path)
    assert told.count("has no field 'response'") == 2
    assert "a.jsonl: line 1, byte 0: has no field 'response' (data.response_key).\n  6 more like it in this file\n" in told
    write([{"prompt": "a", "answer": "b"}] * 2000, "a.jsonl")
    told = mistake(str(tmp_path / "data"), tmp_path)
    assert told.count("has no field 'response'") == 1
    assert "at least 999 more like it in this file" in told


def test_a_conversation_that_the_template_refuses(tokenizer_folder: Tune, write: Write, tmp_path: Path) -> None:
    folder = tokenizer_folder(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[-1].content }}"
    )
    path = write([PAIRS[0], {"messages": [{"role": "system", "content": "a"}, {"role": "assistant", "content": "b"}]}])
    told = mistake(path, tmp_path, tokenizer=str(folder))
    assert "chats.jsonl: line 2, byte 40: the chat template refuses it: no system." in told


def test_a_vocabulary_that_is_too_small(write: Write, tmp_path: Path, tokenizer_folder: Tune) -> None:
    assert "model.vocab_size: 100 rows are too few" in mistake(write(PAIRS), tmp_path, tokenizer=str(tokenizer_folder()), vocab=100)
