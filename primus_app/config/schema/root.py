"""The whole configuration: the one value that everything past the door works with."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from primus_app.config.schema.base import REQUIRED, Section, how, what
from primus_app.config.schema.estimates import PlanConfig
from primus_app.config.schema.model import ModelConfig
from primus_app.config.schema.place import BackendConfig, ClusterConfig, HardwareConfig, ParallelConfig
from primus_app.config.schema.recipe import DataConfig, OptimizerConfig, PrecisionConfig, TrainingConfig


def _inside_workspace(name: str) -> str:
    parts = name.split("/")
    if any(part in ("", ".", "..") or part.startswith(".tmp-") for part in parts) or not name.isprintable():
        raise ValueError("names a folder inside the workspace: no empty part, no . and .., nothing that begins with .tmp-, no line breaks")
    return name


def _one_folder(name: str) -> str:
    if "/" in name:
        raise ValueError("names one folder: no /")
    return _inside_workspace(name)


FolderName = Annotated[str, AfterValidator(_one_folder)]
FolderPath = Annotated[str, AfterValidator(_inside_workspace)]


class CheckpointConfig(Section):
    """When the state of the run is saved."""

    every: int = how(100, "Steps between two checkpoints; one more at the end. 0 saves none.", unit="steps", ge=0)
    keep: int = how(2, "Newest checkpoints that are kept; 0 keeps all.", ge=0)
    async_: bool = how(
        False,
        "Whether training goes on while a checkpoint is written, for one copy of the state in the host's memory.",
        alias="async",
    )
    load: str | None = how(
        None,
        "Where a new run takes its first weights from: a run directory, one of its step folders, or a Hugging Face folder with "
        "safetensors; weights only, the optimizer and the schedule start anew. The weights count as what, their place does not.",
        min_length=1,
    )
    load_digest: str | None = what(
        None, "Names the weights of checkpoint.load; filled in at the first start, and held against them if given."
    )


class LoggingConfig(Section):
    """What is written down, and how often."""

    every: int = how(1, "Steps between two lines of metrics.", unit="steps", gt=0)
    level: Literal["debug", "info", "warning", "error"] = how("info", "The least serious message that is logged.")
    tensorboard: bool = how(True, "Whether metrics are written for TensorBoard too.")


class Config(Section):
    """Everything a run is made of."""

    work_group: FolderName = how("primus", "First folder under the workspace, to tell teams apart.")
    user_name: FolderName = how(REQUIRED, "Second folder; the user's login by default.")
    exp_name: FolderPath | None = how(None, "Third folder, the run's name; None makes a unique readable one.")
    workspace: str = how("output", "Folder that holds all runs.", min_length=1)
    model: ModelConfig = what(REQUIRED, "The model.")
    training: TrainingConfig = what(REQUIRED, "How long and on how much at a time.")
    optimizer: OptimizerConfig = what(REQUIRED, "The optimizer and its schedule.")
    precision: PrecisionConfig = what(REQUIRED, "Number formats.")
    data: DataConfig = what(REQUIRED, "Where the tokens come from.")
    parallel: ParallelConfig = how(REQUIRED, "The layout.")
    backend: BackendConfig = how(REQUIRED, "The engine that trains.")
    cluster: ClusterConfig = how(REQUIRED, "The machines.")
    hardware: HardwareConfig = how(REQUIRED, "The kind of device.")
    checkpoint: CheckpointConfig = how(REQUIRED, "When the state is saved.")
    logging: LoggingConfig = how(REQUIRED, "What is written down.")
    plan: PlanConfig = how(PlanConfig(), "What the estimates assume.")
