"""config.json files as published, as transformers writes them, and as they should not be."""

import json
from pathlib import Path
from typing import Any

import pytest

from primus_app.config.errors import UserError
from primus_app.config.huggingface import load_huggingface
from primus_app.config.schema import ModelConfig
from primus_app.plan.model_rules import check_model
from primus_app.plan.parameters import count_parameters

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.01,
    "intermediate_size": 96,
    "max_position_embeddings": 2048,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.31.0.dev0",
    "use_cache": True,
    "vocab_size": 320,
}
"""The keys that Llama 2 was published with, at a small size."""

QWEN3: dict[str, Any] = {
    **{key: value for key, value in LLAMA.items() if key != "architectures"},
    "model_type": "qwen3",
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 2,
    "attention_bias": False,
}

DEEPSEEK_V3: dict[str, Any] = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "attention_bias": False,
    "attention_dropout": 0.0,
    "ep_size": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "moe_intermediate_size": 32,
    "moe_layer_freq": 1,
    "n_group": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_experts_per_tok": 4,
    "num_key_value_heads": 4,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 512,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "v_head_dim": 16,
}

GPT_OSS: dict[str, Any] = {
    **LLAMA,
    "model_type": "gpt_oss",
    "attention_bias": True,
    "experts_per_token": 2,
    "head_dim": 16,
    "initial_context_length": 512,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_experts_per_tok": 2,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 4.0,
        "original_max_position_embeddings": 512,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 150000,
    "router_aux_loss_coef": 0.9,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
}


def write(folder: Path, data: Any) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "config.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return file


def load(folder: Path, data: Any) -> ModelConfig:
    model = ModelConfig(**load_huggingface(str(write(folder, data))))
    assert check_model(model) == []
    return model


def refusal(folder: Path, data: Any) -> str:
    with pytest.raises(UserError) as caught:
        load_huggingface(str(write(folder, data)))
    return str(caught.value)


def test_llama2_as_published(tmp_path: Path) -> None:
    model = load(tmp_path / "Llama-2 tiny", LLAMA)
    assert (model.name, model.family) == ("Llama-2_tiny", "llama")
    assert (model.num_key_value_heads, model.head_dim, model.rope_theta) == (4, 16, 10000.0)
    assert (model.init_std, model.rope_scaling, model.moe, model.mla) == (0.01, None, None, None)


def test_file_and_folder_are_the_same(tmp_path: Path) -> None:
    file = write(tmp_path / "here", LLAMA)
    assert load_huggingface(str(file)) == load_huggingface(str(file.parent))


def test_name_from_the_hubs_cache(tmp_path: Path) -> None:
    commit = tmp_path / "models--meta-llama--Llama-3.1-8B" / "snapshots" / "0e9e39f249a16976918f6564b8830bc894c89659"
    commit.mkdir(parents=True)
    assert load(commit, LLAMA).name == "Llama-3.1-8B"


def test_old_and_new_rope_are_the_same(tmp_path: Path) -> None:
    llama3 = {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 512,
        "rope_type": "llama3",
    }
    old = load(tmp_path, {**LLAMA, "rope_theta": 500000.0, "rope_scaling": llama3})
    new = load(tmp_path, {**LLAMA, "rope_parameters": {**llama3, "rope_theta": 500000.0}})
    assert old == new
    assert old.rope_theta == 500000.0
    assert old.rope_scaling is not None
    assert old.rope_scaling.model_dump(exclude_none=True) == llama3


def test_deepseek_v3_as_published(tmp_path: Path) -> None:
    model = load(tmp_path, DEEPSEEK_V3)
    assert model.moe is not None
    assert model.mla is not None
    assert model.rope_scaling is not None
    assert (model.moe.score, model.moe.topk_method, model.moe.expert_bias) == ("sigmoid", "noaux_tc", True)
    assert (model.moe.num_experts, model.moe.num_shared_experts, model.mla.q_lora_rank, model.head_dim) == (8, 1, 24, 8)
    assert (model.rope_scaling.rope_type, model.rope_scaling.truncate, model.rope_scaling.mscale) == ("yarn", True, 1.0)


def test_gpt_oss_as_published(tmp_path: Path) -> None:
    model = load(tmp_path, GPT_OSS)
    assert model.moe is not None
    assert (model.sliding_window, model.sliding_window_alternate, model.attention_sinks) == (128, True, True)
    assert (model.moe.num_experts, model.moe.moe_intermediate_size, model.moe.expert_bias_terms) == (4, 96, True)


