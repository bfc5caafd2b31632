"""The options of torchtitan 0.3.0 that may be passed through: how a run is carried out, never what it computes."""

from typing import Literal

from primus_app.backends.native.options import Option

PROFILING = ("profiling",)
SNAPSHOT = ("accelerator", "snapshot")

OPTIONS: dict[str, Option] = {
    "profiler.enable_profiling": Option(bool, "Whether torch's profiler writes traces.", ("profile_window",)),
    "profiler.save_traces_folder": Option(str, "Folder of the traces, under the run directory.", ("inside", *PROFILING)),
    "profiler.profile_freq": Option(int, "Steps from one trace to the next.", ("above_0", *PROFILING)),
    "profiler.profiler_active": Option(int, "Steps that a trace holds.", ("above_0", *PROFILING)),
    "profiler.profiler_warmup": Option(int, "Steps before a trace in which the profiler only warms up.", ("from_0", *PROFILING)),
    "profiler.profiler_repeat": Option(int | None, "How many traces; null is until the end.", PROFILING),
    "profiler.profiler_skip_first": Option(int | None, "Steps before the first cycle.", PROFILING),
    "profiler.profiler_skip_first_wait": Option(int | None, "1 leaves out the wait of the first cycle.", PROFILING),
    "profiler.enable_memory_snapshot": Option(bool, "Whether snapshots of the device's memory are written.", ("accelerator",)),
    "profiler.memory_snapshot_freq": Option(int | None, "Steps from one snapshot to the next; null is profile_freq.", SNAPSHOT),
    "profiler.save_memory_snapshot_folder": Option(str, "Folder of the snapshots, under the run directory.", ("inside", *SNAPSHOT)),
    "profiler.memory_snapshot_max_entries": Option(int, "Most events that a snapshot holds.", ("above_0", *SNAPSHOT)),
    "optimizer.implementation": Option(
        Literal["for-loop", "foreach", "fused", "fused_opt_states_bf16"],
        "How AdamW goes over the tensors: the same formula, other kernels.",
        ("float32_moments",),
    ),
    "training.enable_cpu_offload": Option(
        bool, "Whether FSDP keeps weights, gradients and moments in host memory.", ("accelerator", "sharded")
    ),
    "training.disable_cuda_graphs": Option(
        bool, "false records forward and backward as a CUDA graph; it is true by default.", ("accelerator", "graphs")
    ),
    "training.gc_freq": Option(int, "Steps between two collections of Python's garbage.", ("above_0",)),
    "training.gc_debug": Option(bool, "Whether every step looks for reference cycles that hold device memory."),
    "parallelism.fsdp_reshard_after_forward": Option(
        Literal["default", "always", "never"],
        "Whether FSDP frees gathered weights after the forward pass; default does unless there is a pipeline.",
        ("sharded",),
    ),
    "parallelism.enable_fsdp_symm_mem": Option(bool, "Whether FSDP communicates through symmetric memory.", ("accelerator", "sharded")),
    "parallelism.spmd_backend": Option(
        Literal["partial_dtensor", "full_dtensor", "spmd_types"],
        "How TorchTitan describes sharded tensors; partial_dtensor by default.",
        ("spmd",),
    ),
    "parallelism.context_parallel_load_balancer": Option(
        str | None, "How cp divides a sequence: headtail, ptrr, or null for one piece after the other.", ("context", "balancer")
    ),
    "checkpoint.enable_first_step_checkpoint": Option(bool, "Whether a checkpoint is saved after the first step too.", ("saving",)),
    "activation_checkpoint.preserve_rng_state": Option(bool, "Whether recomputation gets the same random numbers.", ("recompute",)),
    "activation_checkpoint.determinism_check": Option(
        str, "default checks the shapes of what is recomputed; none does not.", ("recompute", "determinism")
    ),
    "activation_checkpoint.debug": Option(bool, "Whether recomputation records what it does, at a cost.", ("recompute",)),
    "activation_checkpoint.force_recompute_mm_shapes_by_fqns": Option(
        list[str], "Matrix products that training.recompute=selective always computes again, by the names of modules.", ("selective",)
    ),
    "activation_checkpoint.memory_budget": Option(
        float, "0 to 1: the compiler chooses what is computed again, to keep this share of the activations.", ("budget", "share")
    ),
    "activation_checkpoint.visualize_memory_budget_pareto": Option(
        bool, "Whether a picture of time against memory is drawn into memory_budget_pareto/.", ("budget", "budget_given")
    ),
    "compile.enable": Option(bool, "Whether torch.compile compiles the transformer blocks and the loss."),
    "compile.components": Option(list[str], "What is compiled: model, loss, or both.", ("compiled", "components")),
    "compile.backend": Option(str, "The compiler of torch.compile: inductor, aot_eager, eager …", ("compiled",)),
    "compile.enable_async_tensor_parallel": Option(
        bool, "Whether the compiler overlaps tensor-parallel communication with matrix products.", ("accelerator", "tensor", "compiled")
    ),
    "comm.init_timeout_seconds": Option(int, "Seconds that a collective may take until the first step is done.", ("above_0",)),
    "comm.train_timeout_seconds": Option(int, "Seconds that a collective may take after the first step.", ("above_0",)),
    "comm.trace_buf_size": Option(int, "Events that NCCL's or RCCL's flight recorder keeps; 0 records none.", ("accelerator", "from_0")),
    "comm.mode": Option(
        Literal["default", "fake_backend", "local_tensor", "torchcomms"],
        "torchcomms communicates through that package.",
        ("accelerator", "real_collectives"),
    ),
    "debug.deterministic_warn_only": Option(bool, "Whether an operation without a deterministic kernel only warns.", ("deterministic",)),
    "debug.detect_anomaly": Option(bool, "Whether a failing backward pass says which forward operation it belongs to; slow."),
    "debug.spmd_typechecking": Option(bool, "Whether the types of sharded tensors are checked.", ("spmd_types",)),
    "loss.num_chunks": Option(int, "Pieces in which logits and loss are computed, to save memory.", ("above_0", "chunks")),
}
"""By dotted name. A test holds names and annotations against the installed torchtitan."""
