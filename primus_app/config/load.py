"""From a request to one Config, or to every mistake in it at once."""

from contextlib import suppress
from typing import Any

from primus_app.config.compose import Request, compose, compose_node, composition_errors, hydra_ready, offer_huggingface
from primus_app.config.errors import Problem, UserError
from primus_app.config.explain import explain
from primus_app.config.overrides import examine, examine_shape, override_value
from primus_app.config.schema import Config, ModelConfig
from primus_app.config.validate import validate

NO_PATH = Problem("model.path", "model=hf needs it", ("give it: model.path=<a Hugging Face config.json or its folder>",))


def load_config(request: Request, *, hardware: str) -> Config:
    """Compose and validate. ``hardware`` is the option taken where the request leaves hardware=auto.

    Raises:
        UserError: with all mistakes found in the overrides and the values.
    """
    model_problems = _try_to_prepare(request)
    request = with_hardware(_with_length(request), hardware)
    with hydra_ready(request.config_dir):
        data, problems = _compose(request)
        if not model_problems:
            data, model_problems = _read_named_path(request, data)
    found = validate(data)
    if isinstance(found, Config) and not model_problems and not problems:
        return found
    values = found if isinstance(found, list) else []
    raise UserError([*model_problems, *problems, *(each for each in values if not model_problems or not each.where.startswith("model"))])


def prepare_model(request: Request) -> None:
    """Read the config.json that model=hf names, before Hydra composes.

    Raises:
        UserError: for a missing path, and all that is wrong with the file.
    """
    path = override_value(request.overrides, "model.path")
    if override_value(request.overrides, "model") != "hf":
        offer_huggingface({"name": "hf"})
    elif not path:
        raise UserError(NO_PATH)
    else:
        offer_huggingface(_read_model(path))


def _with_length(request: Request) -> Request:
    """Typed tokens take the place of the default number of steps; of a typed one they do not."""
    typed = [override_value(request.overrides, key) for key in ("training.tokens", "training.steps")]
    if typed[0] in (None, "null") or typed[1] is not None:
        return request
    return request.with_overrides([*request.overrides, "training.steps=null"])


def with_hardware(request: Request, hardware: str) -> Request:
    """The request with the detected hardware in place of auto; what was typed or an experiment says wins. After ``prepare_model``."""
    if override_value(request.overrides, "hardware") not in (None, "auto") or _files_choose_hardware(request):
        return request
    typed = [text for text in request.overrides if text.partition("=")[0] != "hardware"]
    return request.with_overrides([f"hardware={hardware}", *typed])


def _files_choose_hardware(request: Request) -> bool:
    if override_value(request.overrides, "hardware") or not (request.config_dir or override_value(request.overrides, "experiment")):
        return False
    with hydra_ready(request.config_dir), suppress(*composition_errors()):
        hardware = compose_node(request)["hardware"]
        return bool(hardware and hardware["name"] != "auto")
    return False


def _try_to_prepare(request: Request) -> list[Problem]:
    try:
        prepare_model(request)
    except UserError as error:
        # All keys without values, so that the other overrides can still be looked at.
        offer_huggingface(dict.fromkeys(ModelConfig.model_fields))
        return list(error.problems)
    return []


def _read_named_path(request: Request, data: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Read the config.json that a file, not the command line, names; refuse a path that nobody reads."""
    if override_value(request.overrides, "model") == "hf" or not isinstance(data.get("model"), dict):
        return data, []
    name, path = data["model"].get("name"), data["model"].get("path")
    if name != "hf":
        typed = path and override_value(request.overrides, "model.path")
        return data, [Problem(f"model.path={path}", f"has no effect on model={name}", ("add model=hf to read it",))] if typed else []
    if not path:
        return data, [NO_PATH]
    try:
        offer_huggingface(_read_model(path))
    except UserError as error:
        return data, list(error.problems)
    return _compose(request)


def _read_model(path: str) -> dict[str, Any]:
    from primus_app.config.huggingface import load_huggingface

    return {**load_huggingface(path), "path": path}


def _compose(request: Request) -> tuple[dict[str, Any], list[Problem]]:
    """What the overrides without mistakes compose to, and the mistakes of the others.

    Raises:
        UserError: with those and the reason, where nothing can be composed.
    """
    shape = examine_shape(request, multirun=False)
    problems, request = list(shape.problems), request.with_overrides(shape.good)
    try:
        return compose(request), problems
    except composition_errors() as error:
        first = error
    try:
        examined = examine(request, multirun=False)
        problems += examined.problems
        if not examined.problems:
            raise UserError([*problems, explain(first)])
        return compose(request.with_overrides(examined.good)), problems
    except composition_errors() as error:
        raise UserError([*problems, explain(error)]) from None
