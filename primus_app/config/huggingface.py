"""From a Hugging Face config.json to the keys of ``model``; what cannot be represented is refused, not dropped."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema.model import Family
from primus_app.config.suggest import did_you_mean, nearest

FAMILIES: tuple[str, ...] = get_args(Family)
MOE_FAMILIES = ("qwen3_moe", "mixtral", "deepseek_v2", "deepseek_v3", "gpt_oss")
MLA_FAMILIES = ("deepseek_v2", "deepseek_v3")
SLIDING_FAMILIES = ("qwen2", "qwen3", "qwen3_moe", "mixtral", "gpt_oss")
DERIVED_HEAD_DIM = ("llama", "qwen2", "qwen3_moe", "mixtral")
"""Families in which transformers takes hidden_size / num_attention_heads where head_dim is missing."""

DEFAULT_ROPE_THETA = {"mixtral": 1000000.0, "gpt_oss": 150000.0}
"""What transformers takes where the file has no rope_theta; 10000 in the other families."""

EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")

ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_dropout": (0.0,),
    "mlp_bias": (False,),
    "attention_bias": (False,),
    "partial_rotary_factor": (1.0,),
    "quantization_config": (None,),
    "decoder_sparse_step": (1,),
    "mlp_only_layers": ([],),
    "moe_layer_freq": (1,),
    "router_jitter_noise": (0.0,),
    "rope_interleave": (True,),
    "use_mrope": (False,),
    "swiglu_alpha": (1.702,),
}
"""Keys of which only one value is supported; it is also what transformers takes where the file has none."""

ONLY_IN: dict[str, dict[str, tuple[Any, ...]]] = {
    "gpt_oss": {"attention_bias": (True,)},
    "deepseek_v2": {"scoring_func": ("softmax",)},
    "deepseek_v3": {"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)},
}

ADVICE = {
    "quantization_config": "to train the same architecture from new weights, remove quantization_config from a copy of the file",
    "attention_dropout": "training has no dropout here; set it to 0 in a copy of the file if that is meant",
    "router_jitter_noise": "training has no router noise here; set it to 0 in a copy of the file if that is meant",
}

HARMLESS = {
    *("architectures", "auto_map", "transformers_version", "torch_dtype", "dtype", "name_or_path", "id2label", "label2id"),
    *("use_cache", "return_dict", "output_attentions", "output_hidden_states", "output_router_logits", "pretraining_tp"),
    *("bos_token_id", "eos_token_id", "pad_token_id"),
    *("ep_size", "aux_loss_alpha", "seq_aux", "router_aux_loss_coef"),
    *("num_nextn_predict_layers", "num_mtp_layers", "qk_head_dim"),
}
"""Keys without bearing on the architecture. How experts are balanced is training.load_balancing, and layers for multi-token
prediction (num_nextn_predict_layers) are dropped, as when transformers trains the model."""

ROPE_KEYS: dict[str, tuple[str, ...]] = {
    "llama3": ("low_freq_factor", "high_freq_factor"),
    "yarn": ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "linear": (),
}
YARN_DEFAULTS = {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": None, "mscale_all_dim": None, "truncate": True}
"""transformers' values where the file has none (modeling_rope_utils)."""

_MISSING: Any = object()


def load_huggingface(path: str) -> dict[str, Any]:
    """The keys of ``model`` for the config.json at ``path``, a file or the folder that holds it.

    Old files (rope_theta, rope_scaling) and those of transformers 5 (rope_parameters) are read alike. The layers for multi-token
    prediction of DeepSeek-V3 are dropped. ``init_std`` is the file's initializer_range; ``name`` is the name of its folder.

    Raises:
        UserError: with everything in the file that is missing, unknown, or an architecture that is not supported.
    """
    file = _find(path)
    data = _read(file)
    family = _family(file, data)
    source = _ConfigJson(str(file), data)
    for key, allowed in {**ONLY, **ONLY_IN.get(family, {})}.items():
        source.only(key, allowed, ADVICE.get(key, ""))
    model = {"name": _name(file), "family": family, **_sizes(source, family), **_rope(source, family), **_attention(source, family)}
    model["moe"] = _moe(source, family) if family in MOE_FAMILIES else None
    source.refuse_unknown()
    if source.problems:
        raise UserError(source.problems)
    return model


