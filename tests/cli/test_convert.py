"""The verb convert as it is typed: mistakes at once, nothing overwritten, no Hydra."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from primus_app.backends.disagreement import shapes_of
from primus_app.backends.given_weights import end_of_document, tokenizer_files
from primus_app.backends.output_folder import check_output, clear_leftovers, written_whole
from primus_app.cli.completion import candidates
from primus_app.config.errors import UserError
from primus_app.config.huggingface import load_huggingface
from primus_app.config.schema import DataConfig, ModelConfig

Door = Callable[..., Any]


def write_llama(folder: Path, vocab_size: int) -> None:
    """One layer of width 64 with a shared output layer, all zeros: 256 bytes a token of the vocabulary."""
    size = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1, "num_hidden_layers": 1}
    settings = {
        **size,
        "model_type": "llama",
        "vocab_size": vocab_size,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64,
    }
    model = ModelConfig.model_validate(load_huggingface_settings(folder, settings))
    save_file({name: np.zeros(shape, np.float32) for name, shape in shapes_of(model).items()}, folder / "model.safetensors")


def load_huggingface_settings(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings))
    return load_huggingface(str(folder))


def test_all_mistakes_are_told_at_once(door: Door) -> None:
    answer = door("convert", "/nowhere", "there", "--to", "huggingface", "--dtype", "bf61", "--step", "last", "--output", "here")
    assert answer.code == 2
    assert [lines[0].partition(":")[0] for lines in answer.problems()] == ["--output", "--to", "--dtype", "--step", "/nowhere"]
    assert "did you mean --dtype bf16?" in answer.err


def test_nothing_given_says_how_it_is_called(door: Door) -> None:
    answer = door("convert")
    assert answer.code == 2
    assert "convert: needs the weights to convert" in answer.err
    assert "--to: is missing" in answer.err
    assert "primus convert SRC [DST] --to hf|torchtitan|megatron" in answer.err


def test_an_unknown_flag_is_named_without_its_value(door: Door) -> None:
    answer = door("convert", "run", "--to", "hf", "--outptu", "here")
    assert [lines[0] for lines in answer.problems()] == ["--outptu: convert takes no such argument"]
    assert "did you mean --output?" in answer.err


def test_a_folder_that_is_no_run_needs_a_place_and_has_no_steps(door: Door, tmp_path: Path) -> None:
    assert f"{tmp_path}: is neither a run directory nor a folder with a config.json" in door("convert", str(tmp_path), "--to", "hf").err
    (tmp_path / "config.json").write_text("{}")
    answer = door("convert", str(tmp_path), "--to", "hf", "--step", "3")
    assert [lines[0].partition(":")[0] for lines in answer.problems()] == ["--step", "DST"]


def test_settings_are_no_arguments(door: Door) -> None:
    answer = door("convert", "run", "--to", "hf", "precision=bf16")
    assert answer.problems()[0][0] == "precision=bf16: convert takes no such argument"


def test_a_flag_without_its_value_is_one_message(door: Door) -> None:
    answer = door("convert", "run", "--to")
    assert answer.code == 2
    assert answer.problems()[0][0] == "convert: argument --to: expected one argument"


def test_the_help_page_and_completion_know_it(door: Door) -> None:
    page = door("--help").out
    assert "convert" in page
    assert "--dtype" in page
    assert candidates("primus conv") == ["convert"]
    assert candidates("primus convert run --") == ["--dtype", "--output", "--step", "--to"]
    assert candidates("primus convert run --to ") == ["hf", "megatron", "torchtitan"]
    assert candidates("primus convert run --dtype b") == ["bf16"]


def test_only_an_empty_folder_is_written_to(tmp_path: Path) -> None:
    assert check_output(tmp_path / "new") == []
    assert check_output(tmp_path) == []
    (tmp_path / "file").touch()
    for taken in (tmp_path, tmp_path / "file"):
        assert "nothing is overwritten" in str(check_output(taken)[0])


def test_no_files_are_put_among_those_of_a_run_or_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "run.json").touch()
    for inside in ("checkpoints/step-99", "new", "huggingface"):
        [problem] = check_output(tmp_path / inside)
        assert f"belongs to the run {tmp_path}" in problem.what
    assert check_output(tmp_path / "huggingface" / "llama-step-3") == []
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "checkpoints")
    assert "belongs to the run" in check_output(tmp_path / "link" / "step-99")[0].what
    assert check_output(tmp_path / ".." / "beside it") == []
    [problem] = check_output(tmp_path / "run.json" / "below" / "it")
    assert problem.what == f"cannot be made: {tmp_path / 'run.json'} is a file"


def test_of_two_conversions_the_second_is_refused_and_a_dead_ones_rest_goes(tmp_path: Path) -> None:
    output = tmp_path / "out"
    dead = tmp_path / ".tmp-out-1-00000000"
    anothers = tmp_path / ".tmp-out-2-1-00000000"
    for folder in (dead, anothers):
        folder.mkdir()
    with written_whole(output, 1, narrower=False) as folder:
        assert "is being written by another convert" in check_output(output)[0].what
        assert clear_leftovers(output) == [dead]
        assert anothers.exists()
        (folder / "config.json").touch()
    assert [path.name for path in output.iterdir()] == ["config.json"]
    with pytest.raises(UserError, match="exists already") as caught, written_whole(output, 1, narrower=False) as folder:
        (folder / "config.json").touch()
    assert caught.value.code == 2
    assert sorted(tmp_path.iterdir()) == [anothers, output]


def test_room_is_told_in_one_unit_and_bf16_only_where_it_helps(tmp_path: Path) -> None:
    for narrower in (True, False):
        with pytest.raises(UserError, match=r"no room for 1024\.0 TiB of weights and 16\.0 MiB") as caught:
            written_whole(tmp_path / "new" / "out", 1 << 50, narrower=narrower).__enter__()
        assert ("--dtype bf16" in str(caught.value)) is narrower
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("arguments", "name"), [(("", "there"), "SRC"), (("run", ""), "DST"), (("run", "--output", ""), "--output")])
def test_an_empty_name_is_refused(arguments: tuple[str, ...], name: str, door: Door) -> None:
    assert f"{name}: is empty" in door("convert", *arguments, "--to", "hf").err


def test_a_name_that_is_too_long_is_one_message(door: Door, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    answer = door("convert", "x" * 300, str(tmp_path / ("y" * 300)), "--to", "hf")
    assert answer.code == 2
    assert [lines[0].endswith("File name too long") for lines in answer.problems()] == [True, True]
    assert "checkpoint.load: /" in door("plan", f"checkpoint.load=/{'x' * 300}").out


@pytest.mark.slow
def test_a_real_signal_ends_it_clean_and_one_that_is_ignored_does_not(tmp_path: Path) -> None:
    """Writing 64 MiB keeps it busy for long enough; under nohup a terminal that closes is no reason to end."""
    source, output = tmp_path / "source", tmp_path / "new" / "out"
    write_llama(source, vocab_size=1 << 18)

    def signalled(number: signal.Signals, target: str, **ignored: Any) -> int:
        words = [sys.executable, "-m", "primus_app", "convert", str(source), str(output), "--to", target]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **ignored)
        while process.poll() is None and not list(output.parent.glob(".tmp-*")):
            time.sleep(0.005)
        process.send_signal(number)
        _, said = process.communicate()
        assert "Traceback" not in said
        return process.returncode

    assert signalled(signal.SIGTERM, "torchtitan") == 5
    assert list(tmp_path.iterdir()) == [source]
    assert signalled(signal.SIGHUP, "hf", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) == 0
    assert list(output.parent.iterdir()) == [output]


def test_a_tokenizers_files_are_found_by_its_file_or_its_folder(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "weights.bin"):
        (tmp_path / name).touch()
    expected = [tmp_path / "tokenizer.json", tmp_path / "tokenizer_config.json"]
    assert tokenizer_files(str(tmp_path)) == tokenizer_files(str(tmp_path / "tokenizer.json")) == expected
    assert tokenizer_files("byte") == []


@pytest.mark.parametrize(("source", "end"), [("stdlib_text", 256), ("mock", None)])
def test_the_end_of_a_document_is_that_of_the_tokens_the_run_made(source: Any, end: int | None) -> None:
    assert end_of_document(DataConfig(source=source)) == end


def test_a_flag_of_another_verb_is_told_as_that(door: Door) -> None:
    assert "export prints: put > FILE after the command" in door("export", "--output", "x").err
    assert "--html is a flag of plan" in door("tune", "--html", "x").err
