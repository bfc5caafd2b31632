"""What a process needs beside its tensors; constants with their origin."""

from primus_app.plan.memory.arithmetic import choose
from primus_app.plan.workload import Layout, Number, Workload

MIB = 2**20

WORKSPACE = 64 * MIB
"""Work space of matrix products that torch's allocator counts: 32 MiB of torch's cuBLAS, as cuBLAS recommends for Hopper
(cublasSetWorkspace; pytorch/pytorch, pull request 120925), assumed for all other devices too, and 32 MiB of Transformer Engine's
(pytorch/module/base.py)."""

FRAGMENTATION = 0.05
"""Part of the allocated bytes that torch's allocator reserves in vain: assumed first; 25 runs publish both, and have 4.8 % on average."""

CONTEXT = 600 * MIB
"""CUDA or HIP context with loaded kernels, outside torch's allocator: assumed, from experience, as no run publishes it."""

COMMUNICATOR = 160 * MIB
"""Buffers of one NCCL communicator: a channel has 4 MiB (NCCL_BUFFSIZE) to send and as much to receive, and small ones of its other
protocols (NVIDIA/nccl, issues 391 and 1450). Its 16 channels are assumed: the library chooses by device and network."""


PROCESS = {"torchtitan": 575 * MIB, "megatron": 480 * MIB}
"""Resident memory of a training process on a CPU before its model: Python, torch and the engine, as a run of a model of 3 MB shows it."""

HOLES = {"torchtitan": 0.35, "megatron": 0.6}
"""On a CPU, part of what comes and goes within a step that glibc's malloc holds in vain: blocks below 32 MiB lie in one heap, in whose
holes those of the next micro batch do not all fit. Means of models of 1 to 78 million parameters, between 0.2 and 0.9: the shapes decide.
With MALLOC_MMAP_THRESHOLD_ at 256 KiB there is none of it, and a step takes a tenth longer."""


def device_bytes(workload: Workload, layout: Layout) -> Number:
    """Bytes outside torch's allocator: on a device the context, and a communicator for each kind of parallelism that is used."""
    if not workload.fused:
        return PROCESS[workload.engine] + 0 * layout.tp
    groups = 1 * (layout.tp > 1) + 1 * (layout.pp > 1) + 1 * (layout.dp * layout.cp > 1) + 1 * (layout.ep > 1)
    return CONTEXT + COMMUNICATOR * groups


def workspace_bytes(workload: Workload, layout: Layout) -> Number:
    """Bytes of work spaces, which count as allocated."""
    return choose(bool(workload.fused), WORKSPACE, 0) + 0 * layout.tp


def reserved_in_vain(workload: Workload, state: Number, passing: Number) -> Number:
    """Bytes that the allocator holds at the peak and nobody uses.

    Args:
        state: bytes that live from step to step: weights, gradients, optimizer states.
        passing: those of one step's passes: activations and what is there for a moment.
    """
    return ((state + passing) * FRAGMENTATION if workload.fused else passing * HOLES[workload.engine]) // 1
