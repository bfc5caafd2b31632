"""What a process on an accelerator needs beside its tensors; constants with their origin."""

from primus_app.plan.memory.arithmetic import choose
from primus_app.plan.workload import Layout, Number, Workload

MIB = 2**20

WORKSPACE = 64 * MIB
"""Work space of matrix products that torch's allocator counts: 32 MiB of torch's cuBLAS on Hopper and later (CUBLAS_WORKSPACE_CONFIG's
default) and 32 MiB of Transformer Engine's (pytorch/module/base.py)."""

FRAGMENTATION = 0.05
"""Part of the allocated bytes that torch's allocator reserves in vain: mean of reserved over allocated in the runs that publish both."""

CONTEXT = 600 * MIB
"""CUDA or HIP context with loaded kernels, outside torch's allocator: what nvidia-smi shows of an idle process on H100."""

COMMUNICATOR = 160 * MIB
"""Buffers of one NCCL communicator: 16 channels, each with 4 MiB (NCCL_BUFFSIZE) to send and to receive, and its protocol's small ones."""


def device_bytes(workload: Workload, layout: Layout) -> Number:
    """Bytes outside torch's allocator: the context, and a communicator for each kind of parallelism that is used."""
    if not workload.fused:
        return 0 * layout.tp
    groups = 1 * (layout.tp > 1) + 1 * (layout.pp > 1) + 1 * (layout.dp * layout.cp > 1) + 1 * (layout.ep > 1)
    return CONTEXT + COMMUNICATOR * groups


def workspace_bytes(workload: Workload, layout: Layout) -> Number:
    """Bytes of work spaces, which count as allocated."""
    return choose(bool(workload.fused), WORKSPACE, 0) + 0 * layout.tp
