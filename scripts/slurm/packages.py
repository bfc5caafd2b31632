"""The Debian packages that a cluster needs."""

import os
import shutil
import subprocess
from pathlib import Path

from slurm.cluster import ClusterError

BASE = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sinfo": "slurm-client", "munged": "munge", "ip": "iproute2", "unshare": "util-linux"}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server"}
"""A command of each, and the package that it is in."""

MYSQL_PLUGIN = "slurm-wlm-mysql-plugin"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing(*, accounting: bool) -> list[str]:
    """Packages that are not installed."""
    wanted = BASE | (ACCOUNTING if accounting else {})
    found = [package for command, package in wanted.items() if shutil.which(command, path=PATH) is None]
    has_plugin = any(Path("/usr/lib").glob("*/slurm-wlm/accounting_storage_mysql.so"))
    return found + ([MYSQL_PLUGIN] if accounting and not has_plugin else [])


def install(*, accounting: bool) -> list[str]:
    """Install what is missing; the packages that were.

    Raises:
        ClusterError: without root or apt, or where apt fails.
    """
    packages = missing(accounting=accounting)
    if not packages:
        return []
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"not installed: {', '.join(packages)}; as root on Debian: apt-get install {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"{' '.join(command)} failed:\n{(done.stderr or done.stdout)[-2000:]}")
    return packages
