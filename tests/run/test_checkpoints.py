"""Which checkpoints count as complete."""

from pathlib import Path

from primus_app.run.checkpoints import complete_checkpoints, newest_checkpoint
from primus_app.run.directory import RunDirectory


def test_complete_ones_newest_first(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert newest_checkpoint(run) is None
    for name in ("step-9", "step-100", "step-20", "step-x", "other"):
        (run.checkpoints_dir / name).mkdir(parents=True)
        (run.checkpoints_dir / name / ".metadata").touch()
    (run.checkpoints_dir / "step-300").mkdir()  # Its writer was killed before the last file.
    assert complete_checkpoints(run.checkpoints_dir) == [100, 20, 9]
    assert newest_checkpoint(run) == 100
