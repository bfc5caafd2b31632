"""Constants fitted to steps that the model itself has timed with other constants: those that the steps tell come back."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from primus_app.plan.steptime.refit import Measured, predicted, refit, scaled
from tests.plan.steptime.test_step_time import hardware_of, layout, work

DEVICE = hardware_of("mi300x")
NAMES = ("efficiency.gemm", "efficiency.attention", "efficiency.memory", "efficiency.link")
TRUE = scaled(DEVICE, NAMES, np.log([1.2, 0.8, 0.9, 0.7]))
PLACES = {
    "one": (work("llama3_8b"), layout(num_microbatches=4)),
    "long": (work("llama3_8b", seq_len=65536), layout()),
    "short": (work("llama3_8b", seq_len=512), layout(micro_batch_size=1, num_microbatches=64)),
    "small": (work("llama_tiny", seq_len=512), layout(num_microbatches=8)),
    "tp8": (work("llama3_8b"), layout(tp=8, num_microbatches=4)),
}


def measured(*names: str) -> list[Measured]:
    runs = [Measured(name, *PLACES[name], step_s=1.0) for name in names]
    return [replace(run, step_s=predicted(TRUE, run)) for run in runs]


def test_what_the_steps_tell_comes_back() -> None:
    runs = measured(*PLACES)
    found = refit(DEVICE, runs)
    assert set(found.factors) == {*NAMES, "latency_us.kernel"}
    assert found.factors["latency_us.kernel"] == pytest.approx(1, rel=0.02)
    assert found.hardware.efficiency.model_dump() == pytest.approx(TRUE.efficiency.model_dump(), rel=0.01)
    assert [predicted(found.hardware, run) for run in runs] == pytest.approx([run.step_s for run in runs], rel=0.002)


def test_what_no_step_tells_stays_as_it_was() -> None:
    """One device never uses its links, and one run tells one number."""
    found = refit(DEVICE, measured("one"))
    assert list(found.factors) == ["efficiency.gemm"]
    assert {"efficiency.link", "efficiency.nic", "efficiency.gemm_fp8"} <= set(found.left)
    assert found.hardware.efficiency.link == DEVICE.efficiency.link
    assert found.shares["efficiency.gemm"][1] == "one"


def test_no_fraction_rises_above_one() -> None:
    [run] = measured("one")
    found = refit(DEVICE, [replace(run, step_s=run.step_s / 10)], log(100))
    assert found.hardware.efficiency.gemm == 1.0
