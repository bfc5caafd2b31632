"""The plan of a run: everything that can be said about a configuration before anything starts."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from primus_app.config.errors import Problem
from primus_app.config.schema import Config, ParallelConfig
from primus_app.plan.batch import ANY_NUMBER, Batch, Rhythm, make_batch, resolve_steps
from primus_app.plan.data_rules import check_data
from primus_app.plan.divisibility import check_divisibility, degree_allowed
from primus_app.plan.mesh import Mesh, resolve_mesh
from primus_app.plan.model_rules import check_model
from primus_app.plan.parameters import ParameterCount, count_parameters, training_flops_per_token
from primus_app.plan.recipe_rules import check_balancing, check_effects, check_recompute, check_schedule
from primus_app.plan.stage_rules import check_stage
from primus_app.plan.stages import Stage, make_stages, pipeline_ranks

FLOPS_CONVENTION = "model FLOPs: 6 N_active_no_embedding + 12 L h s, causal attention counted full, no recomputation"

STATE_BYTES_PER_PARAMETER = 16
"""AdamW in float32: weight, gradient and two moments of 4 bytes each."""


@dataclass(frozen=True)
class Plan:
    """What a configuration comes to; a part is None (or empty) when problems keep it from being known.

    Attributes:
        flops_per_token: forward and backward, in FLOP, by FLOPS_CONVENTION.
        flops_per_step: flops_per_token * tokens_per_step, over all ranks.
        model_state_gib: weights, gradients and moments on the rank that holds most, in GiB (see :func:`model_state_bytes`).
        problems: everything that would certainly fail; empty for a configuration that can be started.
    """

    model_name: str
    mesh: Mesh | None
    batch: Batch | None
    parameters: ParameterCount | None
    stages: tuple[Stage, ...]
    flops_per_token: float | None
    flops_per_step: float | None
    model_state_gib: float | None
    problems: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for plan.json and --json; lists, not tuples, so that it survives a round trip through JSON."""
        return {
            "model": self.model_name,
            "mesh": asdict(self.mesh) if self.mesh else None,
            "batch": asdict(self.batch) if self.batch else None,
            "parameters": _parameters(self.parameters) if self.parameters else None,
            "stages": [asdict(stage) for stage in self.stages],
            "flops_per_token": self.flops_per_token,
            "flops_per_step": self.flops_per_step,
            "flops_convention": FLOPS_CONVENTION,
            "model_state_gib": self.model_state_gib,
            "model_state_bytes_per_parameter": STATE_BYTES_PER_PARAMETER,
            "problems": [{"where": p.where, "what": p.what, "fix": list(p.fix)} for p in self.problems],
        }


def make_plan(config: Config, *, local_devices: int, local_hardware: str | None = None) -> Plan:
    """Work out the plan and find every problem at once.

    Args:
        local_devices: what cluster.devices_per_node=auto means on this machine (see :func:`primus_app.plan.mesh.resolve_mesh`).
        local_hardware: name of the hardware found in this machine, as in conf/hardware/; None where the caller did not look.
    """
    model, training, parallel = config.model, config.training, config.parallel

    def allows(degree: str, value: int) -> bool:
        return degree_allowed(model, training, parallel, degree, value)

    def resolve(layout: ParallelConfig) -> tuple[Mesh | None, list[Problem]]:
        return resolve_mesh(layout, config.cluster, config.hardware, local_devices, local_hardware=local_hardware, allows=allows)

    mesh, mesh_problems = resolve(parallel)
    model_problems = check_model(model)
    layout_problems = check_divisibility(model, training, parallel, lambda layout: mesh is None or resolve(layout)[0] is not None)
    batch, batch_problems = make_batch(training, mesh.dp if mesh else None, schedule_rhythm(config), parallel.schedule)
    parameters = None if model_problems else count_parameters(model)
    flops = None if model_problems else training_flops_per_token(model, training.seq_len)
    is_divided = mesh is not None and parameters is not None and not mesh_problems and not layout_problems
    stages = make_stages(model, parameters, mesh) if is_divided and mesh and parameters else ()
    problems = (
        *model_problems,
        *mesh_problems,
        *layout_problems,
        *batch_problems,
        *check_schedule(config.optimizer, resolve_steps(training)),
        *check_balancing(training, model),
        *check_effects(config),
        *check_recompute(training, stages),
        *check_stage(config),
        *check_data(config.data, training, model.vocab_size),
    )
    return Plan(
        model_name=model.name,
        mesh=mesh,
        batch=batch,
        parameters=parameters,
        stages=stages,
        flops_per_token=flops,
        flops_per_step=flops * batch.tokens_per_step if flops is not None and batch else None,
        model_state_gib=model_state_bytes(stages, mesh) / 2**30 if stages and mesh else None,
        problems=problems,
    )


def schedule_rhythm(config: Config) -> Rhythm:
    """What the pipeline's schedule asks of the micro batches of a step."""
    parallel = config.parallel
    if parallel.pp == 1:
        return ANY_NUMBER
    if parallel.schedule == "interleaved":
        return Rhythm(multiple_of=parallel.pp, at_least=parallel.pp)
    # torch's Schedule1F1B raises for fewer micro batches than stages; Megatron-core's does not.
    if parallel.schedule == "1f1b" and config.backend.name == "torchtitan":
        return Rhythm(at_least=parallel.pp)
    return ANY_NUMBER


def model_state_bytes(stages: Sequence[Stage], mesh: Mesh) -> float:
    """Weights, gradients and moments on the rank that holds most, in bytes; activations and buffers are not in it.

    ``16 · (D / (dp_shard·cp) + E / (dp_shard·cp·tp / (ep·etp)))`` with D the dense weights and E the routed experts of one rank after
    tp, ep and etp. FSDP shards over dp_shard and cp together; of the ranks of experts, those beyond ep and etp hold shards. Rows that
    do not divide evenly are padded by the engine, which is not counted.
    """
    shards = mesh.dp_shard * mesh.cp
    expert_shards = max(1, shards * mesh.tp // (mesh.ep * mesh.etp))
    ranks = pipeline_ranks(stages, mesh.pp)
    return STATE_BYTES_PER_PARAMETER * max(dense / shards + experts / expert_shards for dense, experts in ranks)


def _parameters(parameters: ParameterCount) -> dict[str, Any]:
    names = ("total", "active", "active_no_embedding", "embedding", "output", "final_norm")
    return {name: getattr(parameters, name) for name in names}
