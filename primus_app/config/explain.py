"""What Hydra, OmegaConf or the YAML parser refused, in the words of our messages."""

import re

from primus_app.config.errors import Problem
from primus_app.config.kinds import schema_fields, schema_leaves
from primus_app.config.suggest import did_you_mean, nearest, nearest_keys, where_to_look

CUT = re.compile(r"\s*(Config search path:|Available options in|To append to your|See https?:|full_key:).*", re.DOTALL)
"""Where the part of Hydra's text begins that says nothing here."""

PREFIX = re.compile(r"^\w+ raised while resolving interpolation: ")


def explain(error: Exception) -> Problem:
    """One error of the composition as a problem: where, what, and the nearest legal name."""
    from hydra.errors import MissingConfigException
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, MissingMandatoryValue, OmegaConfBaseException
    from yaml import MarkedYAMLError

    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and cause.full_key:
        near = nearest_keys(cause.full_key, schema_leaves())
        return Problem(cause.full_key, "no such key", did_you_mean(near) or where_to_look(cause.full_key, schema_fields()))
    if isinstance(cause, MissingMandatoryValue) and cause.full_key:
        return Problem(cause.full_key, "has no value: ??? stands for one that must be given", (f"give it: {cause.full_key}=<value>",))
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return Problem(cause.full_key, _text(cause), ("a value ${section.key} is the value of that key, ${oc.env:NAME} of that variable",))
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        return Problem(f"{error.problem_mark.name}:{error.problem_mark.line + 1}", f"is not valid YAML: {error.problem}")
    if isinstance(error, MissingConfigException):
        wanted = (error.missing_cfg_file or "").removesuffix(".yaml")
        group, _, name = wanted.rpartition("/")
        near = nearest(name, error.options or (), cutoff=0.5)
        return Problem("", _text(error), did_you_mean(f"{group}={option}" if group else option for option in near))
    return Problem("", _text(error), ("`primus --help` shows the groups and their options",))


def _text(error: Exception) -> str:
    """The first sentences of Hydra's message, on one line."""
    return " ".join(CUT.sub("", PREFIX.sub("", str(error))).split())
