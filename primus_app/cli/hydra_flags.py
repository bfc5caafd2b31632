"""Hydra's own flags: --cfg, --info and --hydra-help answered by Hydra on our conf/, the shell's completion script by us."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from primus_app.cli.arguments import Arguments
from primus_app.cli.completion_scripts import SCRIPTS
from primus_app.config.compose import Request, composition_errors, hydra_ready, with_engine_options
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.explain import explain
from primus_app.config.load import prepare_model, with_hardware
from primus_app.config.overrides import examine, examine_shape, known_keys
from primus_app.config.suggest import did_you_mean, nearest

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
    if arguments.hydra.shell_completion:
        return _install_completion(arguments)
    prepare_model(arguments.request)
    request = _with_detected_hardware(arguments.request)
    with hydra_ready(request.config_dir):
        if problems := examine_shape(request, multirun=False).problems:
            raise UserError(examine(request, multirun=False).problems or problems)
        report_mistakes(lambda: _show(arguments.hydra, request), request, multirun=False)
    return int(ExitCode.DONE)


def _show(flags: Namespace, request: Request) -> None:
    from hydra._internal.utils import get_args_parser

    hydra, name, overrides = hydra_instance(), request.config_name, with_engine_options(request.overrides)
    if flags.hydra_help:
        hydra.hydra_help(config_name=name, args_parser=get_args_parser(), args=flags)
    elif not flags.cfg:
        hydra.show_info(flags.info, config_name=name, overrides=overrides)
    elif flags.package and flags.package != "_global_" and _is_null(flags.package, request):
        print("null")
    else:
        hydra.show_cfg(config_name=name, overrides=overrides, cfg_type=flags.cfg, package=flags.package, resolve=flags.resolve)


def _is_null(package: str, request: Request) -> bool:
    """Whether the key is null, of which Hydra would say that it is not there.

    Raises:
        UserError: for a key that is not there.
    """
    known = known_keys(request)
    if package not in known:
        near = nearest(package, [*known.sections, *known.leaves])
        raise UserError(Problem(f"--package {package}", "no such key", did_you_mean(near)))
    return package in known.nulls


def _install_completion(arguments: Arguments) -> int:
    typed = " ".join(arguments.request.overrides)
    if typed not in SCRIPTS:
        raise UserError(Problem(f"--shell-completion {typed}".rstrip(), "no such shell or action", (f"one of {', '.join(SCRIPTS)}",)))
    print(SCRIPTS[typed])
    return int(ExitCode.DONE)


def report_mistakes(action: Callable[[], None], request: Request, *, multirun: bool) -> None:
    """Run ``action``; when Hydra refuses, say everything that is wrong with the overrides instead.

    Raises:
        UserError: with all mistakes.
    """
    try:
        action()
    except composition_errors() as error:
        raise UserError(_mistakes(request, multirun) or explain(error)) from None


def _mistakes(request: Request, multirun: bool) -> tuple[Problem, ...]:
    try:
        return examine(request, multirun=multirun).problems
    except composition_errors():  # a file is broken, which the first error says
        return ()


def _with_detected_hardware(request: Request) -> Request:
    from primus_app.launch.devices import detect_devices

    return with_hardware(request, detect_devices().option)
