"""Whether this machine can train a plan, and if not, which commands would work instead."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import Config
from primus_app.plan.mesh import Mesh
from primus_app.plan.neighbours import count
from primus_app.plan.plan import STATE_BYTES_PER_PARAMETER, Plan, make_plan

Compose = Callable[[Sequence[str]], Config]
"""From overrides to a configuration; raises UserError for overrides that do not hold."""

Trains = Callable[[Config, Plan], bool]
"""Whether the backend carries out a configuration whose plan has no problems."""

TP_LAYOUTS = {"tp8_pp4": 32, "tp8": 8, "tp4_pp2": 8, "tp4": 4, "tp2_pp2": 4, "tp2": 2}
"""Layouts of conf/parallel/ that are offered in place of one that is too large, largest first, with the devices they need."""

ELSEWHERE = "mi300x"
"""Option of conf/hardware/ that a plan without devices is offered for."""

PROCESS_BYTES = 2**29
"""Resident memory of a training process before its model: an import of torch and an engine, measured at 0.55 GB."""


@dataclass(frozen=True)
class Machine:
    """What this machine has to train with.

    Attributes:
        devices: accelerators, or 1 where there is only a CPU.
        is_cpu: whether there is only a CPU; any number of processes can then be asked for.
        memory_bytes: memory of one accelerator, or of the whole machine where there is only a CPU; None when unknown.
        hardware: its option in conf/hardware/; None when unknown.
    """

    devices: int
    is_cpu: bool
    memory_bytes: int | None
    hardware: str | None = None


@dataclass(frozen=True)
class _Attempt:
    """Overrides that compose, and what they come to."""

    overrides: list[str]
    config: Config
    plan: Plan


def on_this_machine(config: Config) -> Config:
    """What to plan where cluster=local is asked for more nodes, which check_devices refuses: with as many as the layout takes."""
    if not _asks_for_nodes(config):
        return config
    return config.model_copy(update={"cluster": config.cluster.model_copy(update={"nodes": "auto"})})


def _asks_for_nodes(config: Config) -> bool:
    return config.cluster.name == "local" and config.cluster.nodes != "auto" and config.cluster.nodes > 1


def check_devices(
    config: Config,
    plan: Plan,
    machine: Machine,
    overrides: Sequence[str],
    *,
    compose: Compose,
    trains: Trains = lambda config, plan: True,
    program: str = "primus",
) -> list[Problem]:
    """What this machine lacks to train ``plan`` (which has a mesh); empty when it lacks nothing, or when the cluster is another.

    Every command in the advice has been composed and planned with ``compose``, so it works as it stands.

    Args:
        overrides: what the user typed after the verb, without the verb's own flags.
        trains: whether the backend carries a configuration out; what it refuses is not offered.
        program: how the program was called.
    """
    if config.cluster.name != "local" or plan.mesh is None:
        return []
    lacking = _lacking(config, plan, machine)
    if not lacking:
        return []
    otherwise = "leave cluster.nodes out" if _asks_for_nodes(config) else "it takes a larger machine, or a smaller model"
    fix = tuple(_Adviser(machine, compose, trains, program).commands(config, plan.mesh, overrides)) or (otherwise,)
    return [Problem(where, what, fix if (where, what) == lacking[-1] else ()) for where, what in lacking]


def replace_overrides(overrides: Sequence[str], changes: Mapping[str, str | None]) -> list[str]:
    """The overrides with the changed keys and all keys below them replaced; None only removes."""

    def is_kept(text: str) -> bool:
        key = text.partition("=")[0].lstrip("+~")
        return not any(key == changed or key.startswith(f"{changed}.") for changed in changes)

    return [*filter(is_kept, overrides), *(f"{key}={value}" for key, value in changes.items() if value is not None)]


def _lacking(config: Config, plan: Plan, machine: Machine) -> list[tuple[str, str]]:
    """(where, what) of everything that is missing here."""
    assert plan.mesh is not None
    return [
        *_missing_hardware(config, machine),
        *_missing_devices(config, plan.mesh, machine),
        *_missing_memory(plan, machine),
    ]


def _missing_hardware(config: Config, machine: Machine) -> Iterator[tuple[str, str]]:
    if machine.is_cpu and config.hardware.vendor in ("amd", "nvidia"):
        yield "hardware", f"{config.hardware.name} is not in this machine, which has no accelerator to train on"
    elif not machine.is_cpu and config.hardware.vendor == "cpu":
        yield (
            "hardware",
            f"cpu is asked for, and this machine trains on its {machine.hardware or 'accelerators'}; hide them to train on the CPU",
        )
    elif not machine.is_cpu and machine.hardware not in (None, config.hardware.name):
        yield "hardware", f"{config.hardware.name} is not in this machine, which has {machine.hardware}"


def _missing_devices(config: Config, mesh: Mesh, machine: Machine) -> Iterator[tuple[str, str]]:
    if _asks_for_nodes(config):
        yield "cluster.nodes", f"{config.cluster.nodes} nodes are asked for, and cluster=local is this machine alone"
    elif mesh.world > _available(config, mesh, machine):
        need = f"tp {mesh.tp} x pp {mesh.pp} x cp {mesh.cp} x dp {mesh.dp} needs {count(mesh.world, 'device')}"
        has = "no accelerator, so it is 1 device (one process on its CPU)" if machine.is_cpu else count(machine.devices, "device")
        yield "parallel", f"{need}; this machine has {has}: {mesh.world - machine.devices} missing"


def _available(config: Config, mesh: Mesh, machine: Machine) -> int:
    asked = config.cluster.devices_per_node
    return asked if machine.is_cpu and asked != "auto" and mesh.nodes == 1 else machine.devices


def _missing_memory(plan: Plan, machine: Machine) -> Iterator[tuple[str, str]]:
    if machine.memory_bytes is None or plan.parameters is None or plan.mesh is None or plan.model_state_gib is None:
        return
    parameters = plan.parameters.total
    if machine.is_cpu:
        replicas, owner = plan.mesh.dp_replicate, "this machine"
        needed = float(STATE_BYTES_PER_PARAMETER * parameters * replicas + PROCESS_BYTES * plan.mesh.world)
    else:
        replicas, owner, needed = 1, "a device of this machine", plan.model_state_gib * 2**30
    if needed > machine.memory_bytes:
        copies = f" x dp_replicate {replicas}" if replicas > 1 else ""
        sizes = f"{STATE_BYTES_PER_PARAMETER} bytes x {parameters:,} parameters{copies}"
        share = f"come to {_gib(needed)}" if machine.is_cpu else f"come to {_gib(needed)} on a rank"
        processes = f" with {count(plan.mesh.world, 'process')} of {_gib(PROCESS_BYTES)}" if machine.is_cpu else ""
        what = f"weights, gradients and optimizer states ({sizes}){processes} {share}; {owner} has {_gib(machine.memory_bytes)}"
        yield "model", what


def _gib(number: float) -> str:
    return f"{number / 2**30:.1f} GiB"


@dataclass(frozen=True)
class _Adviser:
    """Finds commands that would work instead; each is composed and planned before it is offered."""

    machine: Machine
    compose: Compose
    trains: Trains
    program: str

    def commands(self, config: Config, mesh: Mesh, overrides: Sequence[str]) -> Iterator[str]:
        """Lines of ``command  # what it does``."""
        machine = self.machine
        here: dict[str, str | None] = {"cluster.nodes": None, "cluster.devices_per_node": None}
        if config.hardware.name != machine.hardware:
            here["hardware"] = None
        if machine.is_cpu and mesh.world > 1:
            processes = {**here, "cluster.devices_per_node": str(mesh.world)}
            yield from self._train(replace_overrides(overrides, processes), f"{mesh.world} processes on the CPU")
        for name, least in TP_LAYOUTS.items() if mesh.tp * mesh.pp > 1 else ():
            if not machine.is_cpu and least <= machine.devices and least < mesh.world:
                found = list(self._train(replace_overrides(overrides, {**here, "parallel": name}), "fits here"))
                yield from found
                if found:
                    break
        if machine.devices > 1:
            fsdp = replace_overrides(overrides, {**here, "parallel": "fsdp"})
            yield from self._train(fsdp, f"FSDP over the {machine.devices} devices")
        one = "one process on the CPU" if machine.is_cpu else "one device"
        yield from self._train(replace_overrides(overrides, {**here, "parallel": "single"}), one)
        yield from self._plan_elsewhere(config, overrides)

    def _train(self, overrides: list[str], why: str) -> Iterator[str]:
        """The command that trains with ``overrides``, if need be without a micro batch of the user's; nothing when it would not work."""
        found = self._sound(overrides)
        if found and self.trains(found.config, found.plan) and not _lacking(found.config, found.plan, self.machine):
            command = f"{self.program} {shlex.join(found.overrides)}".rstrip()
            yield f"{command}  # {why}"

    def _plan_elsewhere(self, config: Config, overrides: Sequence[str]) -> Iterator[str]:
        """The command that plans the request as it is for hardware that is not here."""
        is_elsewhere = config.hardware.vendor in ("amd", "nvidia") and config.hardware.name != self.machine.hardware
        attempt = list(overrides) if is_elsewhere else replace_overrides(overrides, {"hardware": ELSEWHERE})
        found = self._sound(attempt)
        if found:
            yield f"{self.program} plan {shlex.join(found.overrides)}  # plans it without them"

    def _sound(self, overrides: list[str]) -> _Attempt | None:
        """The overrides, if need be without a micro batch of the user's, when a plan of them has no problems."""
        try:
            found = self._attempt(overrides)
            if found.plan.problems:
                found = self._attempt(replace_overrides(overrides, {"training.micro_batch_size": None}))
        except UserError:
            return None
        return None if found.plan.problems else found

    def _attempt(self, overrides: list[str]) -> _Attempt:
        config = self.compose(overrides)
        plan = make_plan(config, local_devices=self.machine.devices, local_hardware=self.machine.hardware)
        return _Attempt(overrides, config, plan)
