"""The keys of TorchTitan's job files: those of 0.2 with type and default, and the older names of the same things."""

from typing import Any, Literal

from primus_app.backends.imported.field import NAMES, Field, Size


def _section(section: str, /, **fields: tuple[Any, Any]) -> dict[str, Field]:
    return {f"{section}.{key}": Field(*value) for key, value in fields.items()}


FLAG = (bool, False)
DATALOADER = {"num_workers": (int, 0), "persistent_workers": FLAG, "pin_memory": FLAG, "prefetch_factor": (int, None)}

FIELDS: dict[str, Field] = {
    **_section("job", config_file=(str, None), dump_folder=(str, "./outputs"), description=(str, "default job")),
    **_section("job", print_config=FLAG, save_config_file=(str, None), custom_config_module=(str, "")),
    **_section("profiling", enable_profiling=FLAG, save_traces_folder=(str, "profile_traces"), profile_freq=(int, 10)),
    **_section("profiling", profiler_active=(int, 1), profiler_warmup=(int, 3)),
    **_section("profiling", enable_memory_snapshot=FLAG, save_memory_snapshot_folder=(str, "memory_snapshot")),
    **_section("metrics", log_freq=(int, 10), enable_tensorboard=FLAG, disable_color_printing=FLAG, save_tb_folder=(str, "tb")),
    **_section("metrics", save_for_all_ranks=FLAG, enable_wandb=FLAG),
    **_section("model", name=(str, "llama3"), flavor=(str, "debugmodel"), hf_assets_path=(str, None), tokenizer_path=(str, None)),
    **_section("model", converters=(NAMES, []), print_after_conversion=FLAG),
    **_section("optimizer", name=(str, "AdamW"), lr=(float, 8e-4), beta1=(float, 0.9), beta2=(float, 0.95), eps=(float, 1e-8)),
    **_section("optimizer", weight_decay=(float, 0.1), implementation=(Literal["for-loop", "foreach", "fused"], "fused")),
    **_section("optimizer", early_step_in_backward=FLAG),
    **_section("lr_scheduler", warmup_steps=(int, 200), total_steps=(int, None), decay_ratio=(float, None)),
    **_section("lr_scheduler", decay_type=(Literal["linear", "sqrt", "cosine"], "linear"), min_lr_factor=(float, 0.0)),
    **_section("training", dataset=(str, "c4_test"), dataset_path=(str, None), local_batch_size=(Size, 8), global_batch_size=(int, -1)),
    **_section("training", seq_len=(int, 2048), max_norm=(float, 1.0), steps=(int, 10000), enable_cpu_offload=FLAG),
    **_section("training", dtype=(Literal["bfloat16", "float32"], "float32")),
    **_section("training", mixed_precision_param=(Literal["bfloat16", "float32"], "bfloat16")),
    **_section("training", mixed_precision_reduce=(Literal["float32"], "float32"), gc_freq=(int, 50), gc_debug=FLAG),
    **_section("training.dataloader", **DATALOADER),
    **_section("parallelism", data_parallel_replicate_degree=(Size, 1), data_parallel_shard_degree=(int, -1)),
    **_section("parallelism", fsdp_reshard_after_forward=(Literal["default", "always", "never"], "default")),
    **_section("parallelism", tensor_parallel_degree=(Size, 1), disable_loss_parallel=FLAG, enable_async_tensor_parallel=FLAG),
    **_section("parallelism", pipeline_parallel_degree=(Size, 1), module_fqns_per_model_part=(list[list[str]], None)),
    **_section("parallelism", pipeline_parallel_first_stage_less_layers=(int, 1), pipeline_parallel_last_stage_less_layers=(int, 1)),
    **_section("parallelism", pipeline_parallel_layers_per_stage=(Size | None, None), pipeline_parallel_schedule=(str, "1F1B")),
    **_section("parallelism", pipeline_parallel_schedule_csv=(str, ""), pipeline_parallel_microbatch_size=(Size, 1)),
    **_section("parallelism", pipeline_parallel_expert_parallel_overlap=(bool, True), pipeline_parallel_split_points=(NAMES, [])),
    **_section("parallelism", context_parallel_degree=(Size, 1), context_parallel_load_balancer=(str, "headtail")),
    **_section("parallelism", context_parallel_rotate_method=(Literal["allgather", "alltoall"], "allgather")),
    **_section("parallelism", expert_parallel_degree=(Size, 1), expert_tensor_parallel_degree=(Size, 1)),
    **_section("parallelism", expert_parallel_comm_backend=(str, "standard"), enable_compiled_autograd=FLAG),
    **_section("checkpoint", enable=FLAG, folder=(str, "checkpoint"), interval=(int, 500), enable_ft_dataloader_checkpoints=(bool, True)),
    **_section("checkpoint", initial_load_path=(str, None), initial_load_model_only=(bool, True), initial_load_in_hf=FLAG),
    **_section("checkpoint", initial_load_in_hf_quantized=FLAG, last_save_model_only=(bool, True), last_save_in_hf=FLAG),
    **_section("checkpoint", export_dtype=(str, "float32"), keep_latest_k=(int, 10), load_step=(int, -1), load_only=FLAG),
    **_section("checkpoint", async_mode=(Literal["disabled", "async", "async_with_pinned_mem"], "disabled")),
    **_section("checkpoint", exclude_from_loading=(NAMES, []), enable_first_step_checkpoint=FLAG, create_seed_checkpoint=FLAG),
    **_section("activation_checkpoint", mode=(Literal["selective", "full", "memory_budget", "none"], "selective")),
    **_section("activation_checkpoint", selective_ac_option=(str | int, "2"), early_stop=FLAG, memory_budget=(float, 0.5)),
    **_section("activation_checkpoint", per_op_sac_force_recompute_mm_shapes_by_fqns=(NAMES, ["moe.router.gate"])),
    **_section("activation_checkpoint", visualize_memory_budget_pareto=FLAG, preserve_rng_state=(bool, True)),
    **_section("activation_checkpoint", determinism_check=(str, "default"), debug=FLAG),
    **_section("compile", enable=FLAG, components=(NAMES, ["model", "loss"]), backend=(str, "inductor")),
    **_section("quantize.linear.float8", enable_fsdp_float8_all_gather=FLAG, precompute_float8_dynamic_scale_for_fsdp=FLAG),
    **_section("quantize.linear.float8", recipe_name=(str, None), filter_fqns=(NAMES, []), emulate=FLAG),
    **_section("quantize.linear.float8", force_recompute_fp8_weight_in_bwd=FLAG),
    **_section("quantize.linear.mx", mxfp8_dim1_cast_kernel_choice=(str, "triton"), recipe_name=(str, ""), filter_fqns=(NAMES, [])),
    **_section("quantize.grouped_mm.float8", fqns=(NAMES, [])),
    **_section("quantize.grouped_mm.mx", recipe_name=(str, "mxfp8"), fqns=(NAMES, [])),
    **_section("comm", init_timeout_seconds=(int, 300), train_timeout_seconds=(int, 100), trace_buf_size=(int, 20000)),
    **_section("comm", save_traces_folder=(str, "comm_traces"), save_traces_file_prefix=(str, "rank_"), mode=(str, "default")),
    **_section("memory_estimation", enable=FLAG, disable_fake_mode=FLAG),
    **_section("fault_tolerance", enable=FLAG, process_group=(str, "gloo"), process_group_timeout_ms=(int, 10000), replica_id=(int, 0)),
    **_section("fault_tolerance", group_size=(int, 0), min_replica_size=(int, 1), semi_sync_method=(str, None), sync_steps=(int, 5)),
    **_section("fault_tolerance", should_quantize=FLAG, fragment_sync_delay=(int, 0), fragment_update_alpha=(float, 0.0)),
    **_section("fault_tolerance", module_fqns_per_model_fragment=(list[list[str]], []), num_fragments=(int, 1)),
    **_section("experimental", custom_import=(str, ""), custom_args_module=(str, "")),
    **_section("validation", enable=FLAG, dataset=(str, "c4_validation"), dataset_path=(str, None), local_batch_size=(Size, 8)),
    **_section("validation", seq_len=(int, 2048), freq=(int, 10), steps=(int, -1)),
    **_section("validation.dataloader", **DATALOADER),
    **_section("debug", seed=(int, None), deterministic=FLAG, deterministic_warn_only=FLAG, moe_force_load_balance=FLAG),
    # Of the first releases, and gone before 0.2.
    **_section("model", norm_type=(str, "rmsnorm")),
    **_section("job", use_for_integration_test=FLAG),
    **_section("checkpoint", interval_type=(str, "steps")),
}

