"""Where Megatron-LM's trainer hands over to this program: weights at its start, the numbers of each step, evaluations."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from primus_app.backends.megatron.device import ON_CPU, on_cpu
from primus_app.backends.patches import Patch

UPSTREAM = "Megatron-LM 0.17"
TRAINING = "megatron.training.training"
HOSTED = "backend.runner=pretrain"
START_ID = "megatron-pretrain-start"
STEP_ID = "megatron-pretrain-step"
EVALUATION_ID = "megatron-pretrain-evaluation"
HELPERS_ID = "megatron-pretrain-helpers"
DEVICE_ID = "megatron-pretrain-cpu-device"


class Host(Protocol):
    """What the trainer is hosted by."""

    def begin(self, model: list[Any], optimizer: Any, scheduler: Any) -> None:
        """Model, optimizer and schedule are built; no step is trained yet."""
        ...

    def stepped(self, step: int, losses: dict[str, Any], norm: Any) -> None:
        """``step`` is trained, with the means over its global batch, which only the last stage knows, and the gradients' norm."""
        ...

    def evaluate(self, step: int) -> None:
        """It is time for an evaluation, or training has ended."""
        ...


class Hosting:
    """Whether this process hosts the trainer, and as what."""

    wanted: bool = False
    host: Host | None = None


def _host() -> Host:
    assert Hosting.host is not None
    return Hosting.host


def is_hosted() -> bool:
    """Whether this rank trains with Megatron-LM's own trainer."""
    return Hosting.wanted


def _replace(patch_id: str, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Put ``make(upstream)`` where the trainer has the function ``name``."""
    module = importlib.import_module(TRAINING)
    upstream = getattr(module, name, None)
    if upstream is None:
        raise RuntimeError(f"{patch_id}: {TRAINING}.{name} is gone.")
    if getattr(upstream, "primus", None) == patch_id:
        return
    replacement: Any = make(upstream)
    replacement.primus = patch_id
    setattr(module, name, replacement)


def apply_start() -> None:
    """Our weights, or a checkpoint's, once everything is built."""

    def make(upstream: Any) -> Callable[..., Any]:
        def setup_model_and_optimizer(*args: Any, **kwargs: Any) -> Any:
            model, optimizer, scheduler = upstream(*args, **kwargs)
            _host().begin(model, optimizer, scheduler)
            return model, optimizer, scheduler

        return setup_model_and_optimizer

    _replace(START_ID, "setup_model_and_optimizer", make)


def apply_step() -> None:
    """The step's own numbers go to our records; upstream prints means since its last line, which after a start are of two steps."""

    def make(upstream: Any) -> Callable[..., Any]:
        def training_log(
            loss_dict: Any, total_loss_dict: Any, learning_rate: Any, iteration: int, loss_scale: Any, report_memory_flag: Any,
            skipped_iter: Any, grad_norm: Any, *rest: Any, **named: Any,
        ) -> Any:  # fmt: skip
            _host().stepped(iteration, loss_dict, grad_norm)
            return report_memory_flag

        return training_log

    _replace(STEP_ID, "training_log", make)


def apply_evaluation() -> None:
    """Each evaluation reads the same batches, and the last step is evaluated once; upstream reads on, and evaluates it twice."""

    def make(upstream: Any) -> Callable[..., Any]:
        def evaluate_and_print_results(
            prefix: Any, forward_step_func: Any, data_iterator: Any, model: Any, iteration: int, *rest: Any, **named: Any
        ) -> None:
            _host().evaluate(iteration)

        return evaluate_and_print_results

    _replace(EVALUATION_ID, "evaluate_and_print_results", make)


def helpers_are_needed() -> bool:
    """Whether the trainer would compile a helper of its data sets where their sources are not: in a wheel."""
    return is_hosted() and not (Path(importlib.import_module("megatron.core.datasets.utils").__file__ or "").parent / "Makefile").is_file()


def apply_helpers() -> None:
    """Nothing is compiled: our samples need no helper."""
    module = importlib.import_module("megatron.core.datasets.utils")
    if not hasattr(module, "compile_helpers"):
        raise RuntimeError(f"{HELPERS_ID}: megatron.core.datasets.utils.compile_helpers is gone.")
    module.__dict__["compile_helpers"] = lambda: None


def hosted_on_cpu() -> bool:
    """Whether the trainer is to run where there is no accelerator."""
    return is_hosted() and on_cpu()


def apply_device() -> None:
    """One device that is there, and is asked for its kind and its memory."""
    import torch

    names = ("is_available", "device_count", "set_device", "get_device_properties", "empty_cache", "is_current_stream_capturing")
    if missing := [name for name in names if not hasattr(torch.cuda, name)]:
        raise RuntimeError(f"{DEVICE_ID}: torch.cuda.{missing[0]} is gone, which Megatron-LM used to call.")
    torch.cuda.__dict__.update(
        {
            "_primus_cpu": True,
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "set_device": lambda device: None,
            "get_device_properties": lambda device=None: _Properties(),
            "empty_cache": lambda: None,
            "is_current_stream_capturing": lambda: False,
        }
    )


class _Properties:
    """Of a device that nothing special is known of; Megatron-LM asks for its generation."""

    major, minor, name, total_memory, multi_processor_count = 8, 0, "cpu", 0, 1


HOOK_IDS = (START_ID, STEP_ID, EVALUATION_ID)
"""Without these the trainer would train other weights, and tell nobody."""


def _hook(patch_id: str, reason: str, name: str, apply: Callable[[], None]) -> Patch:
    return Patch(patch_id, reason, UPSTREAM, f"{TRAINING}.{name}", HOSTED, is_hosted, apply)


PRETRAIN_PATCHES: tuple[Patch, ...] = (
    Patch(
        DEVICE_ID,
        "Megatron-LM's trainer refuses to start without cuda, and asks it for its kind.",
        UPSTREAM,
        "torch.cuda.is_available, device_count, set_device, get_device_properties, empty_cache, is_current_stream_capturing",
        f"{HOSTED}, and {ON_CPU}",
        hosted_on_cpu,
        apply_device,
    ),
    Patch(
        HELPERS_ID,
        "The trainer compiles a helper of data sets that are not ours, and ends the process where a wheel has no sources of it.",
        UPSTREAM,
        "megatron.core.datasets.utils.compile_helpers",
        f"{HOSTED}, and a megatron without that Makefile",
        helpers_are_needed,
        apply_helpers,
    ),
    _hook(
        START_ID,
        "Our weights and their float32 copies, or a checkpoint's, go in once the optimizer is built; the trainer has no call for it.",
        "setup_model_and_optimizer",
        apply_start,
    ),
    _hook(
        STEP_ID,
        "The trainer gives the numbers of a step to its own log alone, as means since the last line: after a start the mean of two steps.",
        "training_log",
        apply_step,
    ),
    _hook(
        EVALUATION_ID,
        "The trainer's evaluations read on in the split, so that no two are of the same batches, and the last step is evaluated twice.",
        "evaluate_and_print_results",
        apply_evaluation,
    ),
)
