"""A small tokenizer.json, and folders of text."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from primus_app.data.text.files import TextFile, list_files

SENTENCES = ["the quick brown fox jumps over the lazy dog", "Größe, naïve café — 東京 🦊", "def f(x):\n    return x + 1\n"]


@pytest.fixture
def tokenizer_json(tmp_path: Path) -> Path:
    """A byte-level BPE with the tokens <|endoftext|> and <pad>; it asks for truncation and padding, which are not for corpora."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|endoftext|>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    tokenizer.enable_truncation(max_length=4)
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>")
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """An empty folder for text."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    return folder


@pytest.fixture
def listed(corpus: Path) -> Callable[[str, bytes], TextFile]:
    """listed(name, content): the file as it is listed."""

    def write(name: str, content: bytes) -> TextFile:
        (corpus / name).write_bytes(content)
        return list_files([str(corpus / name)])[0]

    return write
