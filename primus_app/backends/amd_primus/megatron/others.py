"""The keys of Primus' experiments for Megatron that are not told in our settings: what each is, and its value where it does nothing.

Names and neutral values are facts of primus/configs/modules/megatron/ and primus/configs/models/megatron/.
"""

from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True)
class Other:
    """A key without counterpart: its neutral value, why there is none, and whether another value makes another training."""

    neutral: Any
    note: str
    matters: bool


KERNELS = "kernels and overlaps are the engine's own choice; the loss is the same"
FORMATS = "only bfloat16 and float32 are trained here"
WRITING = "metrics go to metrics.jsonl and TensorBoard, the log to logs/"
RESUME = "the same command with the same exp_name goes on from the newest complete checkpoint, on any layout"
STAGES = "stages get as many layers each as the plan says; the loss is the same"

GROUPS: tuple[tuple[str, bool, str], ...] = (
    (
        KERNELS,
        False,
        """enable_primus_turbo=false use_turbo_autotune=false turbo_gemm_backend=default turbo_grouped_gemm_backend=default
        use_turbo_attention=false use_turbo_gemm=false use_turbo_grouped_gemm=false turbo_grouped_gemm_without_padding=false
        use_turbo_fused_act_with_probs=false moe_use_fused_router_with_aux_score=false use_turbo_deepep=false turbo_deepep_num_cu=32
        turbo_deepep_use_comm_stream=false turbo_sync_free_moe_stage=0 use_turbo_mega_moe=false turbo_mega_moe_precision=bf16
        use_turbo_rms_norm=false use_turbo_norm_te_linear=false use_turbo_grouped_mlp=false use_turbo_parallel_linear=false
        use_turbo_row_parallel_linear=false use_turbo_column_parallel_linear=false use_turbo_token_dispatcher_fp8_alltoall=false
        torch_compile.enable=false torch_compile.backend=inductor torch_compile.mode=default torch_compile.fullgraph=false
        attention_backend=auto use_flash_attn=true transformer_impl=transformer_engine bias_gelu_fusion=true bias_swiglu_fusion=true
        masked_softmax_fusion=true bias_dropout_fusion=true apply_rope_fusion=true cross_entropy_loss_fusion=false
        cross_entropy_fusion_impl=native gradient_accumulation_fusion=true no_persist_layer_norm=false use_te_activation_func=false
        attention_softmax_in_fp32=true moe_grouped_gemm=false moe_use_legacy_grouped_gemm=false moe_permute_fusion=false
        moe_router_fusion=false moe_token_dispatcher_type=allgather moe_flex_dispatcher_backend=null moe_enable_deepep=false
        moe_deepep_num_sms=20 moe_shared_expert_overlap=false moe_layer_recompute=false moe_per_layer_logging=false moe_extended_tp=false
        delay_wgrad_compute=false patch_moe_overlap=false overlap_moe_expert_parallel_comm=false enable_cuda_graph=false
        cuda_graph_warmup_steps=3 external_cuda_graph=false cuda_graph_scope=full clone_scatter_output_in_embedding=true
        overlap_grad_reduce=false overlap_param_gather=false overlap_param_gather_with_optimizer_step=false overlap_p2p_comm=true
        align_grad_reduce=true align_param_gather=true ddp_num_buckets=null ddp_bucket_size=null
        ddp_pad_buckets_for_high_nccl_busbw=false ddp_average_in_collective=false scatter_gather_tensors_in_pipeline=true
        use_ring_exchange_p2p=false defer_embedding_wgrad_compute=false wgrad_deferral_limit=0 gradient_reduce_div_fusion=true
        suggested_communication_unit_size=400000000 high_priority_stream_groups=[] async_tensor_model_parallel_allreduce=true
        tp_comm_overlap=false tp_comm_overlap_cfg=null tp_comm_overlap_ag=true tp_comm_overlap_rs=true tp_comm_overlap_rs_dgrad=false
        tp_comm_split_ag=true tp_comm_split_rs=true tp_comm_bulk_wgrad=true tp_comm_bulk_dgrad=true tp_comm_bootstrap_backend=nccl
        cp_comm_type=p2p hierarchical_context_parallel_sizes=null barrier_with_L1_time=true manual_gc=false manual_gc_interval=1
        manual_gc_eval=false empty_unused_memory_level=0 pp_warmup=false distribute_saved_activations=false checkpoint_activations=false
        microbatch_group_size_per_vp_stage=null init_model_with_meta_device=false use_cpu_initialization=null
        optimizer_cpu_offload=false optimizer_offload_fraction=1.0 use_torch_optimizer_for_cpu_offload=false
        overlap_cpu_optimizer_d2h_h2d=false pin_cpu_grads=true pin_cpu_params=true cpu_offload=false
        torch_fsdp2_reshard_after_forward=true data_parallel_sharding_strategy=no_shard data_parallel_replicate_degree=1
        accumulate_allreduce_grads_in_fp32=false create_attention_mask_in_dataloader=true recompute_layer_ids=null
        pipeline_model_parallel_comm_backend=null calculate_per_token_loss=false optimizer_foreach=false""",
    ),
    (
        FORMATS,
        True,
        """fp8=null fp4=null fp8_param_gather=false fp4_param=false enable_turbo_attention_float8=false
        enable_attention_float8=false grad_reduce_in_bf16=false fp16_lm_cross_entropy=false use_precision_aware_optimizer=false
        main_grads_dtype=fp32 main_params_dtype=fp32 exp_avg_dtype=fp32 exp_avg_sq_dtype=fp32 moe_use_fp8=false""",
    ),
    (
        "has an effect with 8 or 4 bits, or with float16, only; " + FORMATS,
        False,
        """fp8_margin=0 fp8_recipe=delayed fp8_interval=1 fp8_amax_history_len=1024 fp8_amax_compute_algo=max fp8_wgrad=true
        fp8_reduce_amax=true fp8_dot_product_attention=false fp8_multi_head_attention=false fp4_recipe=nvfp4 first_last_layers_bf16=false
        num_layers_at_start_in_bf16=1 num_layers_at_end_in_bf16=1 no_fp8_weight_transpose_cache=false
        keep_fp8_transpose_cache_when_using_custom_fsdp=false mxfp4_gradient_stochastic_rounding=false weight_deosc=false
        weight_deosc_period=200 weight_deosc_ratio=4.0 weight_deosc_start_step=0 weight_deosc_log_freq=0 loss_scale=null
        initial_loss_scale=4294967296 min_loss_scale=1.0 loss_scale_window=1000 hysteresis=2 moe_router_padding_for_fp8=false
        moe_router_padding_for_quantization=false params_dtype=null te_rng_tracker=false""",
    ),
    (
        "tokens go where the router sends them",
        True,
        "moe_router_force_load_balancing=false disable_primus_topk_router=false",
    ),
    ("routers compute in float32", False, "moe_router_dtype=null"),
    ("has an effect with moe_router_force_load_balancing only", False, "moe_router_force_load_balancing_type=even"),
    (
        "no such thing is trained here",
        True,
        """mtp_num_layers=null moe_z_loss_coeff=null moe_input_jitter_eps=null moe_expert_capacity_factor=null
        moe_pad_expert_input_to_capacity=false moe_token_dropping=false moe_use_upcycling=false moe_apply_probs_on_input=false
        moe_shared_expert_gate=false moe_latent_size=null apply_query_key_layer_scaling=false apply_layernorm_1p=false qk_l2_norm=false
        add_position_embedding=false rotary_interleaved=false rotary_seq_len_interpolation_factor=null fp32_residual_connection=false
        apply_residual_connection_post_layernorm=false quick_geglu=false openai_gelu=false squared_relu=false activation_func=null
        final_logit_softcapping=null attn_logit_softcapping=null router_logit_softcapping=null use_sink_attention=false
        sink_sliding_window=0 window_size=null window_attn_skip_freq=null init_method_xavier_uniform=false perform_initialization=true
        rampup_batch_size=null decrease_batch_size_if_needed=false start_weight_decay=null end_weight_decay=null
        weight_decay_incr_style=constant lr_warmup_samples=0 lr_warmup_init=0.0 lr_decay_samples=null lr_wsd_decay_samples=null
        head_lr_mult=1.0 decoupled_lr=null decoupled_min_lr=null data_parallel_random_init=false iterations_to_skip=null
        mtp_use_separate_hc_head=false use_legacy_models=false heterogeneous_layers_config_path=null
        heterogeneous_layers_config_encoded_json=null hybrid_override_pattern=null hybrid_attention_ratio=0.0 hybrid_mlp_ratio=0.0
        is_hybrid_model=false spec=null experimental_attention_variant=null attention_output_gate=false lfm_layer_types=null
        enable_odc=false""",
    ),
    (
        "has an effect with something else only that is not trained here",
        False,
        """mtp_loss_scaling_factor=0.1 moe_token_drop_policy=probs sink_window_even_layers_only=true sgd_momentum=0.9
        muon_extra_scale_factor=1.0 muon_scale_mode=spectral muon_fp32_matmul_prec=medium muon_num_ns_steps=5 muon_tp_mode=blockwise
        muon_use_nesterov=false muon_split_qkv=true muon_momentum=0.95 conv_L_cache=3 conv_bias=false mamba_state_dim=128
        mamba_head_dim=64 mamba_num_groups=8 mamba_num_heads=null mamba_expand=2 mamba_d_conv=4 disable_mamba_mem_eff_path=false
        odc_phase=2 odc_grad_spike_threshold=1000.0 odc_p2p_backend=mori odc_mori_init=pg odc_max_buffer_size=67108864
        odc_rocshmem_gda=false odc_rocshmem_lib=null odc_gda_rs_blocks=64 odc_gda_pipe=1 odc_gda_defer_reduce=auto
        odc_gda_warmup_mode=strided odc_gda_stride_bytes=65536 moe_router_topk_limited_devices=null linear_attention_freq=null""",
    ),
    (
        STAGES,
        True,
        """pipeline_model_parallel_layout=null decoder_first_pipeline_num_layers=null decoder_last_pipeline_num_layers=null
        decoder_pipeline_manual_split_list=null account_for_embedding_in_pipeline_split=false account_for_loss_in_pipeline_split=false
        standalone_embedding_stage=false pipeline_model_parallel_split_rank=null""",
    ),
    (
        "the schedule is 1f1b, or interleaved with virtual stages; the loss is the same. backend=torchtitan has "
        "parallel.schedule=zero_bubble",
        True,
        "patch_zero_bubble=false patch_primus_pipeline=false",
    ),
    (
        "has an effect with patch_zero_bubble or patch_primus_pipeline only",
        False,
        """debug_scheduler_table=false enable_zb_runtime=true pre_communication_optimization=false
        zero_bubble_pipeline_timers_start_iter=100 zero_bubble_pipeline_timers_end_iter=110 zero_bubble_max_pending_backward=auto
        zero_bubble_adaptive_memory_limit_percentile=85 enable_optimizer_post_validation=false enable_exactly_numeric_match=true
        enable_zero_bubble=true zero_bubble_v_schedule=false zero_bubble_v_schedule_mem_setup=half enable_1f1b_v=false
        allow_padding_num_layers=true profile_memory_iter=-1 interleave_group_size=0 offload_chunk_num=0 offload_time=1.0
        auto_offload_time=true offload_overlap_sr=true num_seq_splits=1 pp_algorithm=1f1b-interleaved communication_method=async_p2p
        offload=false offload_ops= pp_max_mem=null pp_cost_f=null pp_cost_b=null pp_cost_w=null dump_pp_data=false""",
    ),
    (
        "the vocabulary is the model's, model.vocab_size, and a corpus of .bin and .idx has been tokenised already",
        False,
        """tokenizer_type=null tokenizer_model=null vocab_file=null vocab_extra_ids=0 merge_file=null tiktoken_pattern=null
        tiktoken_num_special_tokens=1000 tiktoken_special_tokens=null legacy_tokenizer=false trust_remote_code=false
        make_vocab_size_divisible_by=128""",
    ),
    (
        "the samples' order is a function of training.seed and the epoch, whoever reads them",
        False,
        """num_workers=8 dataloader_type=cyclic dataloader_mp_context=null mmap_bin_files=true data_sharding=true
        num_dataset_builder_threads=1 prefetch_factor=null full_validation=false multiple_validation_sets=false""",
    ),
    ("corpora are named on the command line: data.path", True, "data_args_path=null per_split_data_args_path=null"),
    (
        "data=mock is a made-up language of its own",
        False,
        "mock_dataset.class=null mock_dataset.params.num_samples=1000 mock_dataset.params.image_size=512",
    ),
    (
        RESUME,
        False,
        """finetune=false auto_continue_train=false no_load_optim=null no_load_rng=null ckpt_step=null use_checkpoint_args=false
        use_mp_args_from_checkpoint_args=false use_tokenizer_model_from_checkpoint_args=true exit_on_missing_checkpoint=true
        override_opt_param_scheduler=false use_checkpoint_opt_param_scheduler=false load_main_params_from_ckpt=false adlr_autoresume=false
        adlr_autoresume_interval=1000 inprocess_restart=false dist_ckpt_strictness=assume_ok_unexpected auto_detect_ckpt_format=false
        ckpt_fully_parallel_load=false skip_train=false""",
    ),
    (
        "every checkpoint holds the whole state, in one format; there is one at the end too",
        False,
        """no_save_optim=null no_save_rng=null disable_last_saving=false ckpt_format=torch_dist save_retain_interval=null
        ckpt_fully_parallel_save=true ckpt_fully_parallel_save_deprecated=false fully_parallel_save=true
        ckpt_assume_constant_structure=false
        use_persistent_ckpt_worker=false use_dist_ckpt_deprecated=false dist_ckpt_format_deprecated=null ckpt_convert_format=null
        ckpt_convert_save=null ckpt_convert_update_legacy_dist_opt_format=false non_persistent_save_interval=null
        non_persistent_ckpt_type=null non_persistent_global_ckpt_dir=null non_persistent_local_ckpt_dir=null
        non_persistent_local_ckpt_algo=fully_parallel dist_ckpt_save_pre_mcore_014=null dist_ckpt_optim_fully_reshardable=null""",
    ),
    (
        WRITING,
        False,
        """sink_level=null file_sink_level=DEBUG log_avg_skip_iterations=2 log_avg_reset_interval=10 log_params_norm=false
        log_num_zeros_in_grad=false log_throughput=true wall_clock_step_timer=false log_progress=false timing_log_level=0
        timing_log_option=minmax tensorboard_log_interval=1 tensorboard_queue_size=1000 tensorboard_dir=null
        log_timers_to_tensorboard=true log_batch_size_to_tensorboard=true log_learning_rate_to_tensorboard=true
        log_validation_ppl_to_tensorboard=false log_memory_to_tensorboard=false log_world_size_to_tensorboard=false
        log_loss_scale_to_tensorboard=true logging_level=null config_logger_dir= enable_one_logger=true one_logger_project=megatron-lm
        one_logger_run_name=null one_logger_async=false app_tag_run_name=null app_tag_run_version=0.0.0 log_straggler=false
        disable_straggler_on_startup=false straggler_ctrlr_port=65535 straggler_minmax_count=1 use_rocm_mem_info=false
        use_rocm_mem_info_iters=[1,2] wandb_project=null wandb_exp_name=null wandb_save_dir=null wandb_entity=null mlflow_run_name=null
        mlflow_experiment_name=null mlflow_upload_traces=false mlflow_upload_logs=false generate_tracelens_report=false
        mlflow_upload_tracelens_report=false mlflow_tracelens_ranks=null mlflow_tracelens_output_format=xlsx
        mlflow_tracelens_cleanup_after_upload=false mlflow_tracelens_auto_install=true mlflow_upload_performance_metrics=false""",
    ),
    (
        "has an effect with profile only, and nothing is profiled on this engine",
        False,
        """use_pytorch_profiler=false profile_ranks=[0] profile_step_end=12 profile_step_start=10 record_memory_history=false
        memory_snapshot_path=snapshot.pickle disable_profiler_activity_cpu=false torch_profiler_record_shapes=true
        torch_profiler_with_stack=true torch_profiler_use_gzip=true pytorch_profiler_collect_shapes=false
        pytorch_profiler_collect_callstack=false pytorch_profiler_collect_chakra=false""",
    ),
    (
        "a loss that is not finite ends the run, a run that ends has a cause in status.json",
        False,
        """check_for_nan_in_loss_and_grad=true check_for_spiky_loss=false check_for_large_grads=false error_injection_rate=0
        error_injection_type=transient_error rerun_mode=disabled result_rejected_tracker_filename=null exit_signal_handler=false
        exit_duration_in_mins=null exit_interval=null check_weight_hash_across_dp_replicas_interval=null train_sync_interval=null
        enable_ft_package=false calc_ft_timeouts=false run_workload_inspector_server=false replication=false replication_jump=null
        replication_factor=null""",
    ),
    (
        "the launcher starts the processes and connects them",
        False,
        """distributed_backend=nccl distributed_timeout_minutes=10 local_rank=null lazy_mpu_init=null use_sharp=false
        sharp_enabled_group=null nccl_communicator_config_path=null use_tp_pp_dp_mapping=false enable_gloo_process_groups=true
        disable_compile_dependencies=true""",
    ),
    (
        "is Primus' or Megatron's own bookkeeping",
        False,
        """trainable=true yaml_cfg=null stage=null test_mode=false enable_experimental=false model_type=gpt inference_rng_tracker=false
        deprecated_use_mcore_models=false use_deprecated_20241209_moe_layer=false batch_size=null warmup=null onnx_safe=null
        bert_binary_head=true model_parallel_size=null encoder_num_layers=null decoder_num_layers=null
        encoder_tensor_model_parallel_size=0 encoder_pipeline_model_parallel_size=0 use_rotary_position_embeddings=null
        trainer_class=null""",
    ),
    (
        "belongs to another kind of model or of work",
        False,
        """encoder_seq_length=null decoder_seq_length=null retriever_seq_length=256 sample_rate=1.0 mask_prob=0.15 short_seq_prob=0.1
        vision_pretraining=false vision_pretraining_type=classify vision_backbone_type=vit swin_backbone_type=tiny num_classes=1000
        img_h=224 img_w=224 num_channels=3 patch_dim=16 classes_fraction=1.0 data_per_class_fraction=1.0 retro_project_dir=null
        retro_add_retriever=false retro_cyclic_train_iters=null retro_encoder_layers=2 retro_encoder_hidden_dropout=0.1
        retro_encoder_attention_dropout=0.1 retro_num_neighbors=2 retro_num_retrieved_chunks=2 retro_attention_gate=1
        retro_verify_neighbor_count=true dino_local_img_size=96 dino_local_crops_number=10 dino_head_hidden_size=2048
        dino_bottleneck_size=256 dino_freeze_last_layer=1 dino_norm_last_layer=false dino_warmup_teacher_temp=0.04
        dino_teacher_temp=0.07 dino_warmup_teacher_temp_epochs=30 mask_type=random mask_factor=1.0 iter_per_epoch=1250
        inference_batch_times_seqlen_threshold=-1 inference_dynamic_batching=false inference_dynamic_batching_buffer_size_gb=40.0
        inference_dynamic_batching_buffer_guaranteed_fraction=0.2 inference_dynamic_batching_buffer_overflow_factor=null
        inference_dynamic_batching_max_requests_override=null inference_dynamic_batching_max_tokens_override=null
        inference_max_requests=8 inference_max_seq_length=2560 max_tokens_to_oom=12000 output_bert_embeddings=false
        bert_embedder_type=megatron flash_decode=false ict_head_size=null biencoder_projection_dim=0
        biencoder_shared_query_context_model=false ict_load=null bert_load=null titles_data_path=null query_in_block_prob=0.1
        use_one_sent_docs=false evidence_data_path=null retriever_report_topk_accuracies=[] retriever_score_scaling=false
        block_data_path=null embedding_path=null indexer_batch_size=128 indexer_log_interval=1000 perform_rl_step=false
        rl_prompts_per_eval=32 grpo_prompts_per_step=32 grpo_group_size=2 grpo_iterations=2 grpo_clamp_eps_lower=0.01
        grpo_clamp_eps_upper=0.01 grpo_kl_beta=0.001 grpo_entropy_term_weight=0.0 grpo_filter_groups_with_same_reward=false
        grpo_default_temperature=1.0 grpo_default_top_p=0 langrl_inference_server_type=inplace_megatron
        langrl_inference_server_conversation_template=null langrl_env_config=null rl_offload_optimizer_during_inference=false
        rl_offload_kv_cache_during_training=false rl_remove_kv_cache_during_training=false rl_reset_cuda_graphs=false
        rl_partial_rollouts=false rl_inference_logprobs_is_correction=false rl_importance_sampling_truncation_coef=null
        rl_calculate_intra_group_similarity=false""",
    ),
)
"""Why there is no counterpart, whether another value than the neutral one makes another training, and the keys with that value."""


def _others() -> dict[str, Other]:
    pairs = ((note, matters, *word.partition("=")) for note, matters, keys in GROUPS for word in keys.split())
    return {key: Other(yaml.safe_load(value), note, matters) for note, matters, key, _, value in pairs}


OTHERS: dict[str, Other] = _others()
