"""Nodes with a network and a host name of their own, on a bridge of this host."""

import subprocess
from pathlib import Path

from slurm.cluster import Cluster, ClusterError


def can_have_namespaces() -> bool:
    """Whether this process may make them."""
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, check=False)
    return tried.returncode == 0


def connect(cluster: Cluster) -> None:
    """Make the bridge and a namespace for each node.

    Raises:
        ClusterError: where the system refuses, or names and addresses are taken.
    """
    _ip("link", "add", cluster.bridge, "type", "bridge")
    _ip("addr", "add", f"{cluster.subnet}.1/24", "dev", cluster.bridge)
    _ip("link", "set", cluster.bridge, "up")
    for number, space in enumerate(cluster.namespaces, 1):
        outer = f"sl{cluster.port}v{number}"
        _ip("netns", "add", space)
        _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", outer, "master", cluster.bridge, "up")
        _ip("-n", space, "addr", "add", f"{cluster.address(number)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", space, "link", "set", device, "up")
        _ip("-n", space, "route", "add", "default", "via", f"{cluster.subnet}.1")


def disconnect(cluster: Cluster) -> None:
    """Take away what ``connect`` has made, as far as it is there."""
    for space in cluster.namespaces:
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", cluster.bridge], capture_output=True, check=False)


def hosts(cluster: Cluster) -> str:
    """/etc/hosts as each node sees it."""
    nodes = (f"{cluster.address(number)} {name}" for number, name in enumerate(cluster.names, 1))
    return "\n".join(["127.0.0.1 localhost", f"{cluster.subnet}.1 login", *nodes]) + "\n"


def inside(cluster: Cluster, number: int, command: str) -> list[str]:
    """``command`` of a shell on node ``number``.

    Not by ip netns exec, which mounts /sys anew: slurmd then misses /sys/fs/cgroup and ends.
    """
    name, folder = cluster.names[number - 1], cluster.folder
    scratch = folder / "local" / name
    scratch.mkdir(parents=True, exist_ok=True)
    prepared = f"hostname {name}; mount --bind {folder}/hosts /etc/hosts; mount --bind {scratch} {folder}/scratch; exec {command}"
    space = Path("/run/netns") / cluster.namespaces[number - 1]
    return ["nsenter", f"--net={space}", "unshare", "--uts", "--mount", "sh", "-c", prepared]


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
