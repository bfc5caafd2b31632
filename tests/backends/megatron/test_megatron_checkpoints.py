"""Saving: no parameter is passed over, and a writer does not outlive a training that has failed."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

ABORTED = """
import tempfile, time, torch
from pathlib import Path
from primus_app.backends.base import load_backend
from primus_app.backends.patches import apply_patches
apply_patches("auto", load_backend("megatron").patches())
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from primus_app.backends.megatron.checkpoints import Checkpoints
with tempfile.TemporaryDirectory() as folder:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
    found = Checkpoints(Path(folder), [], [], None, keep=0, in_background=True, on_saved=print)
    found._queue.schedule_async_request(AsyncRequest(time.sleep, (3600,), []))
    found._under_way = 1
    [call] = found._queue.async_calls
    writer = call.async_caller.process
    assert writer.is_alive()
    found.close()
    writer.join(15)
    assert writer.exitcode == -9, writer.exitcode
"""


@pytest.mark.slow
def test_a_writer_is_ended_with_a_failed_training() -> None:
    """Megatron's own queue with a writer that would take an hour; Python waits for its children before it ends."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", ABORTED], check=True, timeout=120)


def test_a_parameter_that_no_optimizer_moves_is_told() -> None:
    import torch

    from primus_app.backends.megatron.optimizer import gather_states
    from primus_app.backends.megatron.weights import LocalWeight

    optimizer = SimpleNamespace(chained_optimizers=[])
    frozen = LocalWeight("decoder.final_layernorm.weight", torch.nn.Parameter(torch.zeros(2)), (), slice(0))
    with pytest.raises(RuntimeError, match=r"no optimizer moves decoder\.final_layernorm\.weight"):
        gather_states(optimizer, [frozen], {})
    bias = LocalWeight("decoder.layers.0.mlp.router.expert_bias", torch.zeros(2), (), slice(0))
    gather_states(optimizer, [bias], {})
