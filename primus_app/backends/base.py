"""The contract between primus_app and an engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from primus_app.backends.patches import Patch
from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ModelConfig
from primus_app.plan.mesh import Mesh

if TYPE_CHECKING:
    from primus_app.backends.native_tensors import NativeTensor
    from primus_app.backends.saved import Saved
    from primus_app.data.prepare import PreparedData
    from primus_app.run.directory import RunDirectory


@dataclass(frozen=True)
class RankContext:
    """Everything one rank process knows: what to train, on which data, where to write, and its place in the world."""

    config: Config
    run: "RunDirectory"
    attempt: int
    data: "PreparedData"
    rank: int
    local_rank: int
    world_size: int


class Backend(Protocol):
    """One engine. ``check``, ``check_machine`` and ``patches`` are asked before launch and import neither torch nor the engine."""

    name: str

    def check(self, config: Config, mesh: Mesh | None) -> list[Problem]:
        """What of ``config`` this engine cannot do: every setting is either carried out or refused by name.

        ``mesh`` is the plan's, None where the layout does not come out.
        """
        ...

    def check_machine(self, config: Config) -> list[Problem]:
        """What of the engine this machine lacks to train ``config``."""
        ...

    def prepare(self, config: Config) -> None:
        """What a rank process needs before the engine is imported for the first time."""
        ...

    def patches(self) -> Sequence[Patch]:
        """All corrections of the engine, whether this machine needs them or not."""
        ...

    def check_weights(self, folder: Path) -> list[Problem]:
        """What is damaged of a checkpoint of this engine that a new run is to start from; asked by the node agent, may import torch."""
        ...

    def open_saved(self, model: ModelConfig, step_folder: Path) -> "Saved":
        """The weights and moments of ``model`` in a checkpoint of this engine, in one process whatever its layout was.

        Raises UserError for a model that the engine has not, KeyError for a weight that is not there, and whatever a damaged file
        makes the reading raise.
        """
        ...

    def native_tensors(self, model: ModelConfig) -> "Sequence[NativeTensor]":
        """The tensors of a checkpoint of this engine with the weights of ``model``; UserError for a model that it has not."""
        ...

    def write_marks(self, folder: Path) -> None:
        """What this engine's checkpoints hold beside tensors and their index; written before them."""
        ...

    def train(self, context: RankContext) -> None:
        """Train on this rank until the last step; raises what went wrong."""
        ...


def load_backend(name: str) -> Backend:
    """The engine called ``name``."""
    backend: Backend = import_module(f"primus_app.backends.{name}.backend").BACKEND
    return backend
