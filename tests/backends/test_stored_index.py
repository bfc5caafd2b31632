"""Damage of a checkpoint is seen by its index and a glance at its files, without torch."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from primus_app.backends.initial_weights import LOAD, find_weights
from primus_app.backends.stored_folder import read_note, write_note
from primus_app.backends.stored_index import damage, read_pieces, stored_problem
from primus_app.config.compose import Request
from primus_app.config.errors import UserError
from primus_app.config.huggingface_export import config_json
from primus_app.config.load import load_config

FILE = "__0_0.distcp"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tensors and a number, as torch writes them."""
    place = tmp_path / "step-4"
    dcp.save({"a": torch.ones(5, 3), "b": torch.zeros(2), "step": 4}, checkpoint_id=str(place), no_dist=True)
    return place


def test_the_index_says_what_torch_reads_of_it(folder: Path) -> None:
    stored = dcp.FileSystemReader(folder).read_metadata().storage_data
    expected = {(place.relative_path, place.offset, place.offset + place.length, index.fqn != "step") for index, place in stored.items()}
    assert set(read_pieces(folder)) == expected
    assert damage(folder) is None


def test_nothing_that_an_index_names_is_run(folder: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return Path.touch, (tmp_path / "touched",)  # type: ignore[return-value]

    (folder / ".metadata").write_bytes(pickle.dumps(Evil()))
    assert damage(folder) is not None
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (FILE, lambda content: None, f"{FILE} is missing"),
        (FILE, lambda content: content[:-9], f"{FILE} is too short, "),
        (FILE, lambda content: bytes(len(content)), f"{FILE} holds other bytes than were written"),
        (FILE, lambda content: content[:-50] + bytes(50), f"{FILE} holds other bytes than were written"),
        (".metadata", lambda content: None, "its index .metadata is missing"),
        (".metadata", lambda content: b"", "its index .metadata cannot be read: EOFError"),
        (".metadata", lambda content: b"junk", "its index .metadata cannot be read: UnpicklingError"),
        (".metadata", lambda content: content[:-40], "its index .metadata cannot be read: UnpicklingError"),
    ],
)
def test_each_damage_is_named_with_its_file(folder: Path, name: str, change: Callable[[bytes], bytes | None], said: str) -> None:
    changed = change((folder / name).read_bytes())
    (folder / name).unlink() if changed is None else (folder / name).write_bytes(changed)
    (problem,) = stored_problem(folder, "here")
    assert problem.what.startswith(f"the checkpoint {folder} is damaged: {said}")
    assert problem.fix == ("take another step of that run, if it has one",)


@pytest.mark.parametrize(("lost", "said"), [("weights.json", "is missing, which convert writes"), (".metadata", ".metadata is missing")])
def test_converted_weights_without_one_of_their_files(folder: Path, lost: str, said: str) -> None:
    config = load_config(Request(()), hardware="cpu")
    place = folder.rename(folder.with_name("converted"))
    (place / "config.json").write_text(json.dumps(config_json(config.model)))
    write_note(place, "x", {"a": "F32"}, config.model)
    assert find_weights(place, config).digest == "x"
    (place / lost).unlink()
    with pytest.raises(UserError) as caught:
        find_weights(place, config)
    (problem,) = caught.value.problems
    assert problem.where == LOAD
    assert said in problem.what
    assert "convert the weights again" in problem.fix[0]


@pytest.mark.parametrize("text", ["{}", "[]", '{"identity": "x"}', "{"])
def test_a_note_that_convert_has_not_written_is_refused(folder: Path, text: str) -> None:
    (folder / "weights.json").write_text(text)
    with pytest.raises(UserError) as caught:
        read_note(folder, load_config(Request(()), hardware="cpu").model, "here")
    assert str(folder / "weights.json") in str(caught.value)
    assert "TypeError" not in str(caught.value)
