"""Starting and ending the daemons of a cluster, each known by its pid file."""

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from slurm.cluster import Cluster, ClusterError
from slurm.network import inside
from slurm.packages import PATH

DAEMONS = ("slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged", "slurmstepd")
WAIT_S = 30.0


def start_munge(cluster: Cluster) -> None:
    """With a key and a socket of its own, beside one that the host may have."""
    key = cluster.folder / "munge/key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
    folder = cluster.folder
    files = [f"--socket={cluster.socket}", f"--pid-file={cluster.pid_file('munged')}", f"--log-file={folder}/log/munged.log"]
    run(cluster, ["munged", "--force", f"--key-file={key}", f"--seed-file={folder}/munge/seed", *files])
    wait_for(lambda: _answers(cluster, ["munge", "-S", str(cluster.socket), "-n"]), "munge does not answer")


def start_accounting(cluster: Cluster) -> None:
    """mariadb without a network, and slurmdbd."""
    folder, data = cluster.folder, cluster.folder / "mysql"
    sock = folder / "run/mysql.sock"
    if not (data / "mysql").is_dir():
        data.mkdir(mode=0o700, exist_ok=True)
        own = ["--no-defaults", "--user=root", f"--datadir={data}", "--auth-root-authentication-method=socket", "--skip-test-db"]
        run(cluster, ["mariadb-install-db", *own])
    server = [
        "mariadbd",
        "--no-defaults",
        "--user=root",
        f"--datadir={data}",
        f"--socket={sock}",
        f"--pid-file={cluster.pid_file('mariadbd')}",
    ]
    server += ["--skip-networking", "--skip-log-bin", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M"]
    with (folder / "log/mariadbd.log").open("ab") as log:
        subprocess.Popen(server, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=_environment(cluster))
    client = ["mariadb", "--no-defaults", "-S", str(sock), "-e"]
    wait_for(lambda: _answers(cluster, [*client, "select 1"]), "mariadb does not answer")
    made = "create database if not exists slurm_acct; create user if not exists 'slurm'@'localhost' identified by 'slurm';"
    run(cluster, [*client, f"{made} grant all on slurm_acct.* to 'slurm'@'localhost'"])
    # slurmdbd has no key for mysql's socket; the client's library takes it from here.
    run(cluster, ["slurmdbd"], MYSQL_UNIX_PORT=str(sock), SLURM_CONF=str(folder / "slurmdbd.conf"))
    wait_for(lambda: _listens(cluster.port + 100), "slurmdbd does not answer")


def start_controller(cluster: Cluster) -> None:
    run(cluster, ["slurmctld"])


def start_node(cluster: Cluster, number: int) -> None:
    """Start node ``number``, or start it again."""
    name = cluster.names[number - 1]
    command = f"slurmd -N {name}"
    run(cluster, inside(cluster, number, command) if cluster.mode == "namespaces" else command.split())


def wait_until_idle(cluster: Cluster) -> None:
    """Until every node takes jobs."""

    def all_idle() -> bool:
        return states(cluster) == dict.fromkeys(cluster.names, "idle")

    wait_for(all_idle, f"the nodes do not get ready: {states(cluster)}")


def states(cluster: Cluster) -> dict[str, str]:
    """Each node's, as sinfo has it; empty where the controller does not answer."""
    asked = subprocess.run(["sinfo", "-h", "-N", "-o", "%N %t"], env=_environment(cluster), capture_output=True, text=True, check=False)
    return dict(line.split() for line in asked.stdout.splitlines())


def end_jobs(cluster: Cluster) -> None:
    """Before their slurmd ends: a job's own processes would outlive it."""
    environment = _environment(cluster)

    def jobs() -> list[str]:
        with suppress(subprocess.TimeoutExpired):
            asked = subprocess.run(["squeue", "-h", "-o", "%A"], env=environment, capture_output=True, text=True, check=False, timeout=5)
            return sorted(set(asked.stdout.split()))
        return []

    if found := jobs():
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(["scancel", "--full", *found], env=environment, capture_output=True, check=False, timeout=5)
        with suppress(ClusterError):
            wait_for(lambda: not jobs(), "", 10)


def end_daemons(cluster: Cluster) -> None:
    """Nodes first, munge last; and whatever a job's step has left."""
    names = [f"slurmd.{name}" for name in cluster.names]
    for daemon in (*names, "slurmctld", "slurmdbd", "mariadbd", "munged"):
        _end(cluster.pid_file(daemon))
    mark = f"SLURM_CONF={cluster.conf}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_step = "slurmstepd" in (process / "comm").read_text()
            if is_step and mark in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


def run(cluster: Cluster, command: list[str], **environment: str) -> None:
    """Raises ClusterError with what it said where it fails."""
    done = subprocess.run(command, env=_environment(cluster) | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-1000:]}")


def wait_for(is_so: Callable[[], bool], otherwise: str, seconds: float = WAIT_S) -> None:
    """Raises ClusterError with ``otherwise`` where it is not so in time."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise ClusterError(otherwise)
        time.sleep(0.05)


def _end(pid_file: Path) -> None:
    with suppress(FileNotFoundError, ValueError, ProcessLookupError):
        pid = int(pid_file.read_text())
        if _is_daemon(pid):
            os.kill(pid, signal.SIGTERM)
            with suppress(ClusterError):
                wait_for(lambda: not _is_daemon(pid), "", 5)
            if _is_daemon(pid):
                os.kill(pid, signal.SIGKILL)
    pid_file.unlink(missing_ok=True)


def _is_daemon(pid: int) -> bool:
    """Whether it lives and is one of ours: numbers are used again, and a zombie that init has not reaped yet is dead."""
    with suppress(OSError):
        status = (Path("/proc") / str(pid) / "stat").read_text()
        name, state = status[status.index("(") + 1 : status.rindex(")")], status[status.rindex(")") + 2]
        return state != "Z" and name.startswith(DAEMONS)
    return False


def _answers(cluster: Cluster, command: list[str]) -> bool:
    return subprocess.run(command, env=_environment(cluster), capture_output=True, check=False).returncode == 0


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _environment(cluster: Cluster) -> dict[str, str]:
    return cluster.environment | {"PATH": PATH}
