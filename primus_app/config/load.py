"""From a request to one Config, or to every mistake in it at once."""

from primus_app.config.compose import Request, compose, hydra_ready, offer_huggingface
from primus_app.config.errors import Problem, UserError
from primus_app.config.overrides import examine, override_value
from primus_app.config.schema import Config
from primus_app.config.validate import validate


def load_config(request: Request, *, hardware: str) -> Config:
    """Compose and validate. ``hardware`` is the option taken where the request leaves hardware=auto.

    Raises:
        UserError: with all mistakes found in the overrides and the values.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    prepare_model(request)
    request = with_hardware(request, hardware)
    with hydra_ready():
        problems: tuple[Problem, ...] = ()
        try:
            data = compose(request)
        except (HydraException, OmegaConfBaseException) as error:
            examined = examine(request, multirun=False)
            problems = examined.problems or (_unexplained(error),)
            if not examined.problems:
                raise UserError(problems) from None
            data = compose(request.with_overrides(examined.good))
    found = _check(data, hardware)
    if isinstance(found, Config) and not problems:
        return found
    raise UserError([*problems, *(found if isinstance(found, list) else [])])


def prepare_model(request: Request) -> None:
    """Read the config.json that model=hf names, before Hydra composes."""
    path = override_value(request.overrides, "model.path")
    if override_value(request.overrides, "model") == "hf" and path:
        from primus_app.config.huggingface import load_huggingface

        offer_huggingface({**load_huggingface(path), "path": path})
    else:
        offer_huggingface({"name": "hf"})


def with_hardware(request: Request, hardware: str) -> Request:
    """The request with the detected hardware in place of auto; what was typed wins."""
    if override_value(request.overrides, "hardware") not in (None, "auto"):
        return request
    typed = [text for text in request.overrides if text != "hardware=auto"]
    return request.with_overrides([f"hardware={hardware}", *typed])


def _check(data: dict[str, object], hardware: str) -> Config | list[Problem]:
    model = data.get("model")
    if isinstance(model, dict) and model.get("name") == "hf" and not model.get("path"):
        return [Problem("model.path", "model=hf needs it", ("give it: model.path=<a Hugging Face config.json or its folder>",))]
    return validate(data)


def _unexplained(error: Exception) -> Problem:
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return Problem("", text, ("`primus --help` shows the groups and their options",))
