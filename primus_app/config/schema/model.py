"""The architecture of a model, in the words of Hugging Face's config.json; no backend's words."""

from typing import Literal

from primus_app.config.schema.base import REQUIRED, Section, how, what

Family = Literal["llama", "qwen2", "qwen3", "qwen3_moe", "mixtral", "deepseek_v2", "deepseek_v3", "gpt_oss"]


class RopeScaling(Section):
    """Stretching of the rotary embedding to longer sequences; None when the model has none."""

    rope_type: Literal["llama3", "yarn", "linear"] = what(REQUIRED, "The rule that stretches the frequencies.")
    factor: float = what(REQUIRED, "How many times longer than the original context.", gt=0)
    original_max_position_embeddings: int = what(REQUIRED, "Context length before the stretching.", unit="tokens", gt=0)
    low_freq_factor: float | None = what(None, "llama3: wavelengths above original/low are stretched fully.", gt=0)
    high_freq_factor: float | None = what(None, "llama3: wavelengths below original/high are left alone.", gt=0)
    beta_fast: float | None = what(None, "yarn: rotations above which a dimension is left alone.", gt=0)
    beta_slow: float | None = what(None, "yarn: rotations below which a dimension is stretched fully.", gt=0)
    mscale: float | None = what(None, "yarn: factor of the attention temperature.", ge=0)
    mscale_all_dim: float | None = what(None, "yarn: factor of the temperature over all dimensions.", ge=0)
    truncate: bool | None = what(None, "yarn: whether the borders of the ramp are rounded to whole dimensions.")


class MoeConfig(Section):
    """Mixture of experts; None for a dense model."""

    num_experts: int = what(REQUIRED, "Routed experts in each layer that has experts.", gt=0)
    num_experts_per_tok: int = what(REQUIRED, "Experts that each token is sent to.", gt=0)
    moe_intermediate_size: int = what(REQUIRED, "Width of one expert's hidden layer.", gt=0)
    num_shared_experts: int = what(0, "Experts that every token passes through.", ge=0)
    first_k_dense_replace: int = what(0, "The first layers that have a dense MLP instead of experts.", ge=0)
    norm_topk_prob: bool = what(True, "Whether the weights of the chosen experts are scaled to sum to 1.")
    score: Literal["softmax", "sigmoid"] = what("softmax", "How the router turns logits into scores.")
    n_group: int = what(1, "Groups that the experts are divided into for group-limited routing.", gt=0)
    topk_group: int = what(1, "Groups that a token may choose its experts from.", gt=0)
    topk_method: Literal["greedy", "group_limited_greedy", "noaux_tc"] = what(
        "greedy", "Choice of experts: over all, within the best groups, or within groups with a selection bias."
    )
    routed_scaling_factor: float = what(1.0, "Factor on the output of the routed experts.", gt=0)
    expert_bias: bool = what(False, "Whether the router has a selection bias (a buffer, not a weight).")
    expert_bias_terms: bool = what(False, "Whether experts and router have bias weights.")


class MlaConfig(Section):
    """Multi-head latent attention; None for plain grouped-query attention."""

    q_lora_rank: int | None = what(None, "Rank of the latent query; None projects the query directly.", gt=0)
    kv_lora_rank: int = what(REQUIRED, "Rank of the latent keys and values.", gt=0)
    qk_nope_head_dim: int = what(REQUIRED, "Part of a query's head without position.", gt=0)
    qk_rope_head_dim: int = what(REQUIRED, "Part of a query's head with rotary position.", gt=0)
    v_head_dim: int = what(REQUIRED, "Width of a value's head.", gt=0)


class ModelConfig(Section):
    """One model: its architecture and how its weights start."""

    name: str = what(REQUIRED, "Name of the model, as in conf/model/.", min_length=1)
    family: Family = what(REQUIRED, "The architecture's family, as Hugging Face's model_type.")
    path: str | None = how(None, "model=hf only: a Hugging Face config.json, or the folder that holds one.")
    num_hidden_layers: int = what(REQUIRED, "Transformer layers.", gt=0)
    hidden_size: int = what(REQUIRED, "Width of the residual stream.", gt=0)
    num_attention_heads: int = what(REQUIRED, "Query heads.", gt=0)
    num_key_value_heads: int = what(REQUIRED, "Key and value heads; fewer than query heads is grouped-query attention.", gt=0)
    head_dim: int = what(REQUIRED, "Width of one attention head.", gt=0)
    intermediate_size: int = what(REQUIRED, "Width of the dense MLP's hidden layer.", gt=0)
    vocab_size: int = what(REQUIRED, "Rows of the embedding table.", unit="tokens", gt=0)
    max_position_embeddings: int = what(REQUIRED, "Longest sequence the model is made for.", unit="tokens", gt=0)
    rope_theta: float = what(10000.0, "Base of the rotary embedding's frequencies.", gt=0)
    rope_scaling: RopeScaling | None = what(None, "Stretching of the rotary embedding.")
    rms_norm_eps: float = what(1e-5, "Epsilon of every RMS norm, the latent ones too.", gt=0)
    tie_word_embeddings: bool = what(False, "Whether the output layer shares the embedding's weights.")
    attention_qkv_bias: bool = what(False, "Whether the query, key and value projections have a bias.")
    attention_bias: bool = what(False, "Whether all four attention projections have a bias.")
    qk_norm: bool = what(False, "Whether queries and keys are normalised per head.")
    attention_sinks: bool = what(False, "Whether each head has a learnt sink logit.")
    sliding_window: int | None = what(None, "Width of the sliding attention window; None attends to everything.", unit="tokens", gt=0)
    sliding_window_alternate: bool = what(False, "Whether only every other layer slides, beginning with the first.")
    swiglu_limit: float | None = what(None, "Bound at which the experts' SwiGLU clips its inputs.", gt=0)
    moe: MoeConfig | None = what(None, "Mixture of experts.")
    mla: MlaConfig | None = what(None, "Multi-head latent attention.")
    init: Literal["seeded", "native"] = what(
        "seeded",
        "seeded: weights from (training.seed, name), the same on every layout and backend; native: the engine's own, which on more than "
        "one rank differ from layout to layout.",
    )
    init_std: float = what(0.02, "Standard deviation of seeded weights; residual outputs divide it by sqrt(2 layers).", gt=0)
