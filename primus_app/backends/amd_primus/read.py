"""An experiment of Primus: the module that trains, its settings and where they come from; or everything that is wrong with it."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primus_app.backends.amd_primus.yaml_file import EXTENDS, Substituted, beside, extended, merged, read_yaml, substitute
from primus_app.backends.imported.text_file import flat
from primus_app.config.errors import Problem, UserError
from primus_app.config.suggest import did_you_mean, nearest

FRAMEWORKS = ("megatron", "torchtitan")
META = ("work_group", "user_name", "exp_name", "workspace")
RESERVED = ("name", "framework", "config", "model", "overrides", "params")
"""Keys of a module that are not settings."""

MODULE = "modules.pre_trainer"


@dataclass(frozen=True)
class Experiment:
    """One file of Primus.

    Attributes:
        path: the file.
        framework: megatron or torchtitan.
        outer: its keys beside the settings, dotted, in order.
        settings: what it sets, dotted, in order.
        model: the name of its model preset, without .yaml.
        config: the name of its module preset, without .yaml; None where the file has all settings itself.
        environment: variables of the environment that gave a value, by key.
    """

    path: str
    framework: str
    outer: dict[str, Any]
    settings: dict[str, Any]
    model: str
    config: str | None
    environment: dict[str, str]


def read_experiment(path: str, environment: Mapping[str, str] | None = None) -> Experiment:
    """Read an experiment and the files that it extends.

    Raises:
        UserError: for a missing or broken file, one that is no experiment, and all that is wrong with its outer keys at once.
    """
    told = Substituted()
    keys = read_with_extended(path, told, os.environ if environment is None else environment)
    if problems := [*missing_variables(path, told), *_outer_problems(path, keys)]:
        raise UserError(problems)
    module = keys["modules"]["pre_trainer"]
    outer = {key: value for key, value in keys.items() if key != "modules"}
    outer |= {f"{MODULE}.{key}": value for key, value in module.items() if key in RESERVED and key not in ("overrides", "params")}
    settings = dict(flat(module.get("overrides") or {}))
    rest = {key: value for key, value in module.items() if key not in RESERVED}
    settings |= dict(flat(rest))
    config = module.get("config")
    return Experiment(
        path,
        module["framework"],
        dict(flat(outer)),
        settings,
        stem(module["model"]),
        stem(config) if config else None,
        {_short(key): name for key, name in told.taken.items()},
    )


def read_with_extended(path: str, told: Substituted, environment: Mapping[str, str], above: tuple[str, ...] = ()) -> dict[str, Any]:
    """The keys of a file on top of those of the files that it extends.

    Raises:
        UserError: for a file that cannot be read, or that extends itself.
    """
    real = os.path.realpath(os.path.expanduser(path))
    if real in above:
        raise UserError(Problem(path, "extends itself, by way of the files that it names", ("leave one of the names out",)))
    keys = substitute(read_yaml(path), environment, told)
    below: dict[str, Any] = {}
    for name in extended(keys):
        below = merged(below, read_with_extended(beside(path, name), told, environment, (*above, real)))
    return merged(below, {key: value for key, value in keys.items() if key not in EXTENDS})


def in_reach(path: str, kind: str, framework: str, name: str) -> str | None:
    """The file of a preset: beside the experiment, or in the checkout of Primus that the experiment lies in. Experiments are none."""
    folder = Path(path).expanduser().absolute().parent
    places = [folder, *(each / "primus" / "configs" / kind / framework for each in (folder, *folder.parents))]
    return next((str(file) for place in places if (file := place / f"{name}.yaml").is_file() and not _is_experiment(file)), None)


def _is_experiment(file: Path) -> bool:
    return any(line.startswith("modules:") for line in file.read_text(encoding="utf-8", errors="replace").splitlines())


def _short(key: str) -> str:
    """A key as the account has it: settings by their own names."""
    inner = key.removeprefix(f"{MODULE}.")
    return key if inner == key or inner in RESERVED else inner.removeprefix("overrides.")


def stem(name: str) -> str:
    """A preset's name without .yaml."""
    return name.removesuffix(".yaml").removesuffix(".yml")


def missing_variables(path: str, told: Substituted) -> list[Problem]:
    """Variables of the environment that the file needs and that are not set."""
    problems = []
    for key, name in told.missing:
        fix = (f"{name}=<value> before the command, or a default in the file: ${{{name}:<value>}}",)
        problems.append(Problem(f"{path}: {key}", f"needs the environment's variable {name}, which is not set", fix))
    return problems


def _outer_problems(path: str, keys: Mapping[str, Any]) -> Iterator[Problem]:
    modules = keys.get("modules")
    if not isinstance(modules, dict):
        what = "is no experiment of Primus: it has no modules"
        yield Problem(path, what, ("its experiments have work_group, user_name, exp_name, workspace and modules.pre_trainer",))
        return
    for key in META:
        if keys.get(key) is None:
            near = did_you_mean(nearest(key, [each for each in keys if each not in META]))
            yield Problem(f"{path}: {key}", "is missing, which Primus refuses too", near or (f"give {key}",))
    for name in modules:
        if name == "post_trainer":
            yield Problem(f"{path}: modules.{name}", "is fine-tuning; only pre-training is read", ("leave it out",))
        elif name != "pre_trainer":
            near = did_you_mean(f"modules.{each}" for each in nearest(name, ["pre_trainer"], cutoff=0.75))
            yield Problem(f"{path}: modules.{name}", "Primus has no such module", near or ("leave it out",))
    if "pre_trainer" in modules:
        yield from _module_problems(path, modules["pre_trainer"])
    elif not modules:
        yield Problem(f"{path}: {MODULE}", "is missing", ("give it, with framework, config, model and overrides",))


def _module_problems(path: str, module: Any) -> Iterator[Problem]:
    if not isinstance(module, dict):
        yield Problem(f"{path}: {MODULE}", "has no keys", ("give framework, config, model and overrides",))
        return
    for key in ("framework", "model"):
        if not isinstance(module.get(key), str):
            near = did_you_mean(f"{MODULE}.{each}" for each in nearest(key, [each for each in module if each not in RESERVED]))
            yield Problem(f"{path}: {MODULE}.{key}", "is missing, or no text", near or (f"give {key}",))
    framework = module.get("framework")
    if isinstance(framework, str) and framework not in FRAMEWORKS:
        near = did_you_mean(nearest(framework, FRAMEWORKS, cutoff=0.75))
        what = f"{framework!r} has no counterpart here"
        yield Problem(f"{path}: {MODULE}.framework", what, near or (f"frameworks that are told: {' and '.join(FRAMEWORKS)}",))
    if not isinstance(module.get("overrides") or {}, dict):
        yield Problem(f"{path}: {MODULE}.overrides", "has no keys", ("give each setting as a key with a value",))
