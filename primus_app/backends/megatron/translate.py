"""From our configuration to megatron-core's: the only file that knows both sets of words. Imports neither torch nor megatron."""

import math
from collections.abc import Sequence
from typing import Any

from primus_app.backends.megatron.native.given import given_fields
from primus_app.config.schema import Config, MlaConfig, ModelConfig, MoeConfig, TrainingConfig
from primus_app.plan.mesh import Mesh
from primus_app.plan.stages import Stage

BIAS_STEP = 1e-3
"""What the selection bias moves by in a step (DeepSeek-V3, arXiv 2412.19437, section 4.2; TorchTitan's default too)."""


def parallel_settings(mesh: Mesh) -> dict[str, Any]:
    """Arguments of parallel_state.initialize_model_parallel."""
    return {
        "tensor_model_parallel_size": mesh.tp,
        "pipeline_model_parallel_size": mesh.pp,
        "virtual_pipeline_model_parallel_size": mesh.vpp if mesh.vpp > 1 else None,
        "context_parallel_size": mesh.cp,
        "expert_model_parallel_size": mesh.ep,
        "expert_tensor_parallel_size": mesh.etp,
        "num_distributed_optimizer_instances": optimizer_instances(mesh),
        "order": "tp-cp-ep-dp-pp",
    }


def optimizer_instances(mesh: Mesh) -> int:
    """Replicas of the distributed optimizer, each sharded over dp_shard ranks and those of cp."""
    return mesh.dp_replicate if mesh.dp_shard > 1 else 1


def shards_optimizer(config: Config, mesh: Mesh) -> bool:
    """Whether Megatron's distributed optimizer is used: where it has ranks to shard over, unless it is asked for or refused."""
    wanted = config.parallel.distributed_optimizer
    return mesh.dp_shard > 1 if wanted == "auto" else wanted


def overlaps_reduction(config: Config, mesh: Mesh, *, cpu: bool) -> bool:
    """Whether gradients are summed over ranks while the backward pass goes on; gloo would only take the CPU's time for it."""
    return bool(native_fields(config, "ddp").get("overlap_grad_reduce", not cpu and mesh.dp * mesh.cp > 1))


def overlaps_gathering(config: Config, mesh: Mesh, *, cpu: bool) -> bool:
    """Whether the distributed optimizer's weights are gathered while the forward pass goes on."""
    usual = not cpu and shards_optimizer(config, mesh) and overlaps_reduction(config, mesh, cpu=cpu)
    return bool(native_fields(config, "ddp").get("overlap_param_gather", usual))


def native_fields(config: Config, section: str) -> dict[str, Any]:
    """The fields of backend.native.``section``, which is one of Megatron's configurations."""
    prefix = f"{section}."
    return {name.removeprefix(prefix): value for name, value in given_fields(config).items() if name.startswith(prefix)}


def transformer_settings(config: Config, mesh: Mesh, stages: Sequence[Stage], *, cpu: bool, engine: bool) -> dict[str, Any]:
    """Fields of TransformerConfig, or of MLATransformerConfig where the model has latent attention.

    ``cpu`` tells that there is no accelerator, ``engine`` that Transformer Engine's layers are used. Number formats are names: the
    caller turns them into torch's.
    """
    model, training = config.model, config.training
    interleaved = mesh.vpp > 1
    settings: dict[str, Any] = {
        **_architecture(model),
        **_formats(config),
        **_recompute(training),
        **_layout(mesh, stages),
        "sequence_parallel": mesh.tp > 1 and config.parallel.sequence_parallel,
        "calculate_per_token_loss": True,
        "deterministic_mode": training.deterministic,
        # Also where the weights are drawn by us: only then does Megatron mark what tp divides, which its gradient norm goes by.
        "perform_initialization": True,
        "use_cpu_initialization": False,
        "init_method_std": model.init_std,
        "bias_activation_fusion": engine,
        "bias_dropout_fusion": engine and not model.attention_bias,  # Which Transformer Engine's experts with biases refuse.
        "masked_softmax_fusion": engine,
        "apply_rope_fusion": False,
        "gradient_accumulation_fusion": False,
        "transformer_impl": "transformer_engine" if engine else "local",
        # Interleaving with batched exchange trains wrong on two stages, silently; and gloo still sends what would be freed.
        "overlap_p2p_comm": interleaved,
        "batch_p2p_comm": not interleaved,
        "deallocate_pipeline_outputs": not cpu,
    }
    if model.mla is not None:
        settings |= _latent_attention(model, model.mla)
    if model.moe is not None:
        settings |= _experts(model, model.moe, training, mesh, cpu=cpu, engine=engine)
    return settings | native_fields(config, "transformer")


