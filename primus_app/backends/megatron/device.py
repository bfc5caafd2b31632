"""Lets megatron-core run on a CPU: its own code asks for cuda by name everywhere and has no option for another device."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from primus_app.backends.megatron.upstream import upstream
from primus_app.backends.megatron.versions import UPSTREAM
from primus_app.backends.patches import Patch

ON_CPU = "no accelerator that can train"


def on_cpu() -> bool:
    """Whether there is no accelerator that Megatron could train on; it knows no device but torch.cuda (ROCm's name for its own too)."""
    import torch

    return getattr(torch.cuda, "_primus_cpu", False) or not torch.cuda.is_available()


def engine_imports() -> bool:
    """Whether Transformer Engine's layers are used: megatron-core itself could import it, and there is an accelerator for it."""
    return not on_cpu() and bool(upstream("megatron.core.extensions.transformer_engine").HAVE_TE)


class NoStream:
    """A stream and an event of a device that has none: everything is done when its call returns."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers = {"query": True, "elapsed_time": 0.0, "record_event": self}
        return lambda *args, **kwargs: answers.get(name)

    def __enter__(self) -> "NoStream":
        return self

    def __exit__(self, *unused: object) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoStream)

    def __hash__(self) -> int:
        return 0


def apply_cpu_device() -> None:
    """Enter, for good and in this thread, a mode that turns cuda into the CPU, and give torch.cuda the calls that Megatron makes."""
    import torch

    if getattr(torch.cuda, "_primus_cpu", False):
        return
    cpu = torch.device("cpu")
    names = ("current_device", "synchronize", "current_stream", "default_stream", "stream", "Stream", "Event", "manual_seed")
    if missing := [name for name in names if not hasattr(torch.cuda, name)]:
        raise RuntimeError(f"{CPU_DEVICE_ID}: torch.cuda.{missing[0]} is gone, which megatron-core used to call.")
    replaced: dict[str, Any] = {
        "_primus_cpu": True,
        "current_device": lambda: cpu,
        "synchronize": lambda device=None: None,
        "current_stream": lambda device=None: NoStream(),
        "default_stream": lambda device=None: NoStream(),
        "stream": lambda stream=None: contextlib.nullcontext(),
        "Stream": NoStream,
        "Event": NoStream,
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
        "manual_seed": lambda seed: torch.default_generator.manual_seed(seed) and None,
    }
    torch.cuda.__dict__.update(replaced)
    torch.cuda.nvtx.range_push = lambda *args, **kwargs: 0
    torch.cuda.nvtx.range_pop = lambda *args, **kwargs: 0
    _mode_of_cpu()().__enter__()


def _mode_of_cpu() -> type:
    """The mode as a class, made here since this module imports no torch."""
    import torch
    from torch.overrides import TorchFunctionMode

    cpu = torch.device("cpu")
    cuda, kind, to = torch.Tensor.cuda, torch.Tensor.type, torch.Tensor.to

    def is_cuda(device: object) -> bool:
        return device.type == "cuda" if isinstance(device, torch.device) else isinstance(device, str) and device.startswith("cuda")

    class CudaToCpu(TorchFunctionMode):
        """Devices of cuda become the CPU, and tensors call themselves cuda's, which Megatron's clipping insists on."""

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function is cuda:
                return args[0]
            if function is kind and len(args) == 1 and not kwargs:
                return str(function(*args)).replace("torch.", "torch.cuda.", 1)
            if kwargs and is_cuda(kwargs.get("device")):
                kwargs = {**kwargs, "device": cpu}
            if kwargs and kwargs.get("pin_memory"):
                kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
            if function is to and len(args) > 1 and is_cuda(args[1]):
                args = (args[0], cpu, *args[2:])
            return function(*args, **kwargs)

    return CudaToCpu


def _replace(patch_id: str, module: str, name: str, replacement: Any) -> None:
    """Put ``replacement`` where ``module`` has ``name``; RuntimeError where it no longer does."""
    found = upstream(module)
    if not hasattr(found, name):
        raise RuntimeError(f"{patch_id}: {module}.{name} is gone.")
    setattr(found, name, replacement)


def apply_cpu_rng() -> None:
    """The generator of the device is the CPU's. Upstream's own calls wait in a queue for a cuda that never comes."""
    import torch

    module = "megatron.core.tensor_parallel.random"
    logging.getLogger(module).setLevel(logging.ERROR)  # It warns of a CPU generator that changes, which is the one there is.

    def set_state(new_state: torch.Tensor, device: Any = -1, graph_safe: bool = False) -> None:
        torch.set_rng_state(new_state)

    def get_state(device: Any = "cuda", clone: bool = False, graph_safe: bool = False) -> torch.Tensor:
        return torch.get_rng_state()

    _replace(CPU_RNG_ID, module, "_set_cuda_rng_state", set_state)
    _replace(CPU_RNG_ID, module, "_get_cuda_rng_state", get_state)


def apply_cpu_splits() -> None:
    """The numbers of tokens for each expert's rank as host integers, which gloo needs as much as NCCL."""
    import torch

    def to_host(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
        return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor

    _replace(CPU_SPLITS_ID, "megatron.core.transformer.moe.token_dispatcher", "maybe_move_tensor_to_cpu", to_host)


CPU_DEVICE_ID = "megatron-cpu-device"
CPU_RNG_ID = "megatron-cpu-rng"
CPU_SPLITS_ID = "megatron-cpu-expert-splits"

DEVICE_PATCHES: tuple[Patch, ...] = (
    Patch(
        id=CPU_DEVICE_ID,
        reason="megatron-core names cuda in every forward pass, buffer, schedule and clipping, and has no option for another device.",
        upstream=UPSTREAM,
        target="torch.cuda and the functions of torch that take a device",
        condition=ON_CPU,
        is_needed=on_cpu,
        apply=apply_cpu_device,
    ),
    Patch(
        id=CPU_RNG_ID,
        reason="The states of random numbers are those of cuda's generators.",
        upstream=UPSTREAM,
        target="megatron.core.tensor_parallel.random._get_cuda_rng_state and _set_cuda_rng_state",
        condition=ON_CPU,
        is_needed=on_cpu,
        apply=apply_cpu_rng,
    ),
    Patch(
        id=CPU_SPLITS_ID,
        reason="Counts of tokens become host integers only where they are on cuda.",
        upstream=UPSTREAM,
        target="megatron.core.transformer.moe.token_dispatcher.maybe_move_tensor_to_cpu",
        condition=ON_CPU,
        is_needed=on_cpu,
        apply=apply_cpu_splits,
    ),
)
"""The corrections of the device; importing them imports no torch."""
