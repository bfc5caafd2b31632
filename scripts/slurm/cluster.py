"""One cluster: what it is made of, and where its files lie."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

MODES = ("namespaces", "plain")
"""Nodes with a network, a host name and a scratch folder of their own; or slurmd after slurmd on this host."""

STATE = "cluster.json"
"""Written when the cluster has come up, gone when it is down."""


class ClusterError(Exception):
    """What the user is told, one line or several."""


@dataclass(frozen=True)
class Cluster:
    """
    Attributes:
        folder: all of its files; neither blanks nor commas nor per cent signs, which slurm.conf cannot quote.
        gpus: pretended on each node.
        port: slurmctld's; those of the others follow.
        subnet: of the nodes' own network, three bytes of it.
        prefix: nodes are called prefix1, prefix2, …
    """

    folder: Path
    nodes: int = 4
    gpus: int = 0
    mode: str = "namespaces"
    accounting: bool = False
    port: int = 17000
    subnet: str = "10.77.0"
    prefix: str = "node"

    @property
    def names(self) -> list[str]:
        return [f"{self.prefix}{number}" for number in range(1, self.nodes + 1)]

    @property
    def socket(self) -> Path:
        """munge's."""
        return self.folder / "run/munge.sock"

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """For Slurm's commands."""
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    @property
    def namespaces(self) -> list[str]:
        return [f"slurm{self.port}-{name}" for name in self.names]

    @property
    def bridge(self) -> str:
        return f"slurm{self.port}"

    def address(self, number: int) -> str:
        """Of node ``number``, from 1 on."""
        return f"{self.subnet}.{10 + number}" if self.mode == "namespaces" else f"127.0.1.{number}"

    def pid_file(self, daemon: str) -> Path:
        return self.folder / f"run/{daemon}.pid"

    def save(self) -> None:
        """Note that it is up."""
        (self.folder / STATE).write_text(json.dumps({**asdict(self), "folder": str(self.folder)}, indent=2) + "\n")


def usual_folder() -> Path:
    """Where a cluster lies when nothing else is said."""
    return Path(os.environ.get("PRIMUS_SLURM_DIR") or Path(tempfile.gettempdir()) / f"primus-slurm-{os.getuid()}")


def running(folder: Path) -> Cluster | None:
    """The cluster in ``folder``, None where none is up."""
    try:
        found: Mapping[str, Any] = json.loads((folder / STATE).read_text())
    except FileNotFoundError:
        return None
    known = {field.name for field in fields(Cluster)}
    return Cluster(**{**{key: value for key, value in found.items() if key in known}, "folder": folder})