@dataclass
class _ConfigJson:
    """One object of the file: hands out its values, and keeps what was wrong and what was never asked for."""

    where: str
    data: dict[str, Any]
    problems: list[Problem] = field(default_factory=list)
    read: set[str] = field(default_factory=lambda: {"model_type"})

    def refuse(self, key: str, what: str, *fix: str) -> None:
        self.problems.append(Problem(f"{self.where}: {key}", what, tuple(line for line in fix if line)))

    def raw(self, key: str) -> Any:
        """The value; a null counts as absent."""
        self.read.add(key)
        return self.data.get(key)

    def only(self, key: str, allowed: tuple[Any, ...], advice: str = "") -> None:
        self.read.add(key)
        value = self.data.get(key)
        if value is not None and not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
            self.refuse(key, f"{_shown(value)} is not supported; only {_shown(allowed[0])} is", advice)

    def integer(self, key: str, default: Any = _MISSING) -> Any:
        return self._typed(key, default, "a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool))

    def number(self, key: str, default: Any = _MISSING) -> Any:
        value = self._typed(key, default, "a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool))
        return float(value) if isinstance(value, int) else value

    def flag(self, key: str, default: Any = _MISSING) -> Any:
        return self._typed(key, default, "true or false", lambda value: isinstance(value, bool))

    def text(self, key: str, default: Any = _MISSING) -> Any:
        return self._typed(key, default, "text", lambda value: isinstance(value, str))

    def same(self, key: str, other: str, value: Any) -> None:
        """``key`` is a second name of what was read as ``value`` under ``other``."""
        again = self.raw(key)
        if again is not None and again != value:
            self.refuse(key, f"{_shown(again)}, but {other} says {_shown(value)}", "remove the wrong one from a copy of the file")

    def refuse_unknown(self) -> None:
        for key in self.data:
            if key not in self.read and key not in HARMLESS and not key.startswith("_"):
                self.refuse(
                    key,
                    f"unknown, and {_shown(self.data[key])} may change the architecture",
                    *did_you_mean(nearest(key, self.read, count=1, cutoff=0.85)),
                    "remove it from a copy of the file if it has no bearing",
                )

    def _typed(self, key: str, default: Any, kind: str, fits: Callable[[Any], bool]) -> Any:
        value = self.raw(key)
        if value is None and default is not _MISSING:
            return default
        if value is None:
            self.refuse(key, "missing; the architecture needs it", f"give {kind}")
        elif not fits(value):
            self.refuse(key, f"{_shown(value)} is not {kind}")
        else:
            return value
        return None


def _find(path: str) -> Path:
    try:
        given = Path(path).expanduser().absolute()
        file = given / "config.json" if given.is_dir() else given
        if file.is_file():
            return file
        inside = sorted(one.parent.name for one in given.glob("*/config.json")) if given.is_dir() else []
    except (OSError, RuntimeError, ValueError) as error:  # a folder closed to us, an unknown ~user, a NUL in the path
        raise UserError(Problem("model.path", f"{path!r} cannot be read: {error}")) from None
    if file == given:
        fix = "give a config.json on this machine, or its folder; a name on the Hugging Face hub is not downloaded"
        raise UserError(Problem("model.path", f"no such file or folder: {given}", (fix,)))
    fix = f"folders in it that have one: {', '.join(inside[:5])}" if inside else "give the folder that holds config.json"
    raise UserError(Problem("model.path", f"no config.json in {given}", (fix,)))


def _read(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except OSError as error:
        raise UserError(Problem(str(file), f"cannot be read: {error.strerror}")) from None
    except (ValueError, RecursionError) as error:
        raise UserError(Problem(str(file), f"not valid JSON: {error}", ("a Hugging Face config.json is one JSON object",))) from None
    if not isinstance(data, dict):
        raise UserError(Problem(str(file), f"holds {_shown(data)}, not one JSON object"))
    return data


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    twins = sorted({key for key in keys if keys.count(key) > 1})
    if twins:
        raise ValueError(f"given twice: {', '.join(twins)}")
    return dict(pairs)


def _family(file: Path, data: dict[str, Any]) -> str:
    found = data.get("model_type")
    if isinstance(found, str) and found in FAMILIES:
        return found
    what = "missing" if found is None else f"{_shown(found)} is not supported"
    near = did_you_mean(nearest(found, FAMILIES, count=1, cutoff=0.8)) if isinstance(found, str) else ()
    raise UserError(Problem(f"{file}: model_type", what, (*near, f"supported: {', '.join(FAMILIES)}")))


def _name(file: Path) -> str:
    folder = file.parent
    if folder.parent.name == "snapshots":  # the hub's cache: models--<owner>--<name>/snapshots/<commit>/config.json
        folder = Path(folder.parent.parent.name.rpartition("--")[2])
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", folder.name).strip("._-") or "model"


def _sizes(source: _ConfigJson, family: str) -> dict[str, Any]:
    keys = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size", "max_position_embeddings")
    sizes = {key: source.integer(key) for key in keys}
    heads = sizes["num_attention_heads"]
    derived = heads if family in ("llama", *MLA_FAMILIES) else _MISSING
    sizes["num_key_value_heads"] = source.integer("num_key_value_heads", derived)
    sizes["mla"] = _mla(source) if family in MLA_FAMILIES else None
    if family in MLA_FAMILIES:
        source.raw("head_dim")  # transformers overwrites it with qk_rope_head_dim
        sizes["head_dim"] = sizes["mla"]["qk_rope_head_dim"]
    else:
        sizes["head_dim"] = _head_dim(source, family, sizes["hidden_size"], heads)
    sizes["rms_norm_eps"] = source.number("rms_norm_eps")
    sizes["tie_word_embeddings"] = source.flag("tie_word_embeddings", False)
    sizes["init_std"] = source.number("initializer_range", 0.02)
    return sizes


def _head_dim(source: _ConfigJson, family: str, hidden: int | None, heads: int | None) -> Any:
    if source.raw("head_dim") is not None or family not in DERIVED_HEAD_DIM:
        return source.integer("head_dim")
    if not hidden or not heads:
        return None
    if hidden % heads:
        source.refuse("head_dim", f"missing, and hidden_size {hidden} is not a multiple of num_attention_heads {heads}", "give head_dim")
    return hidden // heads


def _attention(source: _ConfigJson, family: str) -> dict[str, Any]:
    window, alternate = _sliding(source, family)
    return {
        "attention_qkv_bias": family == "qwen2",
        "attention_bias": family == "gpt_oss",
        "qk_norm": family in ("qwen3", "qwen3_moe"),
        "attention_sinks": family == "gpt_oss",
        "sliding_window": window,
        "sliding_window_alternate": alternate,
        "swiglu_limit": source.number("swiglu_limit", 7.0) if family == "gpt_oss" else None,
    }


def _sliding(source: _ConfigJson, family: str) -> tuple[int | None, bool]:
    """The window, and whether only the even layers have it; other patterns are refused."""
    window = source.integer("sliding_window", None)
    used = source.flag("use_sliding_window", not family.startswith("qwen"))
    first = source.integer("max_window_layers", 28 if family in ("qwen2", "qwen3") else 0)
    types = source.raw("layer_types")
    layers = source.data.get("num_hidden_layers")
    if not isinstance(layers, int) or first is None:
        return None, False
    alternating = [index % 2 == 0 for index in range(layers)]
    if types is not None:
        if not isinstance(types, list) or len(types) != layers or not set(map(str, types)) <= {"sliding_attention", "full_attention"}:
            source.refuse("layer_types", f"not one of full_attention and sliding_attention for each of the {layers} layers")
            return None, False
        pattern = [kind == "sliding_attention" for kind in types]
    elif family == "gpt_oss":
        pattern = alternating
    else:
        pattern = [bool(used and window is not None and index >= first) for index in range(layers)]
    if not any(pattern) and (family in ("qwen2", "qwen3") or not used or window is None):
        return None, False
    if family not in SLIDING_FAMILIES or not used or window is None:
        source.refuse("sliding_window", f"layers of family {family} cannot slide with {_shown(window)} as the window")
    elif pattern == alternating and family == "gpt_oss":
        return window, True
    elif all(pattern) and family != "gpt_oss":
        return window, False
    else:
        legal = "every other layer, beginning with the first," if family == "gpt_oss" else "no layer or every layer"
        source.refuse("sliding_window", f"{sum(pattern)} of {layers} layers slide; only {legal} is supported")
    return None, False


def _rope(source: _ConfigJson, family: str) -> dict[str, Any]:
    old, new = source.raw("rope_scaling"), source.raw("rope_parameters")
    if old is not None and new is not None:
        source.refuse("rope_scaling", "given beside rope_parameters, the later name of the same", "remove one from a copy of the file")
    key = "rope_parameters" if new is not None else "rope_scaling"
    given = new if new is not None else old
    if not given and family == "gpt_oss":
        source.refuse("rope_parameters", "missing; the family stretches its positions by yarn", "give it, or rope_scaling")
    if given is not None and not isinstance(given, dict):
        source.refuse(key, f"{_shown(given)} is not an object")
    given = given if isinstance(given, dict) else {}
    rope = _ConfigJson(f"{source.where}: {key}", given, source.problems, set())
    theta = source.number("rope_theta", None)
    inner = rope.number("rope_theta", theta)
    if theta is not None and inner != theta:
        rope.refuse("rope_theta", f"{_shown(inner)}, but rope_theta beside {key} says {_shown(theta)}")
    scaling = _scaling(rope, source)
    if scaling and family == "gpt_oss":
        source.same("initial_context_length", "original_max_position_embeddings", scaling["original_max_position_embeddings"])
    rope.only("partial_rotary_factor", ONLY["partial_rotary_factor"])
    rope.only("attention_factor", (None,), "it follows from factor, mscale and mscale_all_dim")
    rope.refuse_unknown()
    return {"rope_theta": inner if inner is not None else DEFAULT_ROPE_THETA.get(family, 10000.0), "rope_scaling": scaling}


def _scaling(rope: _ConfigJson, source: _ConfigJson) -> dict[str, Any] | None:
    kind = rope.text("rope_type", rope.text("type", "default"))
    rope.same("type", "rope_type", kind)
    if kind is None or kind == "default":
        return None
    if kind not in ROPE_KEYS:
        rope.refuse("rope_type", f"{_shown(kind)} is not supported", f"supported: default, {', '.join(ROPE_KEYS)}")
        rope.read.update(rope.data)
        return None
    scaling: dict[str, Any] = {"rope_type": kind, "factor": rope.number("factor")}
    # transformers takes the whole context where the file does not say which was the original one (standardize_rope_params).
    whole = source.data.get("max_position_embeddings")
    scaling["original_max_position_embeddings"] = rope.integer("original_max_position_embeddings", whole)
    for key in ROPE_KEYS[kind]:
        default = YARN_DEFAULTS.get(key, _MISSING)
        scaling[key] = rope.flag(key, default) if key == "truncate" else rope.number(key, default)
    return scaling


def _moe(source: _ConfigJson, family: str) -> dict[str, Any]:
    deepseek = family in MLA_FAMILIES
    method = _topk_method(source, family)
    # Where all experts compete the file may leave the groups out.
    groups = 1 if method == "greedy" else _MISSING
    chosen = source.integer("num_experts_per_tok")
    source.same("experts_per_token", "num_experts_per_tok", chosen)
    return {
        "num_experts": _expert_count(source),
        "num_experts_per_tok": chosen,
        "moe_intermediate_size": source.integer("intermediate_size" if family in ("mixtral", "gpt_oss") else "moe_intermediate_size"),
        "num_shared_experts": source.integer("n_shared_experts", 0) if deepseek else 0,
        "first_k_dense_replace": source.integer("first_k_dense_replace") if deepseek else 0,
        "norm_topk_prob": source.flag("norm_topk_prob") if family not in ("mixtral", "gpt_oss") else True,
        "score": "sigmoid" if family == "deepseek_v3" else "softmax",
        "n_group": source.integer("n_group", groups) if deepseek else 1,
        "topk_group": source.integer("topk_group", groups) if deepseek else 1,
        "topk_method": method,
        "routed_scaling_factor": source.number("routed_scaling_factor") if deepseek else 1.0,
        "expert_bias": family == "deepseek_v3",
        "expert_bias_terms": family == "gpt_oss",
    }


def _topk_method(source: _ConfigJson, family: str) -> Any:
    if family == "deepseek_v3":
        return "noaux_tc"
    return source.text("topk_method") if family == "deepseek_v2" else "greedy"


def _expert_count(source: _ConfigJson) -> Any:
    given = [key for key in EXPERT_COUNTS if source.raw(key) is not None]
    count = source.integer(given[0] if given else EXPERT_COUNTS[0])
    for key in given[1:]:
        source.same(key, given[0], count)
    return count


def _mla(source: _ConfigJson) -> dict[str, Any]:
    if "q_lora_rank" not in source.data:
        source.refuse(
            "q_lora_rank", "missing; the architecture needs it", "give a whole number, or null for a direct projection of the query"
        )
    sizes = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {"q_lora_rank": source.integer("q_lora_rank", None), **{key: source.integer(key) for key in sizes}}


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
