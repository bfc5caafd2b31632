"""One rank of a sharded model: its seeded weights, loss and gradients against the whole model's, as JSON on rank 0.

Arguments: a JSON file with the model, the degrees of dp_shard, tp and ep, the rendezvous file, the result file.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from primus_app.backends.seeded import seeded_normal
from primus_app.backends.torchtitan.device import prepare_device
from primus_app.config.schema import ModelConfig

DRAWN: list[int] = []
"""Numbers of elements that were drawn for the weights."""

BATCH, LENGTH, SEED = 4, 32, 99


def main() -> None:
    model_file, dp_shard, tp, ep, rendezvous, result = sys.argv[1:]
    prepare_device()
    torch.compiler.set_stance("force_eager")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{rendezvous}", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    model = ModelConfig.model_validate_json(Path(model_file).read_text())
    report = compare(model, int(dp_shard), int(tp), int(ep))
    if dist.get_rank() == 0:
        Path(result).write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


def compare(model: ModelConfig, dp_shard: int, tp: int, ep: int) -> dict[str, Any]:
    whole, _ = build(model, None)
    DRAWN.clear()
    sharded, dims = build(model, (dp_shard, tp, ep))
    own = sum(local(weight).numel() for weight in sharded.parameters() if weight.ndim > 1)
    weights = dict(whole.named_parameters())
    gathered = {name: gather(weight) for name, weight in sharded.named_parameters()}
    tokens = torch.randint(0, model.vocab_size, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    expected = loss_and_backward(whole, tokens)
    share = BATCH // dp_shard
    data_rank = dims.get_mesh("fsdp").get_local_rank() if dp_shard > 1 else 0
    loss = loss_and_backward(sharded, tokens[data_rank * share : (data_rank + 1) * share])
    total = torch.tensor(loss)
    dist.all_reduce(total)
    grads = {name: gather(weight.grad) for name, weight in sharded.named_parameters()}
    norm = max(float(weight.grad.norm()) for weight in weights.values())
    return {
        "drawn_beside_own": sum(DRAWN) - own,
        "same_names": gathered.keys() == weights.keys(),
        "different_weights": [name for name, weight in weights.items() if not torch.equal(gathered[name], weight)],
        "relative_loss": abs(float(total) / tp / expected - 1),
        "relative_gradient": max(float((grads[name] - weight.grad).norm()) for name, weight in weights.items()) / norm,
    }


def counted(*arguments: Any) -> Any:
    drawn = seeded_normal(*arguments)
    DRAWN.append(drawn.size)
    return drawn


def local(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def build(model: ModelConfig, layout: tuple[int, int, int] | None) -> tuple[torch.nn.Module, Any]:
    from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed.utils import set_spmd_backend

    from primus_app.backends import weight_sources
    from primus_app.backends.torchtitan import weights
    from primus_app.backends.torchtitan.model import build_model_spec

    spec = build_model_spec(model, seq_len=LENGTH, cpu=True, compute="fp32")
    dims = None
    if layout is None:
        module = spec.model.build()
    else:
        dp_shard, tp, ep = layout
        parallelism = ParallelismConfig(
            data_parallel_shard_degree=dp_shard, tensor_parallel_degree=tp, expert_parallel_degree=ep, spmd_backend="partial_dtensor"
        )
        set_spmd_backend("partial_dtensor")
        dims = ParallelDims.from_config(parallelism, dist.get_world_size())
        spec.model.update_from_config(config=SimpleNamespace(parallelism=parallelism))
        with torch.device("meta"):
            module = spec.model.build()
        training = TrainingConfig(mixed_precision_param="float32")
        module = spec.parallelize_fn(
            module,
            parallel_dims=dims,
            training=training,
            parallelism=parallelism,
            compile_config=CompileConfig(),
            ac_config=None,
            dump_folder="",
        )
        module.to_empty(device="cpu")
        sum_gradients(module)
    module.init_states()
    assert spec.state_dict_adapter is not None
    weight_sources.seeded_normal = counted
    weights.init_seeded([module], model, SEED, spec.state_dict_adapter(spec.model, None))
    return module, dims


def sum_gradients(module: torch.nn.Module) -> None:
    from torch.distributed.fsdp import FSDPModule

    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_force_sum_reduction_for_comms(True)  # gloo has no other reduction


def loss_and_backward(module: torch.nn.Module, tokens: torch.Tensor) -> float:
    """The sum of the losses of all tokens, so that ranks' losses and gradients add up to the whole batch's."""
    positions = torch.arange(LENGTH).expand(tokens.shape[0], LENGTH).contiguous()
    logits = module(tokens[:, :-1].contiguous(), positions, module.get_attention_masks(positions))
    logits = gather(logits)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    loss.backward()
    return loss.item()


def gather(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


if __name__ == "__main__":
    main()
