"""A tokenizer.json of one's own: its tokens, its end of document, and what is told when either is missing."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from primus_app.config.errors import UserError
from primus_app.data.huggingface_tokenizer import HuggingFaceTokenizer
from primus_app.data.tokenizer import ByteTokenizer, open_tokenizer


def save(folder: Path, *special: str) -> Path:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(special))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def beside(folder: Path, name: str, **values: object) -> None:
    (folder / name).write_text(json.dumps(values))


def mistake(path: Path, end: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        HuggingFaceTokenizer(str(path), end)
    assert all(problem.fix for problem in caught.value.problems)
    return str(caught.value)


def test_the_file_or_its_folder(tmp_path: Path) -> None:
    save(tmp_path, "<x>", "</s>")
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        tokenizer = open_tokenizer(str(path))
        assert (tokenizer.vocab_size, tokenizer.end_of_document) == (5, 4)
        assert [tokenizer.ids(one).tolist() for one in tokenizer.encode_batch(["a b c", "", "b</s>a"])] == [[0, 1, 2], [], [1, 4, 0]]


def test_byte_needs_no_file() -> None:
    tokenizer = open_tokenizer("byte")
    assert isinstance(tokenizer, ByteTokenizer)
    assert [tokenizer.ids(one).tolist() for one in tokenizer.encode_batch(["ab", ""])] == [[97, 98], []]


@pytest.mark.parametrize(
    ("special", "end"),
    [
        (("<|im_end|>", "<|endoftext|>"), "<|endoftext|>"),
        (("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"), "<|end_of_text|>"),
        (("<s>", "</s>"), "</s>"),
    ],
)
def test_usual_ends_are_known(tmp_path: Path, special: tuple[str, ...], end: str) -> None:
    assert HuggingFaceTokenizer(str(save(tmp_path, *special))).end_of_document == 3 + special.index(end)


def test_the_files_beside_it_win_and_the_configuration_over_them(tmp_path: Path) -> None:
    folder = save(tmp_path, "</s>", "<end>", "<other>")
    beside(folder, "special_tokens_map.json", eos_token={"content": "<other>"})
    assert HuggingFaceTokenizer(str(folder)).end_of_document == 5
    beside(folder, "tokenizer_config.json", eos_token="<end>")
    assert HuggingFaceTokenizer(str(folder)).end_of_document == 4
    assert HuggingFaceTokenizer(str(folder), "</s>").end_of_document == 3
    beside(folder, "tokenizer_config.json", eos_token="<none>")
    assert "tokenizer_config.json: its eos_token '<none>' is no token of tokenizer.json" in mistake(folder)


def test_no_end_is_known(tmp_path: Path) -> None:
    folder = save(tmp_path, "<fin>")
    assert "data.end_of_document: no end of text is known" in mistake(folder)
    assert "tokens that look special: <fin>" in mistake(folder)
    assert "data.end_of_document: '<fim>' is no token" in mistake(folder, "<fim>")
    assert "data.end_of_document='<fin>' is one" in mistake(folder, "<fim>")
    assert HuggingFaceTokenizer(str(folder), "<fin>").end_of_document == 3


@pytest.mark.parametrize("content", [b"", b"{}", b'{"model": ', b"\x0a\x0e\x0a\x05<unk>"])
def test_a_broken_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert "tokenizer.json: is no tokenizer.json that the tokenizers library reads" in mistake(tmp_path)


def test_a_broken_file_beside_it(tmp_path: Path) -> None:
    folder = save(tmp_path, "</s>")
    (folder / "tokenizer_config.json").write_text("{")
    assert "tokenizer_config.json: cannot be read as JSON" in mistake(folder)


def test_a_missing_file(tmp_path: Path) -> None:
    assert "the folder has no tokenizer.json" in mistake(tmp_path)


def test_the_identity_is_of_the_content(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    one, other, third = (save(folder, *special) for folder, special in zip(folders, (["</s>"], ["</s>"], ["</s>", "<x>"]), strict=True))
    identity = HuggingFaceTokenizer(str(one)).identity
    assert HuggingFaceTokenizer(str(other)).identity == identity
    assert len({identity, HuggingFaceTokenizer(str(third)).identity, HuggingFaceTokenizer(str(one), "a").identity}) == 3
