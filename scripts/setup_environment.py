"""Make .venv in this checkout and install primus_app into it; silent when all is in place. Standard library only.

A torch that the interpreter already has (a ROCm or CUDA container) is used as it is: the environment is laid over the interpreter's
packages and pip is held to that torch. Exit codes: 0 ready; 3 this machine cannot hold the environment; 130 interrupted.
"""

import argparse
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from environment_plan import Facts, Install, Torch, UnfitError, digest, plan_install

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
SOURCES = ("setup.cfg", "setup.py", "pyproject.toml", "constraints.txt")
NEEDED_GB = 4.0
NEEDED_GB_WITH_TORCH = 1.5
UNFIT = 3
BORROWED_PTH = "_interpreters_own.pth"
PIPS_STEPS = ("Collecting", "Building", "Installing", "Obtaining")


# ---- finding out


def gather_facts() -> Facts:
    """About the interpreter that runs this file, without importing torch."""
    inside_venv = sys.prefix != sys.base_prefix
    base = getattr(sys, "_base_executable", None) or sys.executable
    return Facts(
        python=os.path.abspath(sys.executable) if inside_venv else os.path.realpath(sys.executable),
        version=".".join(map(str, sys.version_info[:3])),
        home=os.path.dirname(os.path.abspath(base)),
        torch=find_torch(),
        has_triton=_origin("triton") is not None,
        site_folders=tuple(site.getsitepackages()) if inside_venv else (),
    )


def find_torch() -> Torch | None:
    """The interpreter's own torch. Raises UnfitError where pip could not see it and would put another in front of it."""
    file = _origin("torch")
    if file is None:
        return None
    try:
        return Torch(importlib.metadata.version("torch"), file)
    except importlib.metadata.PackageNotFoundError:
        raise UnfitError(
            f"{file} can be imported, but pip does not know of it, so installing would put another torch in front of it.\n"
            f"  Install it as a package (pip install . in its sources), or take it off PYTHONPATH."
        ) from None


def _origin(module: str) -> str | None:
    spec = importlib.util.find_spec(module)
    return spec.origin if spec else None


def check_machine(install: Install) -> None:
    """Raise UnfitError for what would stop the installation half way."""
    if _origin("venv") is None or _origin("ensurepip") is None:
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        raise UnfitError(
            f"{sys.executable} comes without its venv module.\n"
            f"  Install it (Debian, Ubuntu: apt install {name}-venv), or name another python: PYTHON=… {_command()}"
        )
    if not os.access(ROOT, os.W_OK):
        raise UnfitError(f"{ROOT} cannot be written to, so .venv cannot be made there.\n  Copy the checkout to a folder of your own.")
    needed = NEEDED_GB_WITH_TORCH if install.borrows or _has_torch() else NEEDED_GB
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < needed:
        raise UnfitError(f"{ROOT} has {free:.1f} GB left on its disk; .venv needs {needed:g} GB.\n  Make room, or move the checkout.")


def _command() -> str:
    return os.environ.get("PRIMUS_SETUP_COMMAND", "./scripts/quickstart")


# ---- doing


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test", action="store_true", help="also install what the tests need")
    extras = {"test"} if parser.parse_args(arguments).test else set()
    if Path(sys.prefix).resolve() == VENV.resolve():
        return _start_again()
    try:
        set_up(extras)
    except UnfitError as unfit:
        say(f"set-up: {unfit}")
        return UNFIT
    except KeyboardInterrupt:
        say("\nset-up: stopped; the next call goes on from here")
        return 130
    return 0


def _start_again() -> int:
    """The environment cannot be made by its own python: let the one it was made with do it."""
    python = _read(VENV / "base-python").strip() or getattr(sys, "_base_executable", "")
    os.execv(python, [python, __file__, *sys.argv[1:]])


def set_up(wanted: set[str]) -> None:
    """Bring .venv to what the checkout asks for; return at once if it is there."""
    facts = gather_facts()
    if _is_ready(facts, wanted):
        return
    check_machine(_install(facts, wanted))
    VENV.mkdir(exist_ok=True)
    with open(VENV / "setup.lock", "w") as lock:
        _take(lock.fileno())
        if not _is_ready(facts, wanted):
            _set_up_locked(facts, wanted | _extras_present(), lock.fileno())


