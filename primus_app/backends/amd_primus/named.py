"""The presets that an experiment names: read where they are in reach, else known by name."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from primus_app.backends.amd_primus.presets import BASES, FP8_ENDING, MEGATRON, OTHER_KINDS, TITAN
from primus_app.backends.amd_primus.read import MODULE, Experiment, in_reach, missing_variables, stem
from primus_app.backends.amd_primus.yaml_file import EXTENDS, Substituted, beside, extended, merged, read_yaml, substitute
from primus_app.backends.imported.text_file import flat
from primus_app.config.errors import Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest

TITAN_MODULE: dict[str, Any] = {
    "training.mock_data": True,
    "training.dataset": "c4",
    "activation_checkpoint.mode": "none",
    "compile.enable": True,
    "quantize.linear.mx.recipe_name": "mxfp8_cublas",
    "quantize.linear.mx.filter_fqns": ["output"],
}
"""Where Primus' pre_trainer.yaml for TorchTitan is other than TorchTitan's defaults."""

MODULES: dict[str, dict[str, dict[str, Any]]] = {
    "megatron": {"pre_trainer": {}, "trainer_base": {}},
    "torchtitan": {"pre_trainer": TITAN_MODULE},
}
"""Module presets by framework; that for Megatron is what fields.py has as defaults."""

FINE_TUNING = ("sft_trainer", "post_trainer")
ELSEWHERE = "model=hf model.path=<its config.json>, where its family is one of those here"
OWN_FILE = "a preset of your own is read where it lies beside the experiment, or the experiment in a checkout of Primus"


@dataclass(frozen=True)
class Found:
    """A preset: the model of conf/model/ that it stands for, None where there is none, and its settings."""

    base: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def find_preset(experiment: Experiment) -> tuple[Found, list[Problem]]:
    """The model's preset."""
    name, framework = experiment.model, experiment.framework
    if file := in_reach(experiment.path, "models", framework, name):
        try:
            return _read(file, framework), []
        except UserError as error:
            return Found(), list(error.problems)
    if known := _known(name, framework):
        return known, []
    return Found(), [_unknown(experiment)]


def find_module(experiment: Experiment) -> tuple[dict[str, Any], list[Problem]]:
    """What the module's preset sets beside the defaults."""
    name, framework = experiment.config, experiment.framework
    if name is None:
        return {}, []
    if file := in_reach(experiment.path, "modules", framework, name):
        try:
            return dict(_read(file, framework, MODULES[framework]).settings), []
        except UserError as error:
            return {}, list(error.problems)
    if name in MODULES[framework]:
        return MODULES[framework][name], []
    where = f"{experiment.path}: {MODULE}.config"
    if name in FINE_TUNING:
        return {}, [Problem(where, f"{name}.yaml is for fine-tuning; only pre-training is read", (f"{MODULE}.config: pre_trainer.yaml",))]
    near = did_you_mean(f"{each}.yaml" for each in nearest(name, MODULES[framework]))
    return {}, [Problem(where, f"{name}.yaml is no preset known here, nor in reach", near or (OWN_FILE,))]


def _known(name: str, framework: str) -> Found | None:
    if framework == "megatron":
        preset = MEGATRON.get(name)
        return None if preset is None else Found(preset.model, preset.settings)
    plain = name.removesuffix(FP8_ENDING)
    if plain not in TITAN:
        return None
    model, flavor, assets = TITAN[plain]
    converters = [] if plain == name else ["quantize.linear.float8"]
    return Found(plain, {"model.name": model, "model.flavor": flavor, "model.hf_assets_path": assets, "model.converters": converters})


def _unknown(experiment: Experiment) -> Problem:
    name, where = experiment.model, f"{experiment.path}: {MODULE}.model"
    known: Iterable[str] = MEGATRON if experiment.framework == "megatron" else TITAN
    near = nearest(name, known, cutoff=0.75)
    kind = next((OTHER_KINDS[start] for start in OTHER_KINDS if name.lower().startswith(start)), None)
    if kind:
        return Problem(where, f"{name}.yaml: {kind} is not trained here", (ELSEWHERE,))
    if name in BASES:
        return Problem(where, f"{name}.yaml is what models extend, and no model", ("name a model",))
    return Problem(where, f"{name}.yaml is no preset known here, nor in reach", (*did_you_mean(f"{each}.yaml" for each in near), OWN_FILE))


def _read(path: str, framework: str, modules: Mapping[str, Mapping[str, Any]] | None = None) -> Found:
    """A preset's file with those that it extends; a file that is not there may be one that is known by name."""
    told = Substituted()
    keys = substitute(read_yaml(path), os.environ, told)
    if told.missing:
        raise UserError(missing_variables(path, told))
    base, below = None, dict[str, Any]()
    for name in extended(keys):
        found = _extended(path, name, framework, modules)
        base, below = found.base or base, merged(below, found.settings)
    own = dict(flat({key: value for key, value in keys.items() if key not in EXTENDS}))
    known = _known(stem(Path(path).name), framework)
    return Found(known.base if known else base, {**below, **own})


def _extended(path: str, name: str, framework: str, modules: Mapping[str, Mapping[str, Any]] | None) -> Found:
    file = beside(path, name)
    if Path(file).is_file() and not os.path.samefile(file, path):
        return _read(file, framework, modules)
    plain = stem(Path(name).name)
    if modules is not None and plain in modules:
        return Found(None, modules[plain])
    if plain in BASES and framework == "megatron":
        return Found(None, BASES[plain])
    if known := _known(plain, framework):
        return known
    near = did_you_mean(f"{each}.yaml" for each in nearest(plain, [*BASES, *MEGATRON] if framework == "megatron" else TITAN))
    raise UserError(Problem(f"{path}: extends", f"{name} is not there, and no preset known here", near))