OLDER_NAMES: dict[str, str] = {
    "job.print_args": "job.print_config",
    "job.custom_args_module": "experimental.custom_args_module",
    "lr_scheduler.lr_min": "lr_scheduler.min_lr_factor",
    "optimizer.fused": "optimizer.implementation",
    "training.batch_size": "training.local_batch_size",
    "training.warmup_steps": "lr_scheduler.warmup_steps",
    "training.compile": "compile.enable",
    "training.seed": "debug.seed",
    "training.deterministic": "debug.deterministic",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_shard_degree": "parallelism.data_parallel_shard_degree",
    "training.data_parallel_replicate_degree": "parallelism.data_parallel_replicate_degree",
    "training.tensor_parallel_degree": "parallelism.tensor_parallel_degree",
    "training.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "training.disable_loss_parallel": "parallelism.disable_loss_parallel",
    "experimental.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "experimental.enable_compiled_autograd": "parallelism.enable_compiled_autograd",
    "experimental.pipeline_parallel_degree": "parallelism.pipeline_parallel_degree",
    "experimental.pipeline_parallel_split_points": "parallelism.pipeline_parallel_split_points",
    "experimental.pipeline_parallel_schedule": "parallelism.pipeline_parallel_schedule",
    "experimental.pipeline_parallel_schedule_csv": "parallelism.pipeline_parallel_schedule_csv",
    "experimental.context_parallel_degree": "parallelism.context_parallel_degree",
    "experimental.context_parallel_rotate_method": "parallelism.context_parallel_rotate_method",
    "experimental.custom_model_path": "experimental.custom_import",
    "checkpoint.enable_checkpoint": "checkpoint.enable",
    "checkpoint.model_weights_only": "checkpoint.last_save_model_only",
    "checkpoint.last_save_model_weights_only": "checkpoint.last_save_model_only",
    "checkpoint.initial_load_dequantize": "checkpoint.initial_load_in_hf_quantized",
    "memory_estimation.enabled": "memory_estimation.enable",
    "validation.enabled": "validation.enable",
}
"""A key of an older release and the one that has its meaning in 0.2."""

OLDER_SECTIONS: dict[str, str] = {
    "float8": "quantize.linear.float8",
    "mx": "quantize.linear.mx",
    "quantize.dense": "quantize.linear",
    "quantize.moe": "quantize.grouped_mm",
}
"""A section of an older release and where its keys are in 0.2."""

OLDER_SPECIAL = {"quantize.linear.float8.enable_float8_linear", "quantize.linear.float8.moe_fqns_prototype"}
"""Keys of the older sections that 0.2 has in another form: the converters, and quantize.grouped_mm."""

LOOKS_LIKE = ("training", "model", "optimizer", "parallelism", "job")
"""Sections of which a job file has at least one."""
