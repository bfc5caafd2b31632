"""An experiment's settings for Megatron to rows: what each became, and what is wrong with them."""

from collections.abc import Iterator, Mapping
from typing import Any

from primus_app.backends.amd_primus.megatron import architecture, keeping, layout, model, recipe
from primus_app.backends.amd_primus.megatron.fields import FIELDS, OTHER_NAMES
from primus_app.backends.amd_primus.megatron.others import OTHERS
from primus_app.backends.amd_primus.megatron.settings import Settings
from primus_app.backends.imported.field import wrong_value
from primus_app.backends.imported.row import Fate, Row, unknown_row
from primus_app.config.errors import Problem
from primus_app.config.suggest import nearest


def clean(values: Mapping[str, Any]) -> dict[str, Any]:
    """Under Primus' names; 0 and 1 where Megatron takes a truth, as it does."""
    named = {OTHER_NAMES.get(key, key): value for key, value in values.items()}
    return {key: bool(value) if _is_truth(key, value) else value for key, value in named.items()}


def _is_truth(key: str, value: Any) -> bool:
    return key in FIELDS and FIELDS[key].type is bool and isinstance(value, int) and value in (0, 1)


def value_problems(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Values that a key does not take."""
    for key, value in values.items():
        if key not in FIELDS:
            continue
        for problem in wrong_value(f"{path}: {key}", FIELDS[key], value):
            number = isinstance(value, str) and value.replace("e-", "e").replace("e", "", 1).isdigit()
            fix = (f"YAML reads {value} as text: write {value.replace('e', '.0e')}",) if number else problem.fix
            yield Problem(problem.where, problem.what, fix)


def model_problems(path: str, settings: Settings) -> list[Problem]:
    """What of the model cannot be said here."""
    return list(architecture.problems(path, settings))


def rows(key: str, preset: str, base: str | None, settings: Settings) -> list[Row]:
    """A row for the model's preset, for each key that is told in our settings, and for each other key that is given."""
    return [
        *model.model_rows(key, preset, base, settings),
        *keeping.data_rows(settings),
        *layout.layout_rows(settings),
        *recipe.batch_rows(settings),
        *recipe.optimizer_rows(settings),
        *recipe.precision_rows(settings),
        *layout.recompute_rows(settings),
        *keeping.checkpoint_rows(settings),
        *keeping.log_rows(settings),
        *(other_row(name, value) for name, value in {**settings.preset, **settings.given}.items() if name not in FIELDS),
    ]


def other_row(key: str, value: Any) -> Row:
    """A key that is not told in our settings: why, or what it may have meant."""
    known = OTHERS.get(key)
    if known is None:
        return unknown_row(key, value, nearest(key, [*FIELDS, *OTHERS], cutoff=0.7))
    matters = known.matters and value != known.neutral
    return Row(key, value, fate=Fate.DIFFERS if matters else Fate.NO_MEANING, note=known.note)
