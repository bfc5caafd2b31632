"""The process group of a run and Megatron's groups in it, for as long as a rank trains."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from megatron.core import parallel_state, tensor_parallel

from primus_app.backends.base import RankContext
from primus_app.backends.megatron.translate import parallel_settings
from primus_app.plan.mesh import Mesh

TIMEOUT = timedelta(minutes=60)
"""After which a collective that some rank does not come to fails; writing a checkpoint is waited for in one."""


@contextmanager
def parallel_world(mesh: Mesh, context: RankContext) -> Iterator[torch.device]:
    """Joins this rank to the others, seeds the engine's own random numbers, and yields the rank's device."""
    cpu = not torch.cuda.is_available()
    device = torch.device("cpu") if cpu else torch.device("cuda", context.local_rank)
    if not cpu:
        torch.cuda.set_device(device)
    training = context.config.training
    torch.use_deterministic_algorithms(training.deterministic)
    torch.distributed.init_process_group("gloo" if cpu else "nccl", timeout=TIMEOUT)
    parallel_state.initialize_model_parallel(**parallel_settings(mesh), create_gloo_process_groups=False)
    seed = training.seed % 2**31  # Of Megatron's generators, each of which adds its own number to it.
    torch.manual_seed(seed)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)
    yield device
    # After a clean end alone: a rank that has failed would wait here for the others, who would be blamed for it.
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()
