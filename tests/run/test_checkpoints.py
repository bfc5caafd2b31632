"""Which checkpoints count as complete, and which are deleted."""

from pathlib import Path

from primus_app.run.checkpoints import (
    complete_checkpoints,
    newest_checkpoint,
    remove_unfinished,
    surplus_checkpoints,
    unfinished_checkpoints,
    unmark,
)
from primus_app.run.directory import RunDirectory


def _save(folder: Path, *steps: int, complete: bool = True) -> None:
    for step in steps:
        (folder / f"step-{step}").mkdir(parents=True)
        (folder / f"step-{step}" / "__0_0.distcp").write_bytes(b"x")
        if complete:
            (folder / f"step-{step}" / ".metadata").touch()


def test_complete_ones_newest_first(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert newest_checkpoint(run) is None
    for name in ("step-9", "step-100", "step-20", "step-x", "other"):
        (run.checkpoints_dir / name).mkdir(parents=True)
        (run.checkpoints_dir / name / ".metadata").touch()
    (run.checkpoints_dir / "step-300").mkdir()  # Its writer was killed before the last file.
    assert complete_checkpoints(run.checkpoints_dir) == [100, 20, 9]
    assert newest_checkpoint(run) == 100


def test_unfinished_ones_are_removed_and_nothing_else(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert remove_unfinished(run) == []
    _save(run.checkpoints_dir, 5, 10)
    _save(run.checkpoints_dir, 15, 20, complete=False)
    (run.checkpoints_dir / "step-15" / ".metadata.tmp").touch()  # The marker itself was being written.
    (run.checkpoints_dir / "mine").mkdir()
    assert unfinished_checkpoints(run.checkpoints_dir) == [15, 20]
    assert remove_unfinished(run) == [15, 20]
    assert sorted(path.name for path in run.checkpoints_dir.iterdir()) == ["mine", "step-10", "step-5"]


def test_the_newest_good_ones_are_kept(tmp_path: Path) -> None:
    _save(tmp_path, 5, 10, 15, 20)
    _save(tmp_path, 25, complete=False)

    def surplus(keep: int, newest: int) -> list[str]:
        return [path.name for path in surplus_checkpoints(tmp_path, keep, newest)]

    assert surplus(2, 20) == ["step-5", "step-10"]
    assert surplus(4, 20) == []
    assert surplus(0, 20) == []
    # 15 and 20 were found damaged and training went on from 5: they must not push out what is good.
    assert surplus(2, 10) == []
    assert surplus(1, 10) == ["step-5"]


def test_an_unmarked_one_is_unfinished(tmp_path: Path) -> None:
    _save(tmp_path, 5)
    unmark(tmp_path / "step-5")
    unmark(tmp_path / "step-6")
    assert unfinished_checkpoints(tmp_path) == [5]
