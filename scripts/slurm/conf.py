"""The configuration files of a cluster, made for quick reactions; each odd line says why it is there."""

from collections.abc import Iterator

from slurm.cluster import Cluster

CPUS, MEMORY_MB = 16, 64_000
"""Claimed on each node, whatever the host has."""

CREDENTIALS_EXPIRE_S = 5
"""A job that goes back to the queue waits as long before it starts again (Slurm's default: 120); less is refused."""


def slurm_conf(cluster: Cluster) -> str:
    folder = cluster.folder
    controller = f"{cluster.subnet}.1" if cluster.mode == "namespaces" else "127.0.0.1"
    lines = [
        "ClusterName=primus",
        f"SlurmctldHost=localhost({controller})",
        f"SlurmctldPort={cluster.port}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={cluster.socket},cred_expire={CREDENTIALS_EXPIRE_S}",
        "CredType=cred/munge",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmctldPidFile={cluster.pid_file('slurmctld')}",
        f"SlurmdPidFile={cluster.pid_file('slurmd.%n')}",
        f"SlurmctldLogFile={folder}/log/slurmctld.log",
        f"SlurmdLogFile={folder}/log/slurmd.%n.log",
        "# No cgroups and no binding to processors: works in any container and virtual machine.",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SlurmdParameters=config_overrides",
        "# Without it each job is given all the memory of its nodes.",
        "DefMemPerCPU=100",
        "ReturnToService=2",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=sched_interval=2,sched_min_interval=0,batch_sched_delay=0,bf_interval=2,nohold_on_prolog_fail,requeue_setup_env_fail",
        "PriorityType=priority/multifactor",
        "PriorityWeightQOS=1000",
        "PriorityWeightPartition=1000",
        "SlurmdTimeout=10",
        "SlurmctldTimeout=10",
        "InactiveLimit=0",
        "KillWait=5",
        "MinJobAge=300",
        "MaxArraySize=1001",
        "MaxJobCount=5000",
        "JobRequeue=1",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "# The signal that a job asks for comes before preemption too.",
        "SlurmctldParameters=preempt_send_user_signal",
        f"Prolog={folder}/bin/prolog",
        "PrologFlags=Alloc",
        f"HealthCheckProgram={folder}/bin/health",
        "HealthCheckInterval=3",
        "HealthCheckNodeState=ANY",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={folder}/log/jobcomp.txt",
        f"TopologyPlugin=topology/{'tree' if cluster.nodes >= 4 else 'none'}",
        *(["GresTypes=gpu"] if cluster.gpus else []),
        *_accounting(cluster),
        *_nodes(cluster),
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP PriorityTier=1 PreemptMode=OFF",
        "PartitionName=low Nodes=ALL MaxTime=INFINITE DefaultTime=60 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=5",
        "PartitionName=high Nodes=ALL MaxTime=INFINITE DefaultTime=60 State=UP PriorityTier=10 PreemptMode=OFF",
    ]
    return "\n".join(lines) + "\n"


def gres_conf(cluster: Cluster) -> str:
    if not cluster.gpus:
        return ""
    return f"NodeName={cluster.prefix}[1-{cluster.nodes}] Name=gpu File={cluster.folder}/dev/gpu[0-{cluster.gpus - 1}]\n"


def cgroup_conf() -> str:
    """Looking for the version by itself ends slurmd where /sys/fs/cgroup is not mounted."""
    return "CgroupPlugin=cgroup/v1\n"


def topology_conf(cluster: Cluster) -> str:
    """Two leaf switches under a spine."""
    if cluster.nodes < 4:
        return ""
    half, prefix = cluster.nodes // 2, cluster.prefix
    leaves = f"SwitchName=leaf1 Nodes={prefix}[1-{half}]\nSwitchName=leaf2 Nodes={prefix}[{half + 1}-{cluster.nodes}]\n"
    return leaves + "SwitchName=spine Switches=leaf[1-2]\n"


def slurmdbd_conf(cluster: Cluster) -> str:
    return f"""AuthType=auth/munge
AuthInfo=socket={cluster.socket}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={cluster.port + 100}
SlurmUser=root
LogFile={cluster.folder}/log/slurmdbd.log
PidFile={cluster.pid_file("slurmdbd")}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
"""


def prolog(cluster: Cluster) -> str:
    return f"""#!/bin/sh
# A file fail_prolog.<node> in the cluster's folder makes it fail there: the node is drained, the job goes back to the queue.
[ ! -e "{cluster.folder}/fail_prolog.$SLURMD_NODENAME" ]
"""


def health(cluster: Cluster) -> str:
    return f"""#!/bin/sh
# A file sick.<node> in the cluster's folder drains that node, with its text as the reason.
sick="{cluster.folder}/sick.$SLURMD_NODENAME"
[ -e "$sick" ] && SLURM_CONF={cluster.conf} scontrol update nodename="$SLURMD_NODENAME" state=drain reason="health: $(cat "$sick")"
exit 0
"""


def _accounting(cluster: Cluster) -> Iterator[str]:
    if not cluster.accounting:
        yield "AccountingStorageType=accounting_storage/none"
        return
    yield "AccountingStorageType=accounting_storage/slurmdbd"
    yield "AccountingStorageHost=127.0.0.1"
    yield f"AccountingStoragePort={cluster.port + 100}"
    yield "# AuthInfo's socket is not used towards slurmdbd."
    yield f"AccountingStoragePass={cluster.socket}"
    yield "AccountingStoreFlags=job_comment,job_script"
    yield "JobAcctGatherType=jobacct_gather/linux"
    yield "JobAcctGatherFrequency=5"


def _nodes(cluster: Cluster) -> Iterator[str]:
    own = cluster.mode == "namespaces"
    gres = f" Gres=gpu:{cluster.gpus}" if cluster.gpus else ""
    for number, name in enumerate(cluster.names, 1):
        host, port = (name, cluster.port + 1) if own else ("localhost", cluster.port + number)
        where = f"NodeHostname={host} NodeAddr={cluster.address(number)} Port={port}"
        yield f"NodeName={name} {where} CPUs={CPUS} RealMemory={MEMORY_MB}{gres} State=UNKNOWN"
