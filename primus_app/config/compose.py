"""Hydra's part: conf/ and the overrides merged into plain data; nothing past this file sees a DictConfig."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from primus_app.config.location import conf_dir

if TYPE_CHECKING:
    from omegaconf import DictConfig

RESERVED_GROUPS = ("hydra", "huggingface")
"""Groups that are not the user's to choose from."""


@dataclass(frozen=True)
class Request:
    """What was typed, without the verb and its own flags."""

    overrides: tuple[str, ...] = ()
    config_name: str = "config"
    config_dir: str | None = None

    def with_overrides(self, overrides: Sequence[str]) -> Request:
        return Request(tuple(overrides), self.config_name, self.config_dir)


@contextmanager
def hydra_ready() -> Iterator[None]:
    """Hydra initialised on conf/, and put back as it was; may be nested."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = outer


def compose(request: Request) -> dict[str, Any]:
    """Merge and resolve; raises HydraException or OmegaConfBaseException for what Hydra refuses."""
    from omegaconf import OmegaConf

    data = OmegaConf.to_container(compose_node(request), resolve=True)
    assert isinstance(data, dict)
    data.pop("experiment", None)
    return {str(key): value for key, value in data.items()}


def compose_node(request: Request, *, with_hydra: bool = False) -> DictConfig:
    """The unresolved composition; call inside :func:`hydra_ready`."""
    from hydra import compose as hydra_compose

    os.environ.setdefault("USER", getpass.getuser())
    overrides = list(request.overrides)
    if request.config_dir:
        overrides.append(f"hydra.searchpath=[file://{request.config_dir}]")
    return hydra_compose(request.config_name, overrides=overrides, return_hydra_config=with_hydra)


def offer_huggingface(model: dict[str, Any]) -> None:
    """Give conf/model/hf.yaml the keys read from a config.json, so that overrides of them work like any other."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(group="huggingface", name="config", node=model, provider="primus_app")


def groups() -> dict[str, list[str]]:
    """Every group of conf/ and its options, both in order of name; needs no Hydra."""
    root = conf_dir()
    folders = sorted(path for path in root.iterdir() if path.is_dir() and path.name not in RESERVED_GROUPS)
    found = {folder.name: sorted(file.stem for file in folder.glob("*.yaml")) for folder in folders}
    return {name: options for name, options in found.items() if options}