def _architecture(model: ModelConfig) -> dict[str, Any]:
    window: dict[str, Any] = {"window_size": (model.sliding_window - 1, 0)} if model.sliding_window else {}
    if window and model.sliding_window_alternate:
        window["window_attn_skip_freq"] = 2  # Megatron counts layers from 1 and leaves every second one whole.
    return {
        "num_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "num_attention_heads": model.num_attention_heads,
        "num_query_groups": model.num_key_value_heads,
        "kv_channels": model.head_dim,
        "ffn_hidden_size": model.intermediate_size,
        "gated_linear_unit": True,
        "activation_func": "silu",
        "add_bias_linear": model.attention_bias,
        "add_qkv_bias": model.attention_qkv_bias,
        "qk_layernorm": model.qk_norm or model.mla is not None,
        "normalization": "RMSNorm",
        "layernorm_epsilon": model.rms_norm_eps,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        **window,
        **_gpt_oss(model),
        **_yarn(model),
    }


def _gpt_oss(model: ModelConfig) -> dict[str, Any]:
    """Sinks, and its own SwiGLU: (up + 1) gate sigmoid(1.702 gate) of inputs within a bound (transformers' GptOssExperts)."""
    sinks = {"softmax_type": "learnable"} if model.attention_sinks else {}
    if model.swiglu_limit is None:
        return sinks
    return sinks | {"activation_func": "quick_gelu", "glu_linear_offset": 1.0, "activation_func_clamp_value": model.swiglu_limit}


def _yarn(model: ModelConfig) -> dict[str, Any]:
    """Fields that GPTModel reads of its configuration, which has no place for them."""
    scaling = model.rope_scaling
    if scaling is None or scaling.rope_type != "yarn" or model.mla is not None:
        return {}
    return {
        "yarn_rotary_scaling_factor": scaling.factor,
        "yarn_original_max_position_embeddings": scaling.original_max_position_embeddings,
        "yarn_beta_fast": 32.0 if scaling.beta_fast is None else scaling.beta_fast,
        "yarn_beta_slow": 1.0 if scaling.beta_slow is None else scaling.beta_slow,
        "yarn_mscale": scaling.mscale,
        "yarn_mscale_all_dim": scaling.mscale_all_dim,
        "yarn_correction_range_round_to_int": scaling.truncate is not False,
    }


def _formats(config: Config) -> dict[str, Any]:
    compute = config.precision.compute
    return {"params_dtype": compute, "pipeline_dtype": compute, "bf16": compute == "bf16", "attention_softmax_in_fp32": True}


