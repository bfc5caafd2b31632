"""Hydra's own flags, answered by Hydra on our conf/: --cfg, --info, --hydra-help, tab completion."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from primus_app.cli.arguments import VERBS, Arguments
from primus_app.config.compose import Request, hydra_ready
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.load import prepare_model, with_hardware
from primus_app.config.overrides import examine

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra


def hydra_instance() -> Hydra:
    """The initialised Hydra; inside ``hydra_ready``."""
    from hydra.core.global_hydra import GlobalHydra

    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    return hydra


def answer(arguments: Arguments) -> int:
    """Show what was asked for, or every mistake in the overrides."""
    hydra_args = arguments.hydra
    prepare_model(arguments.request)
    request = _with_detected_hardware(arguments.request)
    overrides = _all_overrides(request)
    name = request.config_name

    def show() -> None:
        hydra = hydra_instance()
        if hydra_args.hydra_help:
            from hydra._internal.utils import get_args_parser

            hydra.hydra_help(config_name=name, args_parser=get_args_parser(), args=hydra_args)
        elif hydra_args.shell_completion:
            hydra.shell_completion(config_name=name, overrides=list(arguments.request.overrides))
        elif hydra_args.cfg:
            hydra.show_cfg(
                config_name=name, overrides=overrides, cfg_type=hydra_args.cfg, package=hydra_args.package, resolve=hydra_args.resolve
            )
        else:
            hydra.show_info(hydra_args.info, config_name=name, overrides=overrides)

    with hydra_ready():
        report_mistakes(show, request, multirun=False)
    return int(ExitCode.DONE)


def report_mistakes(action: Callable[[], None], request: Request, *, multirun: bool) -> None:
    """Run ``action``; when Hydra refuses, say everything that is wrong with the overrides instead.

    Raises:
        UserError: with all mistakes.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        action()
    except (HydraException, OmegaConfBaseException) as error:
        problems = examine(request, multirun=multirun).problems
        raise UserError(problems or Problem("", " ".join(str(error).split()))) from None


def complete(argv: Sequence[str]) -> int:
    """Tab completion: the shell's line in COMP_LINE, without the verb, which Hydra does not know."""
    words = os.environ["COMP_LINE"].split(" ")
    if len(words) == 2 and "=" not in words[1]:
        for verb in VERBS:
            if verb.startswith(words[1]) and words[1]:
                print(verb)
    if len(words) > 2 and words[1] in VERBS:
        os.environ["COMP_LINE"] = " ".join([words[0], *words[2:]])
    prepare_model(Request())
    with hydra_ready():
        hydra_instance().shell_completion(config_name="config", overrides=[word for word in argv if "=" in word])
    return int(ExitCode.DONE)


def _with_detected_hardware(request: Request) -> Request:
    from primus_app.launch.devices import detect_devices

    return with_hardware(request, detect_devices().hardware)


def _all_overrides(request: Request) -> list[str]:
    extra = [f"hydra.searchpath=[file://{request.config_dir}]"] if request.config_dir else []
    return [*request.overrides, *extra]
