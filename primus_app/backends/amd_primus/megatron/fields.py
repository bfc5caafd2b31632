"""The keys of Primus' experiments for Megatron that are told in our settings: type, and Primus' default.

The defaults are facts of primus/configs/modules/megatron/ (pre_trainer.yaml and what it extends) and
primus/configs/models/megatron/language_model.yaml.
"""

from typing import Any, Literal

from primus_app.backends.imported.field import Field, Size

FLAG = (bool, False)
SizeOrNone = Size | None
Whole = int | None
Number = float | None
Text = str | None
Paths = list[str] | str | None
Norm = Literal["LayerNorm", "RMSNorm"]
Style = Literal["constant", "linear", "cosine", "inverse-square-root", "WSD"]
WsdStyle = Literal["exponential", "linear", "cosine", "minus_sqrt"]
Granularity = Literal["full", "selective"] | None
Method = Literal["uniform", "block"] | None
Score = Literal["softmax", "sigmoid"]
Layers = str | list[int | str] | int


def _fields(**fields: tuple[Any, Any]) -> dict[str, Field]:
    return {key: Field(*value) for key, value in fields.items()}


BATCH = _fields(
    train_iters=(SizeOrNone, 1000),
    train_samples=(SizeOrNone, None),
    micro_batch_size=(Size, 2),
    global_batch_size=(Size, 16),
    seq_length=(Size, 1024),
    seed=(int, 1234),
)
OPTIMIZER = _fields(
    optimizer=(str, "adam"),
    lr=(float, 2.0e-5),
    min_lr=(float, 0.0),
    lr_decay_style=(Style, "cosine"),
    lr_decay_iters=(SizeOrNone, None),
    lr_warmup_iters=(int, 40),
    lr_warmup_fraction=(Number, None),
    lr_wsd_decay_style=(WsdStyle, "exponential"),
    lr_wsd_decay_iters=(SizeOrNone, None),
    weight_decay=(float, 0.0),
    adam_beta1=(float, 0.9),
    adam_beta2=(float, 0.999),
    adam_eps=(float, 1e-8),
    clip_grad=(float, 1.0),
    deterministic_mode=FLAG,
)
PRECISION = _fields(bf16=(bool, True), fp16=FLAG)
LAYOUT = _fields(
    tensor_model_parallel_size=(Size, 1),
    pipeline_model_parallel_size=(Size, 1),
    context_parallel_size=(Size, 1),
    expert_model_parallel_size=(Size, 1),
    expert_tensor_parallel_size=(SizeOrNone, None),
    sequence_parallel=(bool, True),
    virtual_pipeline_model_parallel_size=(SizeOrNone, None),
    num_virtual_stages_per_pipeline_rank=(SizeOrNone, None),
    num_layers_per_virtual_pipeline_stage=(SizeOrNone, None),
    use_distributed_optimizer=(bool, True),
    num_distributed_optimizer_instances=(Size, 1),
    use_torch_fsdp2=FLAG,
    use_megatron_fsdp=FLAG,
    use_custom_fsdp=FLAG,
    recompute_granularity=(Granularity, None),
    recompute_method=(Method, None),
    recompute_num_layers=(Whole, None),
    recompute_activations=FLAG,
)
DATA = _fields(
    mock_data=FLAG,
    data_path=(Paths, None),
    train_data_path=(Paths, None),
    valid_data_path=(Paths, None),
    test_data_path=(Paths, None),
    split=(Text, None),
    data_cache_path=(Text, None),
    reset_position_ids=FLAG,
    reset_attention_mask=FLAG,
    eod_mask_loss=FLAG,
    eval_iters=(Whole, 0),
    eval_interval=(Whole, 1000),
)
KEEPING = _fields(
    save=(Text, None),
    save_interval=(Whole, 1000),
    async_save=(bool | None, None),
    load=(Text, None),
    pretrained_checkpoint=(Text, None),
    log_interval=(Size, 1),
    stderr_sink_level=(str, "INFO"),
    disable_tensorboard=(bool, True),
    disable_wandb=(bool, True),
    disable_mlflow=(bool, True),
    profile=FLAG,
)
MODEL = _fields(
    num_layers=(Size, 24),
    hidden_size=(Size, 1024),
    ffn_hidden_size=(SizeOrNone, None),
    num_attention_heads=(Size, 16),
    group_query_attention=FLAG,
    num_query_groups=(SizeOrNone, None),
    kv_channels=(SizeOrNone, None),
    vocab_size=(SizeOrNone, None),
    max_position_embeddings=(SizeOrNone, None),
    norm_epsilon=(float, 1e-5),
    untie_embeddings_and_output_weights=(bool, True),
    add_qkv_bias=FLAG,
    add_bias_linear=FLAG,
    qk_layernorm=FLAG,
    normalization=(Norm, "LayerNorm"),
    swiglu=(bool, True),
    position_embedding_type=(str, "learned_absolute"),
    rotary_base=(float, 10000),
    rotary_percent=(float, 1.0),
    use_rope_scaling=FLAG,
    rope_scaling_factor=(float, 8.0),
    rope_type=(Literal["rope", "yarn"] | None, None),
    rotary_scaling_factor=(float, 1.0),
    original_max_position_embeddings=(SizeOrNone, None),
    mscale=(float, 1.0),
    mscale_all_dim=(float, 1.0),
    hidden_dropout=(float, 0.1),
    attention_dropout=(float, 0.1),
    init_method_std=(float, 0.02),
    multi_latent_attention=FLAG,
    q_lora_rank=(SizeOrNone, None),
    kv_lora_rank=(Size, 32),
    qk_head_dim=(Size, 128),
    qk_pos_emb_head_dim=(Size, 64),
    v_head_dim=(Size, 128),
    num_experts=(SizeOrNone, None),
    moe_layer_freq=(Layers, 1),
    moe_ffn_hidden_size=(SizeOrNone, None),
    moe_shared_expert_intermediate_size=(SizeOrNone, None),
    moe_router_topk=(Size, 2),
    moe_router_score_function=(Score, "softmax"),
    moe_router_pre_softmax=FLAG,
    moe_router_num_groups=(SizeOrNone, None),
    moe_router_group_topk=(SizeOrNone, None),
    moe_router_topk_scaling_factor=(Number, None),
    moe_router_enable_expert_bias=FLAG,
    moe_router_bias_update_rate=(float, 1e-3),
    moe_router_load_balancing_type=(str | list[str], "aux_loss"),
    moe_aux_loss_coeff=(float | list[float], 0.0),
)

FIELDS: dict[str, Field] = {**BATCH, **OPTIMIZER, **PRECISION, **LAYOUT, **DATA, **KEEPING, **MODEL}

OTHER_NAMES = {"layernorm_epsilon": "norm_epsilon"}
"""Names that Megatron itself has for the same."""
