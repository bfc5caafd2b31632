"""An experiment of Primus to one command line of ours, with an account of every key."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from primus_app.backends.amd_primus import titan
from primus_app.backends.amd_primus.megatron import convert as megatron
from primus_app.backends.amd_primus.megatron.settings import Settings
from primus_app.backends.amd_primus.named import find_module, find_preset
from primus_app.backends.amd_primus.read import META, MODULE, Experiment
from primus_app.backends.imported.converted import Converted, in_file_order
from primus_app.backends.imported.machines import machine_overrides
from primus_app.backends.imported.row import Fate, Row, unknown_row
from primus_app.backends.imported.setting import setting
from primus_app.config.errors import Problem
from primus_app.config.suggest import nearest


def convert(experiment: Experiment, devices: int | None = None) -> Converted:
    """Tell ``experiment`` in our settings; ``devices`` are all that it runs on."""
    module, module_problems = find_module(experiment)
    found, preset_problems = find_preset(experiment)
    if wrong := [*module_problems, *preset_problems]:
        return Converted((), (), tuple(wrong))
    if experiment.framework == "torchtitan":
        rows, cluster, problems = titan.rows(experiment, {**module, **found.settings}, devices)
    else:
        rows, cluster, problems = _megatron(experiment, {**module, **found.settings}, found.base, devices)
    if not rows:
        return Converted((), (), tuple(problems))
    all_rows = [*_outer_rows(experiment), *rows]
    written = {**experiment.outer, **experiment.settings}
    # A later key may say a size anew that the model's preset has said.
    overrides = {override.partition("=")[0]: override for row in all_rows for override in row.became}.values()
    told = (_from_environment(row, experiment) for row in in_file_order(all_rows, written, megatron.OTHER_NAMES))
    return Converted((*overrides, *cluster), tuple(told), tuple(problems))


def _outer_rows(experiment: Experiment) -> Iterator[Row]:
    """Names, folders, framework and presets."""
    for key, value in experiment.outer.items():
        last = key.removeprefix(f"{MODULE}.")
        if key in META:
            yield Row(key, value, setting(key, str(value)))
        elif last == "framework":
            yield Row(key, value, setting("backend.name", value) and (f"backend={value}",))
        elif last == "config":
            yield Row(key, value, note="its settings that are not the defaults here are part of the command")
        elif last == "model" and experiment.framework == "torchtitan":
            yield Row(key, value, note="see model.flavor")
        elif last == "model":
            continue
        elif key.startswith("platform."):
            yield Row(key, value, fate=Fate.NO_MEANING, note="machines are found, or cluster=…")
        else:
            yield unknown_row(key, value, nearest(key, [*META, "platform", f"{MODULE}.overrides"]))


def _megatron(
    experiment: Experiment, presets: Mapping[str, Any], base: str | None, devices: int | None
) -> tuple[list[Row], tuple[str, ...], list[Problem]]:
    settings = Settings(megatron.clean(experiment.settings), megatron.clean(presets))
    problems = [*megatron.value_problems(experiment.path, {**settings.preset, **settings.given})]
    if problems:
        return [], (), problems
    rows = megatron.rows(f"{MODULE}.model", experiment.outer[f"{MODULE}.model"], base, settings)
    return rows, machine_overrides(devices), megatron.model_problems(experiment.path, settings)


def _from_environment(row: Row, experiment: Experiment) -> Row:
    name = experiment.environment.get(row.key)
    return row if name is None else replace(row, note="; ".join(filter(None, [row.note, f"from ${name}"])))
