"""The model of an experiment: the one of conf/model/ that its preset stands for, and what is other in the file."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from primus_app.backends.amd_primus.megatron.architecture import DETERMINED, architecture
from primus_app.backends.amd_primus.megatron.fields import MODEL
from primus_app.backends.amd_primus.megatron.settings import Settings
from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.imported.setting import as_typed, setting
from primus_app.backends.imported.text_file import flat
from primus_app.config.location import conf_dir
from primus_app.config.schema import ModelConfig

SECTIONS = ("moe", "mla", "rope_scaling")
NEAREST = {
    "llama": "llama3_8b",
    "qwen2": "qwen2_5_7b",
    "qwen3": "qwen3_8b",
    "qwen3_moe": "qwen3_30b_a3b",
    "mixtral": "mixtral_8x7b",
    "deepseek_v2": "deepseek_v2_lite",
    "deepseek_v3": "deepseek_v3",
}
"""Where a preset of the user's own starts from, by family."""

AUXILIARY = ("aux_loss", "seq_aux_loss", "global_aux_loss")
EXPERT_KEYS = tuple(key for key in MODEL if key.startswith("moe_"))
LATENT_KEYS = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "mscale", "mscale_all_dim", "rope_type")
STRETCH_KEYS = ("rotary_scaling_factor", "original_max_position_embeddings")


def published(name: str) -> dict[str, Any]:
    """The words of a model of conf/model/, with the schema's defaults for the others."""
    keys = yaml.safe_load((conf_dir() / "model" / f"{name}.yaml").read_text(encoding="utf-8"))
    return ModelConfig(**keys).model_dump()


def model_rows(key: str, value: str, base: str | None, settings: Settings) -> Iterator[Row]:
    """A row for the preset, ``key``, and one for each key of a model; ``base`` is the model of conf/model/ it stands for, None for none."""
    words, plain = architecture(settings), architecture(settings.without_file())
    start = base or NEAREST[words["family"]]
    model = published(start)
    of_keys: dict[str, list[str]] = {}
    of_preset = [] if base else [f"model.name={as_typed(value.removesuffix('.yaml'))}"]
    told = []
    for word, override, text in differences(model, words):
        changed = _at(words, word) != _at(plain, word)
        owner = next((each for each in DETERMINED.get(word, ()) if changed and each in settings.given), None)
        if owner:
            of_keys.setdefault(owner, []).append(override)
        else:
            of_preset.append(override)
            told += [text] if word != "init_std" else []
    note = f"Primus' preset is not the published model, which has {', '.join(told)}" if base and told else ""
    if not base:
        note = f"a preset that is no model of conf/model/: {start} with other sizes, its vocabulary too"
    balances = settings["num_experts"] and settings["moe_router_enable_expert_bias"]
    yield Row(key, value, (f"model={start}", *of_preset), note=note)
    for name in MODEL:
        became = tuple(of_keys.get(name, ()))
        if name == "moe_router_enable_expert_bias" and balances:
            became = (*became, "training.load_balancing=expert_bias")
        yield _key_row(name, settings, became)


def differences(model: Mapping[str, Any], words: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Where ``words`` are other than ``model``'s: the word, the override, and what the model has there."""
    for word, value in words.items():
        before = model[word]
        if word in SECTIONS and value is not None and before is not None:
            for name, inner in value.items():
                if before[name] != inner:
                    yield f"{word}.{name}", f"model.{word}.{name}={as_typed(inner)}", f"{word}.{name}={as_typed(before[name])}"
        elif before != value and not (word == "init_std" and not setting("model.init_std", value)):
            text = _section(value) if isinstance(value, dict) else as_typed(value)
            had = f"{word}={as_typed(before)}" if not isinstance(before, dict) else f"{word} of its own"
            yield word, f"model.{word}={text}", had


def _section(section: Mapping[str, Any]) -> str:
    return "{" + ",".join(f"{name}:{as_typed(value)}" for name, value in section.items()) + "}"


def _at(words: Mapping[str, Any], word: str) -> Any:
    return dict(flat(words)).get(word, words.get(word) if "." not in word else None)


def _key_row(name: str, settings: Settings, became: tuple[str, ...]) -> Row:
    value, experts, latent = settings[name], settings["num_experts"], settings["multi_latent_attention"]
    if name in EXPERT_KEYS and not experts:
        return Row(name, value, fate=Fate.NO_MEANING, note="the model has no experts")
    if (name in LATENT_KEYS and not latent) or (name in STRETCH_KEYS and not latent):
        return Row(name, value, fate=Fate.NO_MEANING, note="the model has no latent attention")
    if name in ("hidden_dropout", "attention_dropout") and value:
        return Row(name, value, fate=Fate.DIFFERS, note="nothing is dropped here")
    if name == "norm_epsilon" and became:
        note = "Primus' newest releases leave it at 1e-5: their Megatron calls it layernorm_epsilon"
        return Row(name, value, became, note=note if name in settings.given else "")
    if name == "vocab_size" and value is None:
        return Row(name, value, note="the published model's; Megatron's is the tokenizer's, padded")
    if name == "moe_router_bias_update_rate" and settings["moe_router_enable_expert_bias"] and value != 1e-3:
        return Row(name, value, became, Fate.DIFFERS, "the bias moves by 0.001")
    if name in ("moe_aux_loss_coeff", "moe_router_load_balancing_type"):
        return _auxiliary(name, settings)
    return Row(name, value, became)


def _auxiliary(name: str, settings: Settings) -> Row:
    """One loss over each sequence becomes ours; the selection bias goes before it, since one of the two balances."""
    kinds, coefficients = (_listed(settings[key]) for key in ("moe_router_load_balancing_type", "moe_aux_loss_coeff"))
    losses = [(kind, value) for kind, value in zip(kinds, coefficients, strict=False) if kind in AUXILIARY and value]
    if not losses:
        return Row(name, settings[name], fate=Fate.NO_MEANING, note="its coefficient is 0")
    if settings["moe_router_enable_expert_bias"]:
        note = "one thing balances the experts: the selection bias, without an auxiliary loss"
        return Row(name, settings[name], fate=Fate.DIFFERS, note=note)
    kind, coefficient = next((loss for loss in losses if loss[0] == "seq_aux_loss"), losses[0])
    is_coefficient = name == "moe_aux_loss_coeff"
    became = setting("training.aux_loss_coefficient", float(coefficient)) if is_coefficient else ("training.load_balancing=aux_loss",)
    if len(losses) > 1:
        return Row(name, settings[name], became, Fate.DIFFERS, f"one auxiliary loss is carried out: {kind}")
    # A loss of the micro batch is one of the sequence where it is one sequence.
    same = kind == "seq_aux_loss" or (kind == "aux_loss" and settings["micro_batch_size"] == 1)
    note = "" if same else f"the loss is one of each sequence, {'a micro batch' if kind == 'aux_loss' else 'the global batch'} in Megatron"
    return Row(name, settings[name], became, Fate.SAME if same else Fate.DIFFERS, note)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
