"""What saving costs the ranks of a Megatron run."""

import re
from pathlib import Path

import pytest

from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.plan.parameters import count_parameters
from tests.system.program import Forge

pytestmark = pytest.mark.slow


def test_replicas_hold_a_checkpoint_once_between_them(forge: Forge, tmp_path: Path) -> None:
    """A weight and two moments in float32 are 12 bytes for each parameter, and two data parallel ranks hold about half of them each."""
    overrides = ("backend=megatron", "parallel=dp", "cluster.devices_per_node=2", "training.steps=1", "checkpoint.every=1")
    run = forge.train(*overrides, "training.deterministic=true", "logging.level=debug", workspace=tmp_path, exp_name="held")
    logs = (path.read_text() for path in sorted(run.glob("logs/pre_trainer/rank-*/debug.log")))
    held = [int(number) for log in logs for number in re.findall(r"holds (\d+) bytes of a checkpoint", log)]
    assert len(held) == 2
    assert sum(held) == 12 * count_parameters(load_config(Request(overrides), hardware="cpu").model).total
    assert max(held) < 0.6 * sum(held)
