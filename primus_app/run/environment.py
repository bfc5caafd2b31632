"""What surrounds a run and could change it: program, packages, machine, variables; secrets left out."""

import os
import platform
import re
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from primus_app.run.git import describe_checkout
from primus_app.run.redact import redact_argument, redact_variable

PREFIXES = """
NCCL_ RCCL_ HSA_ HIP_ ROCR_ ROCM_ CUDA_ CUBLAS_ GPU_ AMD_ NVIDIA_ TORCH PYTORCH_ GLOO_ OMP_ MKL_ KMP_ OPENBLAS_ NVTE_ SLURM_ HF_ MIOPEN_
ROCBLAS_ HIPBLASLT_ TRITON_ UCX_ FI_ TP_ MASTER_ PRIMUS_ PYTHON LC_
"""
NAMES = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "CONDA_PREFIX", "LANG", "TZ", "HOME", "TMPDIR", "XDG_CACHE_HOME")
DISTRIBUTION = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(-py[0-9.]+)?\.(dist|egg)-info")


def describe_environment(devices: Sequence[dict[str, Any]] = (), command: Sequence[str] = ()) -> dict[str, Any]:
    """All of it as JSON. ``devices`` are the launcher's, since finding them takes torch; ``command`` is what was typed."""
    program = describe_checkout(Path(__file__).resolve().parents[2], exactly=True)
    working = describe_checkout(Path.cwd(), with_diff=False)
    same = program is not None and working is not None and program.get("root") == working.get("root")
    return {
        "command": [redact_argument(argument) for argument in command],
        "working_directory": str(Path.cwd()),
        "program": program,
        "working_checkout": None if same else working,
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "packages": installed_packages(),
        "host": describe_host(),
        "devices": list(devices),
        "variables": chosen_variables(dict(os.environ)),
    }


def describe_host() -> dict[str, Any]:
    """The machine: name, system, processors, memory (GiB), and the limits of its container."""
    return {
        "name": socket.gethostname(),
        "system": _system_name(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "num_cpus": os.cpu_count(),
        "num_cpus_allowed": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 2),
        "memory_limit_gib": _memory_limit_gib(),
    }


def _system_name() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return platform.system()


def _memory_limit_gib() -> float | None:
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" where there is none
            limit = int(Path(file).read_text()) / 2**30
            return round(limit, 2) if limit < 2**20 else None
    return None


def installed_packages() -> dict[str, str]:
    """Versions of all packages on Python's path, the one that import finds first."""
    # importlib.metadata reads every package's README to learn its name; the folders' names say the same in a
    # hundredth of the time (PyPA, "Recording installed projects").
    found: dict[str, str] = {}
    for folder in sys.path:
        with suppress(OSError):
            for match in filter(None, map(DISTRIBUTION.fullmatch, os.listdir(folder or "."))):
                found.setdefault(match["name"].lower().replace("_", "-"), match["version"])
    return dict(sorted(found.items()))


def chosen_variables(environment: dict[str, str]) -> dict[str, str]:
    """The variables that can change a run, with secrets redacted."""
    chosen = {name: value for name, value in environment.items() if name in NAMES or name.startswith(tuple(PREFIXES.split()))}
    return {name: redact_variable(name, value) for name, value in sorted(chosen.items())}
