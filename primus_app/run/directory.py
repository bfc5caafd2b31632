"""Where everything about one run lies, and what a run and its attempts are called."""

import random
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import Config
from primus_app.run.files import explain_os_errors

ADJECTIVES = """
able airy amber ample apt azure bold brave breezy brief bright brisk calm clear clever crisp daring deep eager early easy fair fast fine
firm fleet fond frank free fresh gentle glad golden grand happy hardy honest jolly keen kind lively loyal lucid lucky mellow merry mild neat
nimble noble plain proud quick quiet ready royal sharp silver smart snug solid steady sunny swift tidy true vivid warm wise witty young
"""
ANIMALS = """
adder badger bear beaver bee bison boar bream camel carp cat cod colt crab crane crow cuckoo deer dove duck eagle eel elk falcon finch fox
frog gecko goat goose gull hare hawk heron horse ibex jay kiwi koala lark lemur lion lizard llama lynx mole moose moth mouse newt
otter owl ox panda perch pike puffin quail rabbit raven robin salmon seal shrew stoat stork swan tapir tern tiger toad trout vole
walrus whale wolf wren yak zebra
"""


@dataclass(frozen=True)
class RunDirectory:
    """The files and folders of one run; nothing is created by naming it."""

    path: Path

    @property
    def config_file(self) -> Path:
        """The resolved configuration of the first start."""
        return self.path / "config.yaml"

    @property
    def overrides_file(self) -> Path:
        """What was typed at the first start, a list."""
        return self.path / "overrides.yaml"

    @property
    def plan_file(self) -> Path:
        """What was computed before the first start."""
        return self.path / "plan.json"

    @property
    def environment_file(self) -> Path:
        """The program, packages, machine and variables of the first start."""
        return self.path / "environment.json"

    @property
    def run_file(self) -> Path:
        """What the run is: its id and the half *what* of its configuration."""
        return self.path / "run.json"

    @property
    def native_dir(self) -> Path:
        """What the backend really received."""
        return self.path / "native"

    @property
    def status_file(self) -> Path:
        """The run's state, replaced atomically."""
        return self.path / "status.json"

    @property
    def events_file(self) -> Path:
        """What happened, one line each."""
        return self.path / "events.jsonl"

    @property
    def metrics_file(self) -> Path:
        """One line per logged step."""
        return self.path / "metrics.jsonl"

    @property
    def attempts_dir(self) -> Path:
        """One folder per start."""
        return self.path / "attempts"

    @property
    def tensorboard_dir(self) -> Path:
        """The same metrics for TensorBoard."""
        return self.path / "tensorboard"

    @property
    def checkpoints_dir(self) -> Path:
        """The saved states."""
        return self.path / "checkpoints"

    def converted_dir(self, target: str) -> Path:
        """Weights that were written for other programs, in a format of convert's, one folder each."""
        return self.path / {"hf": "huggingface"}.get(target, target)

    @property
    def lock_file(self) -> Path:
        """Held by the process that carries the run out; the file stays when nobody does."""
        return self.path / ".lock"

    def log_dir(self, rank: int, stage: str = "pre") -> Path:
        """logs/pre_trainer/rank-0, with debug.log, info.log, warning.log and error.log."""
        return self.path / "logs" / f"{stage}_trainer" / f"rank-{rank}"


@dataclass(frozen=True)
class Attempt:
    """One start of a run; ``number`` counts from 0."""

    number: int
    dir: Path


def run_directory(config: Config) -> RunDirectory:
    """{workspace}/{work_group}/{user_name}/{exp_name}, absolute. ``exp_name`` must be set (open_run does)."""
    if config.exp_name is None:
        raise ValueError("exp_name must be set before the run has a directory")
    return RunDirectory(_workspace(config.workspace) / config.work_group / config.user_name / config.exp_name)


def _workspace(text: str) -> Path:
    try:
        # Not resolve(): the path a user typed through a link is the one that lives longer.
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise UserError(Problem("workspace", f"{text!r} names no user's home", ("write the folder in full",))) from error


def unique_name(model_name: str) -> str:
    """A readable name that is very likely free: llama_tiny-1130-2055-calm-fox (model, local date and time, two words)."""
    chance = random.SystemRandom()
    model = re.sub(r"[^A-Za-z0-9._-]+", "-", model_name)
    return f"{model}-{datetime.now():%m%d-%H%M}-{chance.choice(ADJECTIVES.split())}-{chance.choice(ANIMALS.split())}"


def attempts(run: RunDirectory) -> list[Attempt]:
    """The starts so far, oldest first."""
    with explain_os_errors(run.attempts_dir, "listing the attempts"):
        folders = run.attempts_dir.iterdir() if run.attempts_dir.is_dir() else ()
        return sorted((Attempt(int(folder.name), folder) for folder in folders if folder.name.isdecimal()), key=lambda a: a.number)


def new_attempt(run: RunDirectory) -> Attempt:
    """Create attempts/N with N one more than the highest; two processes at once get two numbers."""
    with explain_os_errors(run.attempts_dir, "creating the folder of an attempt"):
        run.attempts_dir.mkdir(parents=True, exist_ok=True)
        number = max((attempt.number for attempt in attempts(run)), default=-1) + 1
        while True:
            folder = run.attempts_dir / str(number)
            try:
                folder.mkdir()
                return Attempt(number, folder)
            except FileExistsError:
                number += 1