def _take(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("set-up: waiting for another set-up of this checkout")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        say(f"set-up: {VENV} cannot be locked ({error.strerror}); do not start a second set-up meanwhile")


def _set_up_locked(facts: Facts, extras: set[str], lock: int) -> None:
    started = time.monotonic()
    install = _install(facts, extras)
    state = _state()
    (VENV / "setup.json").unlink(missing_ok=True)
    why = reason_to_recreate(VENV, facts, install, state.get("root"))
    if why:
        say(f"set-up: making .venv anew: {why}")
        clear(VENV)
    elif (VENV / "pyvenv.cfg").exists():
        say(f"set-up: {'updating .venv' if state else 'finishing .venv, whose set-up was not completed'}")
    if not (VENV / "pyvenv.cfg").exists() or not _runs(VENV):
        create(facts, install, lock)
    say(f"set-up: installing {_scope(facts)}; log: {VENV / 'install.log'}")
    if facts.torch is None and os.path.exists("/dev/kfd"):
        say(f"set-up: this machine has AMD GPUs, but {facts.python} has no torch for ROCm: docs/installing.md says how to bring one")
    install_packages(install, lock)
    check_torch(facts)
    ready = {"root": str(ROOT), "extras": sorted(extras), "digest": _digest(facts, install)}
    _write(VENV / "setup.json", json.dumps(ready, indent=1))
    say(f"set-up: ready after {time.monotonic() - started:.0f} s")


def _scope(facts: Facts) -> str:
    if facts.torch:
        return f"(torch {facts.torch.version} of {facts.python} is used as it is)"
    return "what is missing" if _has_torch() else "(some minutes: 3 GB, or 8 GB with a torch for CUDA)"


def clear(venv: Path) -> None:
    """Empty the folder, but for the lock that this process holds."""
    for path in venv.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != "setup.lock":
            path.unlink()


def create(facts: Facts, install: Install, lock: int) -> None:
    say(f"set-up: creating .venv (python {facts.version})")
    system_site = ["--system-site-packages"] if install.system_site else []
    _run_logged([facts.python, "-m", "venv", *system_site, str(VENV)], "wb", lock)
    _write(VENV / "base-python", f"{facts.python}\n")
    if install.site_folders:
        lines = [f"import site; site.addsitedir({folder!r})" for folder in install.site_folders]
        _write(_site_packages() / BORROWED_PTH, "\n".join(lines) + "\n")


def install_packages(install: Install, lock: int) -> None:
    """Dependencies first, then this checkout without build isolation, so that a later change of setup.cfg needs no network."""
    for folder in half_installed(_site_packages()):
        shutil.rmtree(folder)
    _write(VENV / "requirements.txt", "\n".join(install.requirements) + "\n")
    _write(VENV / "constraints.txt", "\n".join(install.constraints) + "\n")
    pip = [str(VENV / "bin/python"), "-m", "pip", "install", "--no-input", "--no-user", "--disable-pip-version-check"]
    _run_logged([*pip, "-r", str(VENV / "requirements.txt"), "-c", str(VENV / "constraints.txt")], "ab", lock)
    _run_logged([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], "ab", lock)


def half_installed(site_packages: Path) -> list[Path]:
    """Records of packages whose installation was cut off (RECORD is written last), and what an interrupted replacement left."""
    cut_off = [folder for folder in site_packages.glob("*.dist-info") if not (folder / "RECORD").is_file()]
    return cut_off + [path for path in site_packages.glob("~*") if path.is_dir()]


def check_torch(facts: Facts) -> None:
    """Raise UnfitError if the environment does not show the interpreter's own torch."""
    if facts.torch is None:
        return
    code = "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s else '')"
    seen = subprocess.run([VENV / "bin/python", "-P", "-c", code], capture_output=True, text=True).stdout.strip()
    if os.path.realpath(seen) != os.path.realpath(facts.torch.file):
        raise UnfitError(f".venv imports torch from {seen or 'nowhere'}, not from {facts.torch.file}; see {VENV / 'install.log'}")


def _run_logged(command: Sequence[str], mode: str, lock: int) -> None:
    """Run with all output in the log; the child shares the lock, so one that outlives this process still keeps others out."""
    log = VENV / "install.log"
    with open(log, mode) as stream:
        stream.write(f"$ {' '.join(command)}\n".encode())
        stream.flush()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, pass_fds=(lock,), cwd=ROOT)
        try:
            _wait(process, log)
        except KeyboardInterrupt:
            process.wait()
            raise
    if process.returncode != 0:
        tail = "\n".join(f"  | {line}" for line in log.read_text(errors="replace").splitlines()[-15:])
        raise UnfitError(f"`{' '.join(command[1:4])}` failed (exit {process.returncode}); the end of {log}:\n{tail}")


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    started, terminal, every_s = time.monotonic(), sys.stderr.isatty(), 1.0 if sys.stderr.isatty() else 30.0
    while True:
        try:
            process.wait(timeout=every_s)
            break
        except subprocess.TimeoutExpired:
            print(
                f"  {time.monotonic() - started:4.0f} s  {_doing(log)}", file=sys.stderr, end="\033[K\r" if terminal else "\n", flush=True
            )
    if terminal:
        print("\033[K", file=sys.stderr, end="", flush=True)


