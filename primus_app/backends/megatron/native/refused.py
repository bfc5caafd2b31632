"""The fields of Megatron's configurations that no key sets and that would do nothing or harm, over all recorded versions: the reasons."""


def _because(reason: str, section: str, names: str) -> dict[str, str]:
    return {f"{section}.{name}": reason for name in names.split()}


FUNCTION = "is a function or an object, which cannot be typed"
OTHER_CURVE = "changes what is computed, and with it the loss curve"
OTHER_MODEL = "is of models that this program does not have"
INFERENCE = "has no effect: it is of inference"
TRAINER = "is carried out in part by Megatron-LM's own trainer, and has no effect without: backend.runner=pretrain"
GRAPHS = "would record CUDA graphs, around which the loop of this program does not do what they need"
FSDP = "has no effect: it is of Megatron's FSDP, and weights are not sharded here"
NO_FP16 = "has no effect: it is of float16, whose loss is scaled"
NO_TIMERS = "has no effect: Megatron's timers are not used"
NO_CONFIG_LOG = "has no effect: native/megatron.json in the run directory is that record"
OLD = "has no effect in this version, or another name"

REFUSED: dict[str, str] = {
    **_because(
        FUNCTION,
        "transformer",
        "timers finalize_model_grads_func grad_scale_func no_sync_func grad_sync_func param_sync_func activation_func init_method "
        "output_layer_init_method embedding_init_method",
    ),
    **_because(FUNCTION, "optimizer", "timers"),
    **_because(
        OTHER_CURVE,
        "transformer",
        "hidden_dropout attention_dropout fp32_residual_connection apply_residual_connection_post_layernorm calculate_per_token_loss "
        "softmax_scale apply_query_key_layer_scaling layernorm_zero_centered_gamma qk_l2_norm qk_clip qk_clip_alpha qk_clip_threshold "
        "rotary_interleaved rotary_percent no_rope_freq activation_func_fp8_input_store moe_z_loss_coeff moe_input_jitter_eps "
        "moe_token_dropping moe_expert_capacity_factor moe_pad_expert_input_to_capacity moe_token_drop_policy "
        "moe_router_force_load_balancing moe_router_force_biased moe_apply_probs_on_input batch_invariant_mode test_mode use_mup "
        "mup_width_mult mup_base_hidden_size mup_embedding_mult mup_output_mult mup_base_head_dim mup_attn_scale_power",
    ),
    **_because(OTHER_CURVE, "optimizer", "decoupled_lr decoupled_min_lr apply_wd_to_qk_layernorm"),
    **_because("cannot go with a loss per token, which is not averaged over ranks", "ddp", "average_in_collective"),
    **_because(
        OTHER_MODEL,
        "transformer",
        "mtp_num_layers mtp_loss_scaling_factor mtp_standalone mtp_use_repeated_layer mtp_hybrid_override_pattern attention_output_gate "
        "experimental_attention_variant dsa_indexer_n_heads dsa_indexer_head_dim dsa_indexer_topk dsa_indexer_loss_coeff "
        "dsa_indexer_use_sparse_loss linear_attention_freq linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim "
        "linear_num_key_heads linear_num_value_heads use_fused_weighted_squared_relu moe_shared_expert_gate moe_latent_size mrope_section "
        "mamba_state_dim mamba_head_dim mamba_num_groups mamba_num_heads use_mamba_mem_eff_path hetereogenous_dist_checkpoint",
    ),
    **_because(
        "has no effect: optimizer.name is adamw",
        "optimizer",
        "sgd_momentum muon_momentum muon_split_qkv muon_use_nesterov muon_scale_mode muon_fp32_matmul_prec muon_num_ns_steps muon_tp_mode "
        "muon_extra_scale_factor muon_coefficient_type muon_scalar_optimizer lion_beta1 lion_beta2",
    ),
    **_because(
        INFERENCE,
        "transformer",
        "flash_decode inference_rng_tracker inference_sampling_seed use_inference_optimized_layers inference_fuse_tp_communication "
        "mlp_chunks_for_prefill cache_mla_latents moe_pad_experts_for_cuda_graph_inference nccl_all_reduce_for_prefill "
        "inference_disable_triton_nvls_kernels inference_grouped_gemm_backend inference_moe_disable_fused_quant_kernels",
    ),
    **_because(
        TRAINER,
        "transformer",
        "tp_comm_overlap tp_comm_bulk_wgrad tp_comm_bulk_dgrad tp_comm_overlap_ag tp_comm_overlap_rs tp_comm_overlap_rs_dgrad "
        "tp_comm_split_ag tp_comm_atomic_ag tp_comm_split_rs tp_comm_atomic_rs tp_comm_overlap_disable_qkv tp_comm_overlap_disable_fc1 "
        "tp_comm_bootstrap_backend",
    ),
    **_because(
        "has no effect: the groups of ranks are made before the model's configuration",
        "transformer",
        "pipeline_model_parallel_comm_backend use_te_rng_tracker",
    ),
    **_because(
        "needs a step that is planned layer by layer, which the loop of this program is not",
        "transformer",
        "overlap_moe_expert_parallel_comm delay_wgrad_compute ep_overlap_early_attn_memory_release",
    ),
    **_because("needs a step that is planned layer by layer, which the loop of this program is not", "ddp", "delay_wgrad_compute"),
    **_because("has no effect: all sequences are of training.seq_len", "transformer", "variable_seq_lengths max_seqlen_per_dp_cp_rank"),
    **_because("needs a torch that is built with ring exchange", "transformer", "use_ring_exchange_p2p"),
    **_because(
        "has no effect: training.recompute computes all micro batches alike",
        "transformer",
        "num_microbatches_with_partial_activation_checkpoints",
    ),
    **_because("has no effect: the attention used here has no such function", "transformer", "masked_softmax_fusion"),
    **_because("has no effect: the norms used here have no such function", "transformer", "persist_layer_norm memory_efficient_layer_norm"),
    **_because(
        "changes the names of weights, and with them what checkpoints are made of",
        "transformer",
        "mla_down_proj_fusion",
    ),
    **_because(
        "is of another library's layers, which are not used here",
        "transformer",
        "use_kitchen use_kitchen_attention kitchen_attention_backend",
    ),
    **_because(
        "is chosen with the layers: Transformer Engine's where it imports, Megatron's own otherwise",
        "transformer",
        "transformer_impl use_te_activation_func moe_grouped_gemm moe_use_legacy_grouped_gemm",
    ),
    **_because(
        "has no effect: it is of fp8 or fp4",
        "transformer",
        "moe_router_padding_for_quantization moe_router_padding_for_fp8 disable_parameter_transpose_cache",
    ),
    **_because(
        "has no effect: nothing reads what it reports",
        "transformer",
        "log_max_attention_logit moe_per_layer_logging moe_enable_routing_replay",
    ),
    **_because("has no effect: nothing reads what it reports", "optimizer", "log_num_zeros_in_grad"),
    **_because("has no effect: nothing reads what it reports", "ddp", "check_for_large_grads"),
    **_because(NO_TIMERS, "transformer", "barrier_with_L1_time"),
    **_because(NO_TIMERS, "optimizer", "barrier_with_L1_time"),
    **_because(NO_CONFIG_LOG, "transformer", "config_logger_dir"),
    **_because(NO_CONFIG_LOG, "optimizer", "config_logger_dir"),
    **_because(
        GRAPHS,
        "transformer",
        "enable_cuda_graph cuda_graph_use_single_mempool cuda_graph_retain_backward_graph cuda_graph_warmup_steps external_cuda_graph "
        "cuda_graph_impl cuda_graph_scope",
    ),
    **_because(GRAPHS, "optimizer", "optimizer_cuda_graph"),
    **_because(OLD, "transformer", "async_tensor_model_parallel_allreduce moe_enable_deepep moe_layer_recompute"),
    **_because(NO_FP16, "optimizer", "loss_scale initial_loss_scale min_loss_scale loss_scale_window hysteresis"),
    **_because(
        "does not go with the checkpoints of this program",
        "optimizer",
        "optimizer_cpu_offload optimizer_offload_fraction use_torch_optimizer_for_cpu_offload overlap_cpu_optimizer_d2h_h2d pin_cpu_grads "
        "pin_cpu_params overlap_param_gather_with_optimizer_step",
    ),
    **_because(
        FSDP,
        "ddp",
        "use_megatron_fsdp use_custom_fsdp data_parallel_sharding_strategy gradient_reduce_div_fusion suggested_communication_unit_size "
        "preserve_fp32_weights keep_fp8_transpose_cache fsdp_double_buffer fsdp_db_use_persist_buf_on_alloc_fail "
        "fsdp_all_gather_in_start_param_sync outer_dp_sharding_strategy fsdp_manual_registration megatron_fsdp_main_params_dtype "
        "megatron_fsdp_main_grads_dtype megatron_fsdp_grad_comm_dtype",
    ),
}
"""Name to the reason."""
