"""A real run on text: tokenised by a tokenizer.json before the first step, and held to its content."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.system.program import Start, losses, rows

pytestmark = pytest.mark.slow


def write(folder: Path, last: str) -> None:
    texts = [f"the fox number {number} jumps over {number % 7} dogs" for number in range(100)]
    folder.mkdir(exist_ok=True)
    (folder / "fox.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, last]))


def tokenizer(folder: Path) -> Path:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(["the fox jumps over dogs"], trainer)
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def test_text_is_trained_on_and_its_content_may_not_change(start: Start, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    write(corpus, "one more")
    data = ("data=text", f"data.path={corpus}", f"data.cache_dir={tmp_path}/cache", f"data.tokenizer={tokenizer(tmp_path)}")
    program = start(*data, "training.steps=2")
    code, output = program.end()
    assert code == 0, output
    assert "fork" not in output, "the tokenizers library warns when its threads are forked"
    assert len(losses(program.run)) == 2
    prepared = json.loads((program.run / "attempts/0/data.json").read_text())
    assert (prepared["source"], prepared["num_documents"]) == ("text", 101)

    write(corpus, "another one")
    before = [(program.run / name).read_text() for name in ("status.json", "run.json")]
    code, output = start(*data, "training.steps=4").end()
    assert code == 2
    assert [(program.run / name).read_text() for name in ("status.json", "run.json")] == before, "a refused start changes nothing"
    assert "the content of the data has changed since this run began" in output

    corpus.rename(tmp_path / "moved")
    write(tmp_path / "moved", "one more")
    program = start(*data, f"data.path={tmp_path}/moved", "training.steps=4")
    code, output = program.end()
    assert code == 0, output
    assert [row["step"] for row in rows(program.run) if "loss" in row] == [1, 2, 3, 4]
