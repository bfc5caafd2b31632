"""The four files of a rank: what goes where, and that a kill loses no line. Real processes, since logging is one per process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEGIN = "import logging, warnings; from pathlib import Path; from primus_app.run.rank_logs import open_logs; "


def python(code: str, folder: Path, level: str = "debug") -> subprocess.CompletedProcess[str]:
    start = f"{BEGIN}open_logs(Path({str(folder)!r}), {level!r}, 3); "
    return subprocess.run(
        [sys.executable, "-c", start + code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )


def text(folder: Path, name: str) -> str:
    return (folder / f"{name}.log").read_text()


def test_each_file_has_its_level_and_all_above(tmp_path: Path) -> None:
    levels = ("debug", "info", "warning", "error")
    python("".join(f"logging.getLogger('some.library').{level}('a {level}'); " for level in levels), tmp_path)
    for number, name in enumerate(levels):
        found = [line.rsplit(" ", 1)[1] for line in text(tmp_path, name).splitlines()]
        assert found == list(levels[number:])
    assert " ERROR rank 3 some.library: a error" in text(tmp_path, "error")


def test_the_level_of_the_configuration_is_the_least(tmp_path: Path) -> None:
    python("logging.info('quiet'); logging.warning('loud')", tmp_path, "warning")
    assert "quiet" not in text(tmp_path, "debug")
    assert "loud" in text(tmp_path, "debug")


def test_warnings_and_uncaught_exceptions_are_captured(tmp_path: Path) -> None:
    ended = python("warnings.warn('look out'); print('printed'); raise ValueError('broken')", tmp_path)
    assert ended.returncode == 1
    assert ended.stdout == "printed\n"
    assert "look out" in text(tmp_path, "warning")
    assert "ValueError: broken" in text(tmp_path, "error")
    assert "Traceback" in text(tmp_path, "error")


def test_an_exception_in_a_thread_is_captured(tmp_path: Path) -> None:
    python("import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", tmp_path)
    assert "ZeroDivisionError" in text(tmp_path, "error")


def test_a_kill_loses_no_line(tmp_path: Path) -> None:
    ended = python("import os\nfor n in range(500): logging.info('line %d', n)\nos.kill(os.getpid(), 9)", tmp_path)
    assert ended.returncode == -signal.SIGKILL
    assert text(tmp_path, "info").splitlines()[-1].endswith("line 499")