def _recompute(training: TrainingConfig) -> dict[str, Any]:
    if training.recompute == "none":
        return {}
    if training.recompute == "selective":
        return {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    some = training.recompute_layers is not None
    return {
        "recompute_granularity": "full",
        "recompute_method": "block" if some else "uniform",
        "recompute_num_layers": training.recompute_layers or 1,
    }


def _layout(mesh: Mesh, stages: Sequence[Stage]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "tensor_model_parallel_size": mesh.tp,
        "pipeline_model_parallel_size": mesh.pp,
        "context_parallel_size": mesh.cp,
        "expert_model_parallel_size": mesh.ep,
        "expert_tensor_parallel_size": mesh.etp,
    }
    if mesh.vpp > 1:
        found["virtual_pipeline_model_parallel_size"] = mesh.vpp
    sizes = [stage.num_layers for stage in stages]
    if len(set(sizes)) > 1:
        ends = {0: ["embedding"]}, {len(stages) - 1: ["loss"]}
        # One list a stage; with virtual stages they go round the ranks, as the plan's do.
        found["pipeline_model_parallel_layout"] = [
            [*ends[0].get(index, []), *["decoder"] * size, *ends[1].get(index, [])] for index, size in enumerate(sizes)
        ]
    return found


def _latent_attention(model: ModelConfig, mla: MlaConfig) -> dict[str, Any]:
    scaling = model.rope_scaling
    found: dict[str, Any] = {
        "multi_latent_attention": True,
        "q_lora_rank": mla.q_lora_rank,
        "kv_lora_rank": mla.kv_lora_rank,
        "qk_head_dim": mla.qk_nope_head_dim,
        "qk_pos_emb_head_dim": mla.qk_rope_head_dim,
        "v_head_dim": mla.v_head_dim,
        "rotary_base": model.rope_theta,
        "rope_type": "rope",
        "rotary_scaling_factor": 1.0,
    }
    if scaling is None:
        return found
    return found | {
        "rope_type": "yarn",
        "rotary_scaling_factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_max_position_embeddings,
        "beta_fast": 32.0 if scaling.beta_fast is None else scaling.beta_fast,
        "beta_slow": 1.0 if scaling.beta_slow is None else scaling.beta_slow,
        "mscale": scaling.mscale,
        "mscale_all_dim": scaling.mscale_all_dim,
    }


def _experts(model: ModelConfig, moe: MoeConfig, training: TrainingConfig, mesh: Mesh, *, cpu: bool, engine: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "num_moe_experts": moe.num_experts,
        "moe_ffn_hidden_size": moe.moe_intermediate_size,
        "moe_layer_freq": [int(layer >= moe.first_k_dense_replace) for layer in range(model.num_hidden_layers)],
        "moe_router_topk": moe.num_experts_per_tok,
        "moe_router_score_function": moe.score,
        # Of all experts' probabilities those of the chosen, or the chosen experts' own distribution.
        "moe_router_pre_softmax": moe.score == "softmax" and not moe.norm_topk_prob,
        "moe_router_topk_scaling_factor": moe.routed_scaling_factor if moe.routed_scaling_factor != 1.0 else None,
        "moe_router_dtype": "fp32",
        "moe_router_load_balancing_type": "seq_aux_loss" if training.load_balancing == "aux_loss" else "none",
        "moe_aux_loss_coeff": training.aux_loss_coefficient if training.load_balancing == "aux_loss" else 0.0,
        "moe_router_enable_expert_bias": moe.expert_bias,
        "moe_router_bias_update_rate": BIAS_STEP if training.load_balancing == "expert_bias" else 0.0,
        "moe_grouped_gemm": engine,
        # gloo gathers no parts of different sizes, which experts that tp shares would ask of it.
        "moe_token_dispatcher_type": "allgather" if cpu and mesh.etp > 1 else "alltoall",
    }
    if moe.num_shared_experts:
        found["moe_shared_expert_intermediate_size"] = moe.num_shared_experts * moe.moe_intermediate_size
    if moe.n_group > 1:
        found |= {"moe_router_num_groups": moe.n_group, "moe_router_group_topk": moe.topk_group}
    return found


def model_settings(model: ModelConfig, seq_len: int) -> dict[str, Any]:
    """Arguments of GPTModel beside its configuration, its layers and its place in the pipeline."""
    scaling = model.rope_scaling
    found: dict[str, Any] = {
        "vocab_size": model.vocab_size,
        "max_sequence_length": seq_len,
        "position_embedding_type": "rope",
        "rotary_base": model.rope_theta,
        "share_embeddings_and_output_weights": model.tie_word_embeddings,
    }
    if scaling is not None and model.mla is None:
        if scaling.rope_type == "llama3":
            found |= {"rope_scaling": True, "rope_scaling_factor": scaling.factor}
        elif scaling.rope_type == "yarn":
            found["position_embedding_type"] = "yarn"
        else:
            found["seq_len_interpolation_factor"] = scaling.factor
    return found


def data_parallel_settings(config: Config, mesh: Mesh, *, cpu: bool) -> dict[str, Any]:
    """Fields of DistributedDataParallelConfig."""
    sharded, gathers = shards_optimizer(config, mesh), overlaps_gathering(config, mesh, cpu=cpu)
    settings = {
        "grad_reduce_in_fp32": True,
        "use_distributed_optimizer": sharded,
        "num_distributed_optimizer_instances": optimizer_instances(mesh) if sharded else 1,
        "check_for_nan_in_grad": False,
        "overlap_grad_reduce": overlaps_reduction(config, mesh, cpu=cpu),
        "overlap_param_gather": gathers,
        "align_param_gather": gathers and mesh.vpp > 1,
    }
    return settings | native_fields(config, "ddp")


def optimizer_settings(config: Config, mesh: Mesh, *, cpu: bool) -> dict[str, Any]:
    """Fields of OptimizerConfig; the rate is set anew before each step, and clipping to infinity measures the norm alone."""
    optimizer = config.optimizer
    return {
        "optimizer": "adam",
        "lr": optimizer.lr,
        "min_lr": 0.0,
        "weight_decay": optimizer.weight_decay,
        "adam_beta1": optimizer.beta1,
        "adam_beta2": optimizer.beta2,
        "adam_eps": optimizer.eps,
        "clip_grad": optimizer.clip_grad_norm if optimizer.clip_grad_norm > 0 else math.inf,
        "bf16": config.precision.compute == "bf16",
        "params_dtype": config.precision.compute,
        "use_distributed_optimizer": shards_optimizer(config, mesh),
        "overlap_param_gather": overlaps_gathering(config, mesh, cpu=cpu),
    }
