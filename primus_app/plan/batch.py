"""The arithmetic of a step: global batch, micro batches, tokens, and how many steps there are."""

from dataclasses import dataclass

from primus_app.config.errors import Problem
from primus_app.config.schema import TrainingConfig
from primus_app.plan.neighbours import count, divisors, nearest, offer


@dataclass(frozen=True)
class Batch:
    """What one optimizer step takes in, and how many there are.

    Attributes:
        global_batch_size: samples of a step, over all ranks.
        micro_batch_size: samples of one forward pass of one rank.
        dp: ranks that read different samples.
        accumulation: micro batches of one rank in a step: global_batch_size / (micro_batch_size * dp).
        tokens_per_step: global_batch_size * seq_len.
        steps: optimizer steps; training.tokens is rounded up to whole steps.
        total_tokens: steps * tokens_per_step.
    """

    global_batch_size: int
    micro_batch_size: int
    dp: int
    accumulation: int
    tokens_per_step: int
    steps: int
    total_tokens: int


@dataclass(frozen=True)
class Rhythm:
    """What a pipeline's schedule asks of the number of micro batches.

    Attributes:
        multiple_of: the number is a multiple of this.
        at_least: the number is not below this.
    """

    multiple_of: int = 1
    at_least: int = 1

    def accepts(self, accumulation: int) -> bool:
        return accumulation % self.multiple_of == 0 and accumulation >= self.at_least


ANY_NUMBER = Rhythm()

AUTO_MICRO_BATCH = 8
"""Largest micro batch that ``auto`` takes: more seldom makes a step faster, and costs activations."""


def make_batch(
    training: TrainingConfig, dp: int | None, rhythm: Rhythm = ANY_NUMBER, schedule: str = "1f1b"
) -> tuple[Batch | None, list[Problem]]:
    """The batch, or None, and everything that is wrong with it; with dp None (no mesh) only the length is checked."""
    steps = resolve_steps(training)
    problems = [] if steps is not None else [_length_problem(training)]
    if dp is None:
        return None, problems
    micro = micro_batch_size(training, dp, rhythm)
    problems += _size_problems(training, micro, dp, rhythm, schedule)
    if problems or steps is None:
        return None, problems
    accumulation = training.global_batch_size // (micro * dp)
    per_step = training.global_batch_size * training.seq_len
    return Batch(training.global_batch_size, micro, dp, accumulation, per_step, steps, steps * per_step), []


def micro_batch_size(training: TrainingConfig, dp: int, rhythm: Rhythm) -> int:
    """training.micro_batch_size; for auto the largest up to AUTO_MICRO_BATCH that is legal, 1 where none is."""
    if training.micro_batch_size != "auto":
        return training.micro_batch_size
    sizes = range(AUTO_MICRO_BATCH, 0, -1)
    return next((size for size in sizes if is_legal(training.global_batch_size, size, dp, rhythm)), 1)


def resolve_steps(training: TrainingConfig) -> int | None:
    """Optimizer steps, from steps or from tokens; None unless exactly one of them is given."""
    if (training.steps is None) == (training.tokens is None):
        return None
    return training.steps if training.tokens is None else _steps_for(training, training.tokens)


def _steps_for(training: TrainingConfig, tokens: int) -> int:
    return -(-tokens // (training.global_batch_size * training.seq_len))


def _length_problem(training: TrainingConfig) -> Problem:
    per_step = training.global_batch_size * training.seq_len
    if training.steps is None or training.tokens is None:
        fix = (f"training.steps=200 or training.tokens={200 * per_step} (200 steps of {per_step:,} tokens)",)
        return Problem("training.steps", "neither training.steps nor training.tokens says how long to train", fix)
    what = f"steps {training.steps} and tokens {training.tokens} are both given; exactly one says how long to train"
    choices = (
        f"training.steps=null (trains {training.tokens:,} tokens: {count(_steps_for(training, training.tokens), 'step')} of {per_step:,})",
        f"training.tokens=null (trains {count(training.steps, 'step')}: {training.steps * per_step:,} tokens)",
    )
    return Problem("training.steps", what, choices)


def _size_problems(training: TrainingConfig, micro: int, dp: int, rhythm: Rhythm, schedule: str) -> list[Problem]:
    size = training.global_batch_size
    if is_legal(size, micro, dp, rhythm):
        return []
    unit = f"micro_batch_size {micro} x dp {dp} = {micro * dp}"
    if size % (micro * dp):
        what = f"global_batch_size {size} is not divisible by {unit}"
    elif size // (micro * dp) % rhythm.multiple_of:
        what = f"{_micro_batches(size, micro, dp)} a step, and the {schedule} schedule needs a multiple of pp {rhythm.multiple_of}"
    else:
        what = f"{_micro_batches(size, micro, dp)} a step, and the {schedule} schedule needs at least one for each of pp {rhythm.at_least}"
    where = "training.global_batch_size" if training.micro_batch_size == "auto" else "training.micro_batch_size"
    return [Problem(where, what, _size_fixes(size, micro, dp, rhythm))]


def _micro_batches(size: int, micro: int, dp: int) -> str:
    number = size // (micro * dp)
    return f"global_batch_size {size} / (micro_batch_size {micro} x dp {dp}) is {count(number, 'micro batch')}"


def _size_fixes(size: int, micro: int, dp: int, rhythm: Rhythm) -> tuple[str, ...]:
    micros = nearest(divisors(size // dp), micro, lambda other: is_legal(size, other, dp, rhythm)) if size % dp == 0 else ()
    if micros:
        unchanged = "same loss curve"
        return (
            *offer("training.micro_batch_size", micros, unchanged),
            *offer("training.global_batch_size", _sizes(size, micro, dp, rhythm)),
        )
    lone = [f"training.global_batch_size={other} training.micro_batch_size=1" for other in _sizes(size, 1, dp, rhythm)]
    return (*offer("training.global_batch_size", _sizes(size, micro, dp, rhythm)), *([" or ".join(lone)] if micro > 1 else []))


def _sizes(size: int, micro: int, dp: int, rhythm: Rhythm) -> tuple[int, ...]:
    """The global batches around ``size`` that a micro batch allows."""
    unit = micro * dp * rhythm.multiple_of
    least = micro * dp * rhythm.at_least
    candidates = {size // unit * unit, size // unit * unit + unit, -(-least // unit) * unit}
    return nearest(candidates, size, lambda other: other > 0 and is_legal(other, micro, dp, rhythm))


def is_legal(size: int, micro: int, dp: int, rhythm: Rhythm) -> bool:
    """Whether the global batch comes out in whole micro batches, in a number that the schedule takes."""
    return size % (micro * dp) == 0 and rhythm.accepts(size // (micro * dp))
