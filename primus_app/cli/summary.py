"""What is said before and after a run: where it lies, how it ended, where to look."""

import shlex
import sys
from collections.abc import Sequence

from primus_app.backends.stored_index import whole_step
from primus_app.config.errors import ExitCode
from primus_app.config.typed import typed
from primus_app.plan.neighbours import count
from primus_app.plan.plan import Plan
from primus_app.run.directory import RunDirectory
from primus_app.run.metrics import read_metrics
from primus_app.run.open import OpenedRun
from primus_app.run.snapshot import read_config
from primus_app.run.status import Status, read_status


def show_start(opened: OpenedRun, attempt: int, plan: Plan) -> None:
    """What is trained, for how long, and where it is written down."""
    mesh, batch, parameters = plan.mesh, plan.batch, plan.parameters
    assert mesh is not None
    assert batch is not None
    assert parameters is not None
    config = opened.config
    again = f" (attempt {attempt})" if attempt else ""
    model = f"{plan.model_name}, {parameters.total:,} parameters, {config.backend.name} on {mesh.world} x {config.hardware.name}"
    lines = [
        ("continuing" if opened.kind == "continue" else "training", model),
        ("for", f"{count(batch.steps, 'step')} of {batch.tokens_per_step:,} tokens"),
        ("run directory", f"{opened.run.path}{again}"),
    ]
    if opened.kind == "new" and config.checkpoint.load:
        lines.append(("starts from", f"the weights of {config.checkpoint.load}"))
    if opened.kind == "continue":
        lines.append(("goes on", _goes_on(opened.run)))
    print(_aligned(lines), flush=True)


def show_finished(run: RunDirectory) -> None:
    """The run is complete already."""
    status = read_status(run)
    step = f" after step {status.step}" if status and status.step is not None else ""
    print(f"{run.path} is complete{step}; training.steps=<more> makes it longer, exp_name=<another name> starts anew")


def show_summary(run: RunDirectory, attempt: int, code: ExitCode) -> None:
    """How the attempt ended: numbers and paths when it went well, the cause first when it did not."""
    status = read_status(run)
    if code == ExitCode.DONE:
        print(f"\ncomplete\n{_numbers(run)}")
    elif status is not None:
        sys.stdout.flush()
        print(_failure(run, attempt, status, code), file=sys.stderr)


def _numbers(run: RunDirectory) -> str:
    rows = read_metrics(run)
    losses = [row for row in rows if "loss" in row]
    evaluations = [row for row in rows if "eval_loss" in row]
    lines = []
    if losses:
        middle = sorted(row["step_time_s"] for row in losses)[len(losses) // 2]
        lines.append(("loss", f"{losses[0]['loss']:.4f} -> {losses[-1]['loss']:.4f}"))
        lines.append(("median step", f"{middle:.3f} s"))
    if evaluations:
        lines.append(("evaluation loss", f"{evaluations[0]['eval_loss']:.4f} -> {evaluations[-1]['eval_loss']:.4f}"))
    logs = run.log_dir(0, read_config(run.config_file).training.stage)
    places = (("metrics", run.metrics_file), ("logs", logs), ("checkpoints", run.checkpoints_dir))
    lines += [(name, str(path)) for name, path in places if path.exists()]
    if run.tensorboard_dir.exists():
        lines.append(("TensorBoard", f"tensorboard --logdir {shlex.quote(str(run.tensorboard_dir))}"))
    return _aligned(lines)


def _goes_on(run: RunDirectory) -> str:
    step, damaged = whole_step(run.checkpoints_dir)
    reasons = "; ".join(f"checkpoint step-{number} is damaged: {why}" for number, why in damaged.items())
    if step is None:
        return f"from none of its checkpoints: {reasons}" if damaged else "from step 1: there is no complete checkpoint"
    return f"after step {step}" + (f", as {reasons}" if damaged else "")


def _exp_name(run: RunDirectory) -> str:
    """As it has to be typed: a sweep's job lies in the sweep's folder."""
    return typed("exp_name", read_config(run.config_file).exp_name)


def _aligned(lines: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{name:<16}{text}" for name, text in lines)


def _failure(run: RunDirectory, attempt: int, status: Status, code: ExitCode) -> str:
    if code == ExitCode.STOPPED:
        return f"{status.cause}; the same command with {_exp_name(run)} goes on {_goes_on(run)}"
    who = f"rank {status.rank} failed first: " if status.rank is not None else ""
    lines = [f"error: {who}{status.cause}"]
    if status.log:
        lines.append(f"  its log: {status.log}")
    lines.append(f"  everything about this start: {run.attempts_dir / str(attempt)}")
    lines.append(f"  the same command with {_exp_name(run)} goes on {_goes_on(run)}")
    return "\n".join(lines)
