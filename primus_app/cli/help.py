"""The help page: what people type first, the verbs, the groups and their options."""

import shutil
import sys
from collections.abc import Sequence

from primus_app.cli.arguments import OWN_FLAGS, VERBS, split_verb
from primus_app.config.compose import groups
from primus_app.config.errors import ExitCode

FIRST = """\
primus_app trains large language models: it checks the request, runs it, watches it and can do it again.

usage: primus [verb] [group=option …] [key=value …]      (also: python -m primus_app)

people type first
  primus                                                 train a small real model here, now
  primus training.steps=50 optimizer.lr=1e-3             change some settings
  primus model=qwen3_moe_tiny                            another model
  primus parallel=fsdp cluster.devices_per_node=2        two processes on a CPU, or two devices
  primus plan model=llama3_8b parallel=tp8 hardware=mi300x   look before you start
  primus --cfg job                                       every key with its value
  primus --multirun optimizer.lr=1e-3,3e-3               one run for each value
"""

HYDRA = """\
Hydra's flags
  --cfg job [--package KEY]   print the configuration and end
  --info                      how the configuration came about
  --multirun, -m              run every combination of comma-separated values
  --config-dir DIR            look for groups and options in DIR too
  --config-name NAME          compose NAME.yaml of that folder instead of config.yaml
  --shell-completion, -sc     install=bash, install=zsh or install=fish; then: eval "$(primus -sc install=bash)"
  --hydra-help                the rest
"""

KEYS = "Every key, its type, default, unit and meaning: docs/configuration.md"


def show_help(argv: Sequence[str]) -> int:
    """Print the page, to standard output."""
    verb, _ = split_verb([word for word in argv if word not in ("-h", "--help")][:1])
    width = shutil.get_terminal_size((100, 24)).columns
    print(FIRST)
    print("verbs")
    for name, meaning in VERBS.items():
        print(f"  {name:<13} {meaning}")
        for flag, help in OWN_FLAGS[name].items():
            print(f"    {flag:<11} {help}" + ("  <-" if name == verb and verb != "train" else ""))
    print("\ngroups and their options")
    for group, options in groups().items():
        print(_wrapped(f"  {group:<12}", options, width))
    print(f"\n{HYDRA}\n{KEYS}")
    sys.stdout.flush()
    return int(ExitCode.DONE)


def _wrapped(label: str, words: Sequence[str], width: int) -> str:
    lines, line = [], label
    for word in words:
        if len(line) + len(word) + 1 > width and line.strip():
            lines.append(line)
            line = " " * len(label)
        line += f" {word}"
    return "\n".join([*lines, line])
