"""Trains real ranks and writes down what they allocate: weights, gradients, optimizer states, what autograd keeps, peaks.

One process, forked for each rank. Arguments: a file with a list of {"engine": ..., "overrides": [...]}, and a folder that gets a
``<case>-<rank>.json`` from each rank.
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.system import forge

MEASURED_STEP = 2
"""By then the optimizer has its moments, and gradients of the step before are there to be freed."""


class Kept:
    """Bytes of all storages that autograd keeps, each once, without weights."""

    def __init__(self) -> None:
        self._alive: dict[int, torch.Tensor] = {}

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter) and not isinstance(tensor._base, torch.nn.Parameter):
            self._alive[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    @property
    def bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self._alive.values())


def local(tensor: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return found


def total(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in {id(tensor): local(tensor) for tensor in tensors}.values())


def state_of(parts: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, int]:
    """Weights, gradients and what the optimizers hold beside them; counters of steps, which are single numbers, not."""
    weights = {id(weight): weight for part in parts for weight in part.parameters()}
    own = {local(weight).untyped_storage().data_ptr() for weight in weights.values()}
    held = []
    for optimizer in optimizers:
        held += [param for group in optimizer.param_groups for param in group["params"]]
        held += [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value) and value.ndim]
    gradients = [getattr(weight, "main_grad", None) if weight.grad is None else weight.grad for weight in weights.values()]
    return {
        "weights": total(weights.values()),
        "gradients": total(gradient for gradient in gradients if gradient is not None),
        "optimizer": total(each for each in held if local(each).untyped_storage().data_ptr() not in own),
    }


def alive() -> int:
    """Bytes of all tensors that Python knows, each storage once."""
    import gc

    gc.collect()
    tensors = [each for each in gc.get_objects() if isinstance(each, torch.Tensor) and each.device.type == "cpu"]
    tensors += [each.grad for each in tensors if each.is_leaf and each.grad is not None]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in map(local, tensors)}.values())


def peak_beyond(profile: Any) -> int:
    """The most bytes of tensors that lived at once, beyond those that lived when profiling began."""
    from torch._C._profiler import _EventType

    events: list[tuple[int, int]] = []

    def walk(event: Any) -> None:
        if event.typed[0] == _EventType.Allocation:
            events.append((event.start_time_ns, event.typed[1].alloc_size))
        for child in event.children:
            walk(child)

    for event in profile.profiler.kineto_results.experimental_event_tree():
        walk(event)
    now = most = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        now += size
        most = max(most, now)
    return most


Begin = Callable[[Any, dict[str, Any]], None]
"""Called with a trainer and what is found, before the step that is measured."""


def measured(step: Callable[..., Any], begin: Begin, state: Callable[[Any], dict[str, int]], out: Path) -> Callable[..., Any]:
    """``step`` of a trainer, one of which is measured; what is found is written to ``out``."""
    found: dict[str, Any] = {"steps": 0}

    def run(self: Any, *arguments: Any) -> Any:
        found["steps"] += 1
        if found["steps"] != MEASURED_STEP:
            answer = step(self, *arguments)
        else:
            begin(self, found)
            found["before"] = alive()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
                answer = step(self, *arguments)
            found["peak"] = found["before"] + peak_beyond(profile)
            found.update(state(self))
        out.write_text(json.dumps(found))
        return answer

    return run


def watch_forward(module: torch.nn.Module, found: dict[str, Any]) -> None:
    """Count what autograd keeps of the whole model in its next forward pass; of one that no ranks share."""
    if torch.distributed.get_world_size() > 1:
        return
    kept = Kept()
    hooks = torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda tensor: tensor)

    def after(*unused: Any) -> None:
        hooks.__exit__()
        found["kept"] = kept.bytes
        kept._alive.clear()
        for handle in handles:
            handle.remove()

    handles = [module.register_forward_pre_hook(lambda *_: hooks.__enter__()), module.register_forward_hook(after)]


def install_megatron(out: Path) -> None:
    from primus_app.backends.megatron.trainer import Trainer

    def optimizers(trainer: Any) -> list[Any]:
        parts = getattr(trainer.optimizer, "chained_optimizers", [trainer.optimizer])
        return [part.optimizer for part in parts if part.optimizer is not None]

    Trainer._train_step = measured(  # type: ignore[method-assign]
        Trainer._train_step,
        lambda trainer, found: watch_forward(trainer.chunks[0], found),
        lambda trainer: state_of(trainer.chunks, optimizers(trainer)),
        out,
    )


def install_torchtitan(out: Path) -> None:
    from primus_app.backends.torchtitan.trainer import RunTrainer

    def begin(trainer: Any, found: dict[str, Any]) -> None:
        trainer.optimizers.zero_grad()
        watch_forward(trainer.model_parts[0], found)

    RunTrainer.train_step = measured(  # type: ignore[method-assign]
        RunTrainer.train_step, begin, lambda trainer: state_of(trainer.model_parts, trainer.optimizers.optimizers), out
    )


def watch(engine: str, case: int, folder: Path) -> None:
    """From now on ranks of ``case`` write down what they find, once their corrections are in."""
    import os

    from primus_app.launch import rank

    def apply(*arguments: Any) -> Any:
        applied = apply_patches(*arguments)
        out = folder / f"{case}-{os.environ['RANK']}.json"
        (install_megatron if engine == "megatron" else install_torchtitan)(out)
        return applied

    rank.apply_patches = apply  # type: ignore[attr-defined]


def main() -> None:
    cases, folder = (Path(argument) for argument in sys.argv[1:])
    forge.import_engines()
    forge.training.run_local = forge.run_forked
    for case, asked in enumerate(json.loads(cases.read_text())):
        watch(asked["engine"], case, folder)
        place = [f"workspace='{folder}'", f"exp_name=case{case}", f"backend={asked['engine']}"]
        answer = forge.answer([*asked["overrides"], *place])
        logs = [log.read_text()[-3000:] for log in folder.glob(f"**/case{case}/attempts/*/forged-*.log")] if answer["code"] else []
        assert answer["code"] == 0, (answer["said"], logs)


if __name__ == "__main__":
    from primus_app.backends.patches import apply_patches

    main()
