"""Which commit a folder is at, and what was changed since; never fails."""

import os
import subprocess
from pathlib import Path
from typing import Any

from primus_app.run.redact import redact_text

TIMEOUT_S = 10.0
DIFF_LIMIT = 1 << 20
"""Characters of a diff that are kept."""


class GitError(Exception):
    """Git's own words."""


def describe_checkout(folder: Path, *, exactly: bool = False, with_diff: bool = True) -> dict[str, Any] | None:
    """root, commit, changed files and the diff against the commit; None outside a repository, or without git.

    ``exactly``: only where ``folder`` is the root itself (a package installed in somebody's repository is not its checkout).
    ``with_diff``: the changed lines too, without known secrets. What git could not tell is under ``error``.
    """
    try:
        root = _git(folder, "rev-parse", "--show-toplevel").strip()
    except GitError as error:
        return None if "not a git repository" in str(error) or not str(error) else {"root": str(folder), "error": str(error)}
    if exactly and not os.path.samefile(root, folder):
        return None
    found: dict[str, Any] = {"root": root}
    try:
        found["commit"] = _git(folder, "rev-parse", "HEAD").strip()
        changed = _git(Path(root), "status", "--porcelain").splitlines()
        found |= {"dirty": bool(changed), "changed": changed}
        if with_diff and changed:
            found["diff"] = _shortened(redact_text(_git(Path(root), "diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD")))
    except GitError as error:
        found["error"] = str(error)
    return found


def _shortened(diff: str) -> str:
    left_out = len(diff) - DIFF_LIMIT
    return diff if left_out <= 0 else f"{diff[:DIFF_LIMIT]}\n({left_out} further characters left out)\n"


def _git(folder: Path, *arguments: str) -> str:
    """Git's output. It is told to speak English, to ask nothing, to run no program of the repository and to write nothing into it."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments]
    environment = os.environ | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise GitError("") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(str(error)) from error
    if done.returncode != 0:
        raise GitError(done.stderr.decode(errors="replace").strip() or f"git ended with {done.returncode}")
    return done.stdout.decode(errors="replace")
