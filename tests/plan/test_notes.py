"""What is told of a request that is allowed."""

import pytest

from primus_app.__main__ import main


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("model.init=native", "parallel=fsdp", "cluster.devices_per_node=2"), True),
        (("model.init=native",), False),
        (("parallel=fsdp", "cluster.devices_per_node=2"), False),
    ],
)
def test_native_weights_on_several_ranks_are_told(overrides: tuple[str, ...], told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "hardware=cpu", *overrides]) == 0
    assert ("note: model.init=native on 2 ranks" in capsys.readouterr().out) is told
