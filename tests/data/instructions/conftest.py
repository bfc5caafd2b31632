"""Instructions in files, and a small tokenizer with a chat template."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
Tune = Callable[..., Path]


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Tune:
    """tokenizer_folder(template=CHATML, **settings): a folder with tokenizer.json and tokenizer_config.json; no template for None."""

    def make(template: Any = CHATML, **settings: Any) -> Path:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator(["user assistant system", "what is the answer to the question", "the answer is"] * 3, trainer)
        folder = tmp_path / "tokenizer"
        folder.mkdir(exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        values = {
            "eos_token": "<|im_end|>",
            "bos_token": {
                "__type": "AddedToken",
                "content": "<s>",
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "single_word": False,
            },
            **settings,
        }
        if template is not None:
            values["chat_template"] = template
        (folder / "tokenizer_config.json").write_text(json.dumps(values))
        return folder

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """write(records, name="chats.jsonl") -> path; text is written as it is."""

    def make(records: Sequence[Any], name: str = "chats.jsonl") -> str:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in records))
        return str(folder / name)

    return make
