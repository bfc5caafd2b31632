"""What a killed attempt has left is cleared up, and only that."""

from pathlib import Path

import pytest

from primus_app.launch.tidy import tidy_up
from primus_app.run.directory import RunDirectory
from primus_app.run.events import append_event, read_events


def test_leftovers_go_and_records_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(tmp_path)
    append_event(run, "started")
    with run.events_file.open("a") as file:
        file.write('{"time": "20')
    kept = ("metrics.jsonl", "attempts/0/config.yaml", "native/torchtitan.json", "checkpoints/step-5/.metadata")
    left = (".tmp-status.json-1-ab", "attempts/0/.tmp-reserve", "native/.tmp-torchtitan.json-1-ab", "checkpoints/step-10/__0_0.distcp")
    for name in (*kept, *left):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    tidy_up(run, 1)
    assert [name for name in kept if not (tmp_path / name).exists()] == []
    assert [name for name in left if (tmp_path / name).exists()] == []
    assert not (run.checkpoints_dir / "step-10").exists()
    assert [(event["event"], event.get("step")) for event in read_events(run)] == [("started", None), ("checkpoint_deleted", 10)]
    assert capsys.readouterr().err == "note: checkpoint step-10 was not finished and has been deleted\n"
    tidy_up(run, 2)
    assert len(read_events(run)) == 2


def test_a_run_without_anything_yet(tmp_path: Path) -> None:
    tidy_up(RunDirectory(tmp_path), 0)
    assert list(tmp_path.iterdir()) == []
