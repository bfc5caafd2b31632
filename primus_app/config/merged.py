"""Hydra's merge of conf/, kept while only plain values change: a merge costs a hundred milliseconds, a value less than one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

_KEPT: dict[tuple[str, ...], DictConfig] = {}


def forget_merged() -> None:
    """Hydra looks in other folders now."""
    _KEPT.clear()


def merged(config_name: str, overrides: Sequence[str], offered: str) -> DictConfig:
    """What ``hydra.compose`` gives for the same words, errors included; ``offered`` stands for what else Hydra has been told."""
    from hydra import compose
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_overrides(list(overrides))
    values = [override for override in parsed if _is_plain_value(override)]
    others = tuple(override.input_line or "" for override in parsed if not _is_plain_value(override))
    if not _only_groups(others):  # Their order among the values may matter.
        return compose(config_name, overrides=list(overrides))
    key = (offered, config_name, *others)
    if key not in _KEPT:
        _KEPT[key] = compose(config_name, overrides=list(others))
    node = deepcopy(_KEPT[key])
    ConfigLoaderImpl._apply_overrides_to_config(values, node)
    return node


def _is_plain_value(override: Override) -> bool:
    from hydra.core.override_parser.types import OverrideType

    from primus_app.config.kinds import schema_leaves

    plain = override.type == OverrideType.CHANGE and override.package is None and not override.is_sweep_override()
    return plain and override.key_or_group in schema_leaves()


def _only_groups(overrides: Sequence[str]) -> bool:
    return all(text[:1] not in "+~" and "." not in text.partition("=")[0].partition("@")[0] for text in overrides)
