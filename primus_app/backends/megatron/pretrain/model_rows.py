"""The table's part on the model and its training recipe's numbers within a layer."""

from primus_app.backends.megatron.pretrain.row import Source, Value, row, setting, unless


def _rope_scaling(source: Source, kind: str) -> float | None:
    scaling = source.config.model.rope_scaling
    return scaling.factor if scaling is not None and scaling.rope_type == kind and source.config.model.mla is None else None


def _interpolation(source: Source) -> Value:
    factor = _rope_scaling(source, "linear")
    return None if factor is None else int(factor)


def _layout(source: Source) -> Value:
    """Uneven stages in Megatron's letters: E the embedding, t a layer, L the loss."""
    if "pipeline_model_parallel_layout" not in source.settings:
        return None
    letters = {"embedding": "E", "decoder": "t", "loss": "L"}
    return "|".join("".join(letters[part] for part in stage) for stage in source.settings["pipeline_model_parallel_layout"])


MODEL_ROWS = (
    row("model.num_hidden_layers", "--num-layers", setting("num_layers")),
    row("model.hidden_size", "--hidden-size", setting("hidden_size")),
    row("model.num_attention_heads", "--num-attention-heads", setting("num_attention_heads")),
    row("model.num_key_value_heads", "--group-query-attention", lambda s: s.config.model.mla is None),
    row("model.num_key_value_heads", "--num-query-groups", lambda s: None if s.config.model.mla else s.config.model.num_key_value_heads),
    row("model.head_dim", "--kv-channels", setting("kv_channels")),
    row("model.intermediate_size", "--ffn-hidden-size", setting("ffn_hidden_size")),
    # NullTokenizer adds an end of document to them; and divided by 1, tp adds no rows, which would differ from layout to layout.
    row("data.tokenizer data.end_of_document", "--tokenizer-type", lambda s: "NullTokenizer"),
    row("model.vocab_size", "--vocab-size", lambda s: s.config.model.vocab_size - 1),
    row("model.vocab_size", "--make-vocab-size-divisible-by", lambda s: 1),
    row("model.max_position_embeddings", "--max-position-embeddings", lambda s: s.config.model.max_position_embeddings),
    row("", "--position-embedding-type", lambda s: "rope"),
    row("model.rope_theta", "--rotary-base", lambda s: int(s.config.model.rope_theta)),
    row("model.rope_scaling model.rope_scaling.rope_type", "--use-rope-scaling", lambda s: _rope_scaling(s, "llama3") is not None),
    row("model.rope_scaling.factor", "--rope-scaling-factor", lambda s: _rope_scaling(s, "llama3")),
    row("model.rope_scaling.factor", "--rotary-seq-len-interpolation-factor", _interpolation),
    row("model.rms_norm_eps", "--norm-epsilon", setting("layernorm_epsilon")),
    row("", "--normalization", setting("normalization")),
    row("", "--no-persist-layer-norm", lambda s: True),
    row("model.tie_word_embeddings", "--untie-embeddings-and-output-weights", lambda s: not s.config.model.tie_word_embeddings),
    row("model.attention_bias", "--disable-bias-linear", unless("add_bias_linear")),
    row("model.attention_qkv_bias", "--add-qkv-bias", setting("add_qkv_bias")),
    row("model.qk_norm", "--qk-layernorm", setting("qk_layernorm")),
    row("model.sliding_window", "--window-size", setting("window_size")),
    row("model.sliding_window_alternate", "--window-attn-skip-freq", setting("window_attn_skip_freq")),
    row("", "--swiglu", setting("gated_linear_unit")),
    row("", "--hidden-dropout", setting("hidden_dropout")),
    row("", "--attention-dropout", setting("attention_dropout")),
    row("", "--attention-softmax-in-fp32", setting("attention_softmax_in_fp32")),
    row("", "--transformer-impl", setting("transformer_impl")),
    row("", "--no-bias-swiglu-fusion", unless("bias_activation_fusion")),
    row("", "--no-bias-dropout-fusion", unless("bias_dropout_fusion")),
    row("", "--no-masked-softmax-fusion", unless("masked_softmax_fusion")),
    row("", "--no-rope-fusion", unless("apply_rope_fusion")),
    row("", "--no-gradient-accumulation-fusion", unless("gradient_accumulation_fusion")),
    row("model.init_std", "--init-method-std", setting("init_method_std")),
    # Latent attention.
    row("model.mla", "--multi-latent-attention", setting("multi_latent_attention")),
    row("model.mla.q_lora_rank", "--q-lora-rank", setting("q_lora_rank")),
    row("model.mla.kv_lora_rank", "--kv-lora-rank", setting("kv_lora_rank")),
    row("model.mla.qk_nope_head_dim", "--qk-head-dim", setting("qk_head_dim")),
    row("model.mla.qk_rope_head_dim", "--qk-pos-emb-head-dim", setting("qk_pos_emb_head_dim")),
    row("model.mla.v_head_dim", "--v-head-dim", setting("v_head_dim")),
    row("model.rope_scaling.rope_type", "--rope-type", setting("rope_type")),
    row("model.rope_scaling.factor", "--rotary-scaling-factor", setting("rotary_scaling_factor")),
    row("model.rope_scaling.mscale", "--mscale", setting("mscale")),
    row("model.rope_scaling.mscale_all_dim", "--mscale-all-dim", setting("mscale_all_dim")),
    # Experts.
    row("model.moe model.moe.num_experts", "--num-experts", setting("num_moe_experts")),
    row("model.moe.moe_intermediate_size", "--moe-ffn-hidden-size", setting("moe_ffn_hidden_size")),
    row("model.moe.first_k_dense_replace", "--moe-layer-freq", setting("moe_layer_freq")),
    row("model.moe.num_shared_experts", "--moe-shared-expert-intermediate-size", setting("moe_shared_expert_intermediate_size")),
    row("model.moe.num_experts_per_tok", "--moe-router-topk", setting("moe_router_topk")),
    row("model.moe.score", "--moe-router-score-function", setting("moe_router_score_function")),
    row("model.moe.norm_topk_prob", "--moe-router-pre-softmax", setting("moe_router_pre_softmax")),
    row("model.moe.routed_scaling_factor", "--moe-router-topk-scaling-factor", setting("moe_router_topk_scaling_factor")),
    row("model.moe.n_group model.moe.topk_method", "--moe-router-num-groups", setting("moe_router_num_groups")),
    row("model.moe.topk_group", "--moe-router-group-topk", setting("moe_router_group_topk")),
    row("model.moe.expert_bias", "--moe-router-enable-expert-bias", setting("moe_router_enable_expert_bias")),
    row("training.load_balancing", "--moe-router-bias-update-rate", setting("moe_router_bias_update_rate")),
    row("training.load_balancing", "--moe-router-load-balancing-type", setting("moe_router_load_balancing_type")),
    row("training.aux_loss_coefficient", "--moe-aux-loss-coeff", setting("moe_aux_loss_coeff")),
    row("", "--moe-router-dtype", setting("moe_router_dtype")),
    row("", "--moe-grouped-gemm", setting("moe_grouped_gemm")),
    row("", "--moe-token-dispatcher-type", setting("moe_token_dispatcher_type")),
    # How the layers lie.
    row("parallel.tp", "--tensor-model-parallel-size", lambda s: s.mesh.tp),
    row("parallel.pp", "--pipeline-model-parallel-size", lambda s: s.mesh.pp),
    row("parallel.vpp parallel.schedule", "--num-virtual-stages-per-pipeline-rank", lambda s: _virtual(s)),
    row("parallel.pp parallel.vpp", "--pipeline-model-parallel-layout", _layout),
    row("parallel.cp", "--context-parallel-size", lambda s: s.mesh.cp),
    row("parallel.ep", "--expert-model-parallel-size", lambda s: s.mesh.ep),
    row("parallel.etp", "--expert-tensor-parallel-size", lambda s: s.mesh.etp),
    row("parallel.sequence_parallel", "--sequence-parallel", setting("sequence_parallel")),
)


def _virtual(source: Source) -> Value:
    """The layout says it too, and Megatron takes one of the two."""
    return source.mesh.vpp if source.mesh.vpp > 1 and _layout(source) is None else None
