"""Counts what layers of Megatron's own modules keep for the backward pass, on a CPU.

One process of its own, since Megatron's corrections for a CPU hold for the whole process. Arguments: a file of cases, each
{"model": …, "compute": …, "recompute": …, "batch": …, "seq_len": …}, and the file that the bytes of each layer of each case go to.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from primus_app.backends.base import load_backend
from primus_app.backends.patches import apply_patches
from primus_app.config.schema import Config
from primus_app.plan.plan import make_plan

SECTIONS = ("optimizer", "data", "parallel", "backend", "cluster", "hardware", "logging", "checkpoint")


class Kept:
    """Bytes of all storages that autograd keeps of the modules it is put on, each storage once, without weights."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._weights = {weight.untyped_storage().data_ptr() for weight in module.parameters()}
        self._alive: dict[int, torch.Tensor] = {}

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._weights:
            self._alive[storage.data_ptr()] = tensor
        return tensor

    @property
    def bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self._alive.values())


def kept_by_layers(case: dict[str, Any]) -> list[int]:
    from primus_app.backends.megatron.model import build_chunks, transformer_config
    from primus_app.backends.megatron.translate import transformer_settings

    compute, length = case["compute"], case["seq_len"]
    sections: dict[str, Any] = {name: {} for name in SECTIONS} | {"backend": {"name": "megatron"}, "precision": {"compute": compute}}
    training = {"seq_len": length, "recompute": case["recompute"]}
    place = {"user_name": "ada", "exp_name": "kept", "workspace": "nowhere"}
    config = Config.model_validate({**place, **sections, "training": training, "model": case["model"]})
    plan = make_plan(config, local_devices=1)
    assert plan.mesh is not None
    settings = transformer_settings(config, plan.mesh, plan.stages, cpu=True, engine=False)
    [model] = build_chunks(transformer_config(settings), config.model, length, engine=False, document_mask=False)
    model = model.bfloat16() if compute == "bf16" else model
    counted = [_count(layer) for layer in model.train().decoder.layers]
    tokens = torch.randint(0, config.model.vocab_size, (case["batch"], length))
    model(tokens, torch.arange(length).expand_as(tokens).contiguous(), None)
    return [kept.bytes for kept in counted]


def _count(layer: torch.nn.Module) -> Kept:
    kept = Kept(layer)
    hooks = torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda tensor: tensor)
    layer.register_forward_pre_hook(lambda *_: hooks.__enter__())
    layer.register_forward_hook(lambda *_: hooks.__exit__())
    return kept


def main() -> None:
    cases, found = (Path(argument) for argument in sys.argv[1:])
    apply_patches("auto", load_backend("megatron").patches())
    torch.compiler.set_stance("force_eager")  # As a run on a CPU has it.
    from megatron.core import parallel_state, tensor_parallel

    with tempfile.TemporaryDirectory() as meeting:
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}/meet", rank=0, world_size=1)
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
        tensor_parallel.model_parallel_cuda_manual_seed(1)
        found.write_text(json.dumps([kept_by_layers(case) for case in json.loads(cases.read_text())]))
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