def _doing(log: Path) -> str:
    """pip's last step; of its installing, which it tells in one line of all names, how far it is."""
    steps = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(PIPS_STEPS)]
    if not steps:
        return ""
    if steps[-1].startswith("Installing collected packages: "):
        total, there = steps[-1].count(",") + 1, sum(1 for _ in VENV.glob("lib/*/site-packages/*.dist-info"))
        return f"installing {total} packages: {min(there, total)} are there"
    return textwrap.shorten(steps[-1].partition(" (from ")[0], 80, placeholder=" …")


# ---- what is there


def reason_to_recreate(venv: Path, facts: Facts, install: Install, made_in: str | None) -> str | None:
    """Why an existing environment cannot be kept; None if it can, or if there is none."""
    if not (venv / "pyvenv.cfg").is_file():
        return None
    lines = [line.partition("=") for line in (venv / "pyvenv.cfg").read_text().splitlines()]
    made = {key.strip(): value.strip() for key, _, value in lines}
    if made_in is not None and made_in != str(venv.parent):
        return f"the checkout was moved from {made_in}"
    if made.get("version") != facts.version or os.path.realpath(made.get("home", "")) != os.path.realpath(facts.home):
        return f"it was made with python {made.get('version')} of {made.get('home')}, not {facts.version} of {facts.home}"
    if (made.get("include-system-site-packages") == "true" or any(venv.glob(f"lib/*/site-packages/{BORROWED_PTH}"))) != install.borrows:
        return f"{facts.python} {'now has' if install.borrows else 'no longer has'} a torch of its own"
    if not _runs(venv):
        return "it is broken"
    return None


def _runs(venv: Path) -> bool:
    return (venv / "bin/python").exists() and subprocess.run([venv / "bin/python", "-c", "import pip"], capture_output=True).returncode == 0


def _is_ready(facts: Facts, wanted: set[str]) -> bool:
    state, present = _state(), _extras_present()
    if not state or not wanted <= present or not (VENV / "bin/python").exists():
        return False
    return state.get("digest") == _digest(facts, _install(facts, present))


def _install(facts: Facts, extras: set[str]) -> Install:
    return plan_install(facts, _read(ROOT / "setup.cfg"), _read(ROOT / "pyproject.toml"), _read(ROOT / "constraints.txt"), extras)


def _digest(facts: Facts, install: Install) -> str:
    return digest(facts, install, [_read(ROOT / name) for name in SOURCES], str(ROOT))


def _state() -> dict[str, str]:
    try:
        state = json.loads(_read(VENV / "setup.json") or "{}")
    except ValueError:
        return {}
    return state if isinstance(state, dict) else {}


def _extras_present() -> set[str]:
    return set(_state().get("extras", ()))


def _has_torch() -> bool:
    return any(VENV.glob("lib/*/site-packages/torch/version.py"))


def _site_packages() -> Path:
    return VENV / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _read(file: Path) -> str:
    return file.read_text() if file.is_file() else ""


def _write(file: Path, text: str) -> None:
    """All or nothing, so that an interruption leaves no half file."""
    draft = file.with_name(file.name + ".new")
    draft.write_text(text)
    draft.replace(file)


if __name__ == "__main__":
    sys.exit(main())
