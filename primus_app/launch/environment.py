"""The environment variables that ranks are given, each with its reason; what the user has set wins."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from primus_app.config.schema import Config


@dataclass(frozen=True)
class Variable:
    """One variable: its value for this run, and when it is given."""

    name: str
    value: str
    reason: str
    applies: Callable[[Config], bool]


@dataclass(frozen=True)
class Given:
    """What a rank sees of one variable, and who decided it: the user or primus_app."""

    name: str
    value: str
    source: str
    reason: str


def _is_amd(config: Config) -> bool:
    return config.hardware.vendor == "amd"


def _is_amd_moe(config: Config) -> bool:
    return _is_amd(config) and config.model.moe is not None


def _is_gfx950(config: Config) -> bool:
    return config.hardware.gfx == "gfx950"


def _is_pretrain(config: Config) -> bool:
    return config.backend.name == "megatron" and config.backend.runner == "pretrain"


def _is_divided_pretrain(config: Config) -> bool:
    return _is_pretrain(config) and config.parallel.tp * config.parallel.cp > 1


def _is_deterministic(config: Config) -> bool:
    return config.backend.name == "megatron" and config.training.deterministic and config.hardware.vendor != "cpu"


def _is_deterministic_pretrain(config: Config) -> bool:
    return _is_pretrain(config) and config.training.deterministic


MEGATRON = (
    Variable("CUDA_DEVICE_MAX_CONNECTIONS", "1", "Megatron-LM's trainer insists on it under tp and cp", _is_divided_pretrain),
    Variable("NCCL_ALGO", "Ring", "Megatron-LM's trainer insists on a fixed one when deterministic", _is_deterministic_pretrain),
    Variable("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", "Transformer Engine's attention insists on it when deterministic", _is_deterministic),
    Variable("CUBLAS_WORKSPACE_CONFIG", ":4096:8", "cuBLAS gives the same sums each time with fixed workspaces only", _is_deterministic),
)
"""What Megatron and its trainer check for before they begin, or torch does later."""

ROCM = (
    Variable("HSA_NO_SCRATCH_RECLAIM", "1", "avoids scratch thrash, and a crash with experts", _is_amd),
    Variable("HSA_ENABLE_SDMA", "1", "copies run on the DMA engines", _is_amd),
    Variable("HSA_KERNARG_POOL_SIZE", "12582912", "expert kernels need a larger argument pool", _is_amd_moe),
    Variable("GPU_MAX_HW_QUEUES", "2", "stable overlap of compute and communication", _is_amd),
    Variable("TORCH_NCCL_HIGH_PRIORITY", "1", "communication streams go first", _is_amd),
    Variable("RCCL_MSCCL_ENABLE", "0", "off, as AMD's training stack has it", _is_amd),
    Variable("RCCL_MSCCLPP_ENABLE", "0", "off, as AMD's training stack has it", _is_amd),
    Variable("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "0", "off, as AMD's training stack has it", _is_amd),
    Variable("RCCL_WARP_SPEED_AUTO", "0", "NaN otherwise on MI350X and MI355X", _is_gfx950),
)
"""For AMD devices, after AMD's open training stack."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def rank_environment(config: Config, local_ranks: int, environment: Mapping[str, str] = os.environ) -> list[Given]:
    """The variables that a rank of this node gets, ``local_ranks`` of them on it."""
    given = [
        _given(variable.name, variable.value, variable.reason, environment) for variable in (*ROCM, *MEGATRON) if variable.applies(config)
    ]
    # A thread that has to wait for a core holds up all others at every barrier, at a cost of tens of times: one core stays free.
    cores = _usable_cores()
    threads = str(max(1, (cores - 1) // local_ranks))
    reason = f"{cores} cores, one left to the rest of the machine, shared by {local_ranks} ranks"
    given += [_given(name, threads, reason, environment) for name in THREADS]
    if config.cluster.nodes in (1, "auto") and Path("/sys/class/net/lo").exists():
        given.append(_given("GLOO_SOCKET_IFNAME", "lo", "one node: no network and no host name needed", environment))
    return given


def export(given: list[Given]) -> list[dict[str, str]]:
    """Set the variables in this process, whose children inherit them; returns them for the record."""
    os.environ.update({variable.name: variable.value for variable in given})
    return [asdict(variable) for variable in given]


def _given(name: str, value: str, reason: str, environment: Mapping[str, str]) -> Given:
    if name in environment:
        return Given(name, environment[name], "user", "set in the environment")
    return Given(name, value, "primus_app", reason)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform.startswith("linux") else os.cpu_count() or 1
