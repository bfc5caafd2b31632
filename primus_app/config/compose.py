"""Hydra's part: conf/ and the overrides merged into plain data; nothing past this file sees a DictConfig."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_app.config.location import conf_dir
from primus_app.config.merged import forget_merged, merged

if TYPE_CHECKING:
    from omegaconf import DictConfig

_READY: list[str | None] = []
"""The folders of the ``hydra_ready`` that are open, innermost last."""

_OFFERED: list[dict[str, Any]] = []
"""The model that ``offer_huggingface`` has stored, if any."""

RESERVED_GROUPS = ("hydra", "huggingface")
"""Groups that are not the user's to choose from."""

ENGINE_OPTIONS = "backend.native"
"""The section whose keys only the engine knows."""


@dataclass(frozen=True)
class Request:
    """What was typed, without the verb and its own flags."""

    overrides: tuple[str, ...] = ()
    config_name: str = "config"
    config_dir: str | None = None

    def with_overrides(self, overrides: Sequence[str]) -> Request:
        return Request(tuple(overrides), self.config_name, self.config_dir)


@contextmanager
def hydra_ready(config_dir: str | None = None) -> Iterator[None]:
    """Hydra initialised on conf/ and then ``config_dir``, and put back as it was; nested for the same folder it costs nothing."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    if _READY and _READY[-1] == config_dir:
        yield
        return
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    _READY.append(config_dir)
    forget_merged()
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            if config_dir:
                _also_look_in(config_dir)
            yield
    finally:
        _READY.pop()
        forget_merged()
        GlobalHydra.instance().hydra = outer


def composition_errors() -> tuple[type[Exception], ...]:
    """What a mistake in an override or a file makes Hydra raise."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    return (HydraException, OmegaConfBaseException, YAMLError, ValueError)


def compose(request: Request) -> dict[str, Any]:
    """Merge and resolve; raises one of ``composition_errors`` for what Hydra refuses."""
    from omegaconf import OmegaConf

    data = OmegaConf.to_container(compose_node(request), resolve=True, throw_on_missing=True)
    assert isinstance(data, dict)
    data.pop("experiment", None)
    return {str(key): value for key, value in data.items()}


def compose_node(request: Request, *, with_hydra: bool = False) -> DictConfig:
    """The unresolved composition; call inside :func:`hydra_ready`."""
    from hydra import compose as hydra_compose

    with suppress(KeyError, OSError):  # A container's user may have no entry in the passwd file.
        os.environ.setdefault("USER", getpass.getuser())
    overrides = [*with_engine_options(request.overrides), *search_path(request)]
    if with_hydra:
        return hydra_compose(request.config_name, overrides=overrides, return_hydra_config=True)
    return merged(request.config_name, overrides, offered=repr(_OFFERED))


def with_engine_options(overrides: Sequence[str]) -> list[str]:
    """The overrides, those of backend.native as Hydra wants keys that no file has: an engine's option may be typed with or without plus."""
    starts = (f"{ENGINE_OPTIONS}.", f"{ENGINE_OPTIONS}=")
    return [f"++{text.lstrip('+')}" if text.lstrip("+").startswith(starts) else text for text in overrides]


def search_path(request: Request) -> list[str]:
    """The override that makes Hydra look for options in ``config_dir`` too, where hydra_ready was not told of it."""
    from hydra.core.global_hydra import GlobalHydra

    folder = request.config_dir
    known = [element.path for element in GlobalHydra.instance().config_loader().get_search_path().get_path()]
    if not folder or f"file://{folder}" in known:
        return []
    return [f"hydra.searchpath=[{quoted('file://' + folder)}]"]


def quoted(text: str) -> str:
    """A text as Hydra's override grammar reads it back, whatever is in it."""
    # Only backslashes before a quote, or at the end, stand for something else than themselves.
    escaped = re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
    return f"'{escaped}'"


def _also_look_in(folder: str) -> None:
    """After conf/. Hydra takes the primary configuration only from what it knew when it was initialised."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.config_repository import ConfigRepository
    from hydra.core.global_hydra import GlobalHydra

    loader = GlobalHydra.instance().config_loader()
    assert isinstance(loader, ConfigLoaderImpl)
    loader.config_search_path.prepend("command-line", f"file://{folder}", anchor="schema")
    loader.repository = ConfigRepository(loader.config_search_path)


def offer_huggingface(model: dict[str, Any]) -> None:
    """Give conf/model/hf.yaml the keys read from a config.json, so that overrides of them work like any other."""
    from hydra.core.config_store import ConfigStore

    if [model] != _OFFERED:
        _OFFERED[:] = [model]
        ConfigStore.instance().store(group="huggingface", name="config", node=model, provider="primus_app")


def groups(config_dir: str | None = None) -> dict[str, list[str]]:
    """Every group and its options, both in order of name, of conf/ and of the user's folder; needs no Hydra."""
    found: dict[str, set[str]] = {}
    for root in (conf_dir(), Path(config_dir)) if config_dir else (conf_dir(),):
        for file in root.glob("*/**/*.yaml"):
            group, *option = file.relative_to(root).with_suffix("").parts
            if group not in RESERVED_GROUPS:
                found.setdefault(group, set()).add("/".join(option))
    return {name: sorted(found[name]) for name in sorted(found)}


def models_with(section: str) -> list[str]:
    """The models of conf/model/ whose file has ``section``, the tiny ones first."""
    files = sorted((conf_dir() / "model").glob("*.yaml"), key=lambda file: ("tiny" not in file.stem, file.stem))
    return [file.stem for file in files if f"\n{section}:" in file.read_text(encoding="utf-8")]
