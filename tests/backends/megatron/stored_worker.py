"""Reads folders that convert has written with megatron.core.dist_checkpointing, as Megatron itself does, and computes logits.

One process of its own, since Megatron's corrections for a CPU hold for the whole process. Arguments: a file with token ids [batch, length],
then pairs of a folder and the file that logits [batch, length, vocabulary] go to. What is wrong is printed and ends it with 1.
"""

import sys
import tempfile
from pathlib import Path

import torch

from primus_app.backends.base import load_backend
from primus_app.backends.hf_weights import model_of
from primus_app.backends.patches import apply_patches
from primus_app.config.schema import Config
from primus_app.plan.plan import make_plan

SECTIONS = ("training", "optimizer", "precision", "data", "parallel", "backend", "cluster", "hardware", "logging", "checkpoint")


def logits_of(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    from megatron.core import dist_checkpointing

    from primus_app.backends.megatron.model import build_chunks, transformer_config
    from primus_app.backends.megatron.translate import transformer_settings

    sections = {name: {} for name in SECTIONS} | {"backend": {"name": "megatron"}, "precision": {"compute": "fp32"}}
    place = {"user_name": "ada", "exp_name": "logits", "workspace": str(folder)}
    config = Config.model_validate({**place, **sections, "model": model_of(folder, "test").model_dump()})
    plan = make_plan(config, local_devices=1)
    assert plan.mesh is not None
    settings = transformer_settings(config, plan.mesh, plan.stages, cpu=True, engine=False)
    [model] = build_chunks(transformer_config(settings), config.model, tokens.shape[1], engine=False, document_mask=False)
    wanted = model.sharded_state_dict(metadata=dist_checkpointing.load_content_metadata(str(folder)))
    wanted = {name: entry for name, entry in wanted.items() if not name.endswith("_extra_state")}
    # Megatron calls missing what the checkpoint has and the model does not ask for: here norms by their other name.
    loaded, missing, unexpected = dist_checkpointing.load(wanted, str(folder), strict="return_all")
    assert not unexpected, unexpected
    assert all("norm" in name for name in missing), missing
    model.load_state_dict({name: value for name, value in loaded.items() if name != "content_metadata"}, strict=False)
    positions = torch.arange(tokens.shape[1]).expand_as(tokens).contiguous()
    with torch.no_grad():
        found: torch.Tensor = model.eval()(tokens, positions, None)
    return found


def main() -> None:
    tokens_file, *pairs = sys.argv[1:]
    tokens = torch.load(tokens_file)
    apply_patches("auto", load_backend("megatron").patches())
    torch.compiler.set_stance("force_eager")  # As a run on a CPU has it.
    from megatron.core import parallel_state, tensor_parallel

    with tempfile.TemporaryDirectory() as meeting:
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}/meet", rank=0, world_size=1)
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
        tensor_parallel.model_parallel_cuda_manual_seed(1)
        for folder, file in zip(pairs[::2], pairs[1::2], strict=True):
            torch.save(logits_of(Path(folder), tokens), file)
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