def test_window_that_no_layer_uses_is_no_window(tmp_path: Path) -> None:
    """Qwen2.5 was published with a sliding_window that is switched off."""
    assert load(tmp_path, {**QWEN3, "sliding_window": 4096}).sliding_window is None
    assert load(tmp_path, {**QWEN3, "sliding_window": 128, "use_sliding_window": True}).sliding_window is None
    assert load(tmp_path, {**QWEN3, "sliding_window": 128, "use_sliding_window": True, "max_window_layers": 0}).sliding_window == 128


UNSUPPORTED = [
    (LLAMA, {"attention_bias": True}, "attention_bias: true is not supported; only false is"),
    (LLAMA, {"mlp_bias": True}, "mlp_bias: true"),
    (LLAMA, {"hidden_act": "gelu"}, 'hidden_act: "gelu" is not supported; only "silu" is'),
    (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5"),
    (LLAMA, {"quantization_config": {"quant_method": "fp8"}}, "remove quantization_config from a copy"),
    (LLAMA, {"attention_dropout": 0.1}, "training has no dropout"),
    (LLAMA, {"sliding_window": 128}, "sliding_window: layers of family llama cannot slide"),
    (LLAMA, {"layer_types": ["sliding_attention", "full_attention"]}, "sliding_window: layers of family llama cannot slide"),
    (LLAMA, {"clip_qkv": 8.0}, "clip_qkv: unknown, and 8.0 may change the architecture"),
    (LLAMA, {"hiden_size": 64}, "did you mean hidden_size?"),
    (LLAMA, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'rope_type: "dynamic" is not supported'),
    (LLAMA, {"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2.0}}, 'type: "linear", but rope_type says "yarn"'),
    (LLAMA, {"rope_scaling": {"rope_type": ["yarn"]}}, 'rope_type: ["yarn"] is not text'),
    (LLAMA, {"rope_scaling": "yarn"}, 'rope_scaling: "yarn" is not an object'),
    (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.5}}, "attention_factor: 1.5"),
    (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "finetuned": True}}, "finetuned: unknown"),
    (LLAMA, {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention: unknown"),
    (LLAMA, {"rope_parameters": {"rope_theta": 5.0}, "rope_theta": 6.0}, "rope_theta: 5.0, but rope_theta beside rope_parameters says 6.0"),
    (LLAMA, {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor: 0.5"),
    (LLAMA, {"hidden_size": "64"}, 'hidden_size: "64" is not a whole number'),
    (LLAMA, {"hidden_size": 65}, "hidden_size 65 is not a multiple of num_attention_heads 4"),
    (LLAMA, {"vocab_size": None}, "vocab_size: missing"),
    (QWEN3, {"head_dim": None}, "head_dim: missing"),
    (QWEN3, {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, "1 of 2 layers slide"),
    (DEEPSEEK_V3, {"moe_layer_freq": 2}, "moe_layer_freq: 2"),
    (DEEPSEEK_V3, {"scoring_func": "softmax"}, 'scoring_func: "softmax"'),
    (DEEPSEEK_V3, {"rope_interleave": False}, "rope_interleave: false"),
    (DEEPSEEK_V3, {"num_local_experts": 4}, "num_local_experts says 4"),
    (DEEPSEEK_V3, {"n_group": None}, "n_group: missing"),
    (GPT_OSS, {"swiglu_alpha": 1.0}, "swiglu_alpha: 1.0"),
    (GPT_OSS, {"attention_bias": False}, "attention_bias: false is not supported; only true is"),
    (GPT_OSS, {"layer_types": ["full_attention", "sliding_attention"]}, "only every other layer, beginning with the first"),
    (GPT_OSS, {"layer_types": ["full_attention"]}, "for each of the 2 layers"),
    (GPT_OSS, {"experts_per_token": 3}, "experts_per_token: 3, but num_experts_per_tok says 2"),
    (GPT_OSS, {"initial_context_length": 4096}, "initial_context_length: 4096"),
    (GPT_OSS, {"rope_scaling": None}, "rope_parameters: missing"),
    (GPT_OSS, {"sliding_window": None}, "cannot slide with null as the window"),
]


@pytest.mark.parametrize(
    ("base", "change", "message"), UNSUPPORTED, ids=lambda value: "-".join(value)[:40] if isinstance(value, dict) else ""
)
def test_what_cannot_be_represented_is_refused(tmp_path: Path, base: dict[str, Any], change: dict[str, Any], message: str) -> None:
    assert message in refusal(tmp_path, {**base, **change})


def test_moe_patterns_of_qwen3_are_refused(tmp_path: Path) -> None:
    moe = {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
    assert load(tmp_path, {**QWEN3, **moe, "decoder_sparse_step": 1, "mlp_only_layers": []}).moe is not None
    text = refusal(tmp_path, {**QWEN3, **moe, "decoder_sparse_step": 2, "mlp_only_layers": [0]})
    assert "decoder_sparse_step: 2 is not supported; only 1 is" in text
    assert "mlp_only_layers: [0] is not supported; only [] is" in text


def test_everything_wrong_is_named_at_once(tmp_path: Path) -> None:
    data = {key: value for key, value in LLAMA.items() if key not in ("hidden_size", "rms_norm_eps")}
    text = refusal(tmp_path, {**data, "mlp_bias": True, "alibi": True})
    assert all(key in text for key in ("hidden_size: missing", "rms_norm_eps: missing", "mlp_bias", "alibi"))
    assert str(tmp_path / "config.json") in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "holds [], not one JSON object"),
        ('{"model_type": "llama", "rope_theta": NaN}', "NaN is not a number of JSON"),
        ('{"model_type": "llama", "hidden_size": 1, "hidden_size": 2}', "given twice: hidden_size"),
        ("{}", "model_type: missing"),
        ('{"model_type": "lama"}', "did you mean llama?"),
        ('{"model_type": ["llama"]}', 'model_type: ["llama"] is not supported'),
        ('{"model_type": "gpt2"}', "supported: llama, qwen2"),
        ("[" * 100000, "not valid JSON"),
    ],
)
def test_what_is_no_config(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text)


def test_what_is_not_there(tmp_path: Path) -> None:
    write(tmp_path / "inner", LLAMA)
    with pytest.raises(UserError, match=r"no config.json in .*\n.*have one: inner"):
        load_huggingface(str(tmp_path))
    with pytest.raises(UserError, match="hub is not downloaded"):
        load_huggingface("meta-llama/Llama-3.1-8B")
    for path in ("~nobody-of-this-name/x", "a\0b", "x" * 5000):
        with pytest.raises(UserError, match=r"model\.path"):
            load_huggingface(path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not valid JSON"):
        load_huggingface(str(tmp_path))


SIZES = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4}
GROUPED = {**SIZES, "num_key_value_heads": 2}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "rope_theta": 10000.0}
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24, "moe_intermediate_size": 32}
EXPERTS = {**SIZES, **LATENT, "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 1}
WRITTEN = [
    ("llama", {**GROUPED, "tie_word_embeddings": True}),
    ("qwen2", GROUPED),
    ("qwen3", {**GROUPED, "head_dim": 32, "tie_word_embeddings": True}),
    ("qwen3_moe", {**GROUPED, "head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}),
    ("mixtral", {**GROUPED, "num_local_experts": 4}),
    ("deepseek_v2", {**EXPERTS, "q_lora_rank": None, "n_shared_experts": 2, "rope_parameters": YARN}),
    ("deepseek_v2", {**EXPERTS, "q_lora_rank": 24, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}),
    ("deepseek_v3", {**EXPERTS, "q_lora_rank": 24, "n_group": 4, "topk_group": 2, "rope_parameters": YARN}),
    ("gpt_oss", {**GROUPED, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "words"), WRITTEN)
def test_what_transformers_writes_is_read(tmp_path: Path, family: str, words: dict[str, Any]) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **words)
    config.save_pretrained(tmp_path)
    model = ModelConfig(**load_huggingface(str(tmp_path)))
    assert check_model(model) == []
    for key in ("hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings"):
        assert getattr(model, key) == getattr(config, key)
    assert model.rope_theta == config.rope_parameters["rope_theta"]
    with torch.device("meta"):
        twin = AutoModelForCausalLM.from_config(config)
    assert count_parameters(model).total == sum(weight.numel() for weight in twin.parameters())
