"""The memory of each pipeline rank against what a device has, and the verdict."""

from dataclasses import dataclass
from typing import Literal

from primus_app.config.schema import Config
from primus_app.plan.batch import Batch
from primus_app.plan.estimate.subject import layout_of, workload_of
from primus_app.plan.memory.stage_memory import StageMemory, stage_memory
from primus_app.plan.mesh import Mesh

Verdict = Literal["fits", "tight", "does not fit", "unknown"]

TIGHT = 0.8
"""Of the device's memory, above which a verdict is tight."""

WITHHELD = 0.011
"""Of the memory as sold that no program gets: an H100 of 80 GB has 79.1 GiB for torch. What makers call GB of HBM are 2^30 bytes."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes.

    Attributes:
        stages: of a rank of each pipeline stage, in order.
        available: what the ranks of ``counted`` stages share: one device's memory, or on a CPU the whole machine's. None: not known.
        needed: what is held against it: the fullest rank, or on a CPU all ranks together.
        on_cpu: whether ranks are processes that share one memory.
    """

    stages: tuple[StageMemory, ...]
    available: float | None
    needed: float
    on_cpu: bool

    @property
    def worst(self) -> int:
        """The pipeline rank that needs most."""
        return max(range(len(self.stages)), key=lambda stage: float(self.stages[stage].total))

    @property
    def verdict(self) -> Verdict:
        """Above TIGHT of what is there it is tight."""
        if self.available is None:
            return "unknown"
        if self.needed > self.available:
            return "does not fit"
        return "tight" if self.needed > TIGHT * self.available else "fits"


def estimate_memory(config: Config, mesh: Mesh, batch: Batch, local_bytes: int | None = None) -> MemoryEstimate:
    """``local_bytes`` is this machine's memory (of a device, or on a CPU all of it), which counts where ``hardware`` gives none."""
    workload, layout = workload_of(config), layout_of(config, mesh, batch)
    stages = tuple(stage_memory(workload, layout, stage) for stage in range(mesh.pp))
    sold = config.hardware.memory_gb
    if config.hardware.vendor != "cpu":
        needed = max(float(stage.total) for stage in stages)
        available = sold * (1 - WITHHELD) * 2**30 if sold is not None else local_bytes
        return MemoryEstimate(stages, available, needed, on_cpu=False)
    ranks = mesh.world // mesh.pp
    needed = sum(ranks * float(stage.total) for stage in stages)
    return MemoryEstimate(stages, sold * 2**30 if sold is not None else local_bytes, needed, on_cpu=True)
