"""The registry of corrections: applied where needed and chosen, reported, and loud when what they change is gone."""

import importlib
import inspect
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

import primus_app
from primus_app.backends.base import load_backend
from primus_app.backends.patches import Patch, apply_patches, check_choice
from primus_app.backends.reference import patches_page
from primus_app.backends.torchtitan.stand_ins import STAND_INS
from primus_app.config.compose import Request
from primus_app.config.load import load_config

ROOT = Path(primus_app.__file__).parents[1]
TORCHTITAN = load_backend("torchtitan").patches()
ON_A_CPU = ["torchtitan-cpu-device", "torchtitan-final-sleep", "torchtitan-cpu-peak"]


@pytest.fixture
def registry() -> tuple[list[Patch], list[str]]:
    """Three patches, the second of which is not needed, and what was applied."""
    applied: list[str] = []

    def patch(name: str, needed: bool) -> Patch:
        return Patch(name, "a reason", "lib 1.0", f"lib.{name}", f"{name} holds", lambda: needed, lambda: applied.append(name))

    return [patch("first", True), patch("second", False), patch("third", True)], applied


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("auto", ["first", "third"]), ("none", []), (["third"], ["third"]), (["third", "first"], ["first", "third"]), (["second"], [])],
)
def test_what_is_needed_and_chosen_is_applied_in_the_registrys_order(
    registry: tuple[list[Patch], list[str]], choice: Literal["auto", "none"] | list[str], expected: list[str]
) -> None:
    patches, applied = registry
    assert [patch.id for patch in apply_patches(choice, patches)] == expected
    assert applied == expected


def test_what_happens_is_in_the_log(registry: tuple[list[Patch], list[str]], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        apply_patches(["first"], registry[0])
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "patch first applied to lib.first, because first holds"),
        ("DEBUG", "patch second is not needed: second holds does not hold"),
        ("WARNING", "patch third is needed (third holds) but not chosen: backend.patches=['first']"),
    ]


def test_an_unknown_id_is_refused_with_the_nearest() -> None:
    assert check_choice("auto", TORCHTITAN) == []
    assert check_choice("none", TORCHTITAN) == []
    assert check_choice([patch.id for patch in TORCHTITAN], TORCHTITAN) == []
    (problem,) = check_choice(["torchtitan-final-slep"], TORCHTITAN)
    assert (problem.where, problem.what) == ("backend.patches", "no patch is called 'torchtitan-final-slep'")
    assert problem.fix == ("did you mean torchtitan-final-sleep?",)


def test_the_backend_refuses_an_unknown_id_before_the_launch() -> None:
    config = load_config(Request(("backend.patches=[torchtitan-cpu-peek]", "parallel.dp_shard=1")), hardware="cpu")
    unknown, missing = (problem for problem in load_backend("torchtitan").check(config, None) if problem.where == "backend.patches")
    assert str(unknown) == (
        "backend.patches: no patch is called 'torchtitan-cpu-peek'\n  did you mean torchtitan-cpu-peak or torchtitan-cpu-device?"
    )
    # The list also leaves out the one that a CPU cannot do without.
    assert "does not run on a CPU without the patch torchtitan-cpu-device" in missing.what


def test_the_registry_is_well_formed() -> None:
    assert len({patch.id for patch in TORCHTITAN}) == len(TORCHTITAN)
    for patch in TORCHTITAN:
        assert patch.id == patch.id.lower().replace("_", "-")
        assert patch.target.count(".") >= 2
        assert patch.reason.endswith(".")
        assert patch.upstream.startswith("torchtitan ")
        assert patch.condition


def in_process(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    head = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    return subprocess.run([sys.executable, "-c", head + code], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_asking_for_the_registry_imports_no_engine(tmp_path: Path) -> None:
    code = """
from primus_app.backends.base import load_backend
from primus_app.backends.reference import patches_page
load_backend("torchtitan").patches(); patches_page()
print(*{"torch", "torchtitan"} & sys.modules.keys())
"""
    done = in_process(code, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


@pytest.mark.slow
def test_on_this_machine_without_accelerator_the_expected_ones_are_applied(tmp_path: Path) -> None:
    """In a process of its own, as in a rank: nothing has imported torchtitan before."""
    import torch

    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    code = """
import logging, math
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from primus_app.backends.base import load_backend
from primus_app.backends.patches import apply_patches
patches = load_backend("torchtitan").patches()
import torch.distributed
print("lacks it" if not hasattr(torch.distributed, "set_timeout") else "has it")
print("applied", *(patch.id for patch in apply_patches("auto", patches)))
import time, torch, torchtitan.tools.utils as utils, torchtitan.trainer as trainer
assert utils.device_type == "cpu" and math.isnan(utils.get_peak_flops("x"))
assert trainer.time is not time and trainer.time.perf_counter() <= time.perf_counter()
assert callable(torch.distributed.set_timeout)
print("again", *(patch.id for patch in apply_patches("auto", patches)))
"""
    done = in_process(code, tmp_path)
    assert done.returncode == 0, done.stderr
    applied = next(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("applied"))
    assert [name for name in applied if not name.startswith("torch-")] == ON_A_CPU  # Those mend an older torch.
    assert ("torch-distributed-set-timeout" in applied) == ("lacks it" in done.stdout.splitlines())
    for patch in TORCHTITAN:
        said = f"patch {patch.id} applied to {patch.target}, because {patch.condition}" in done.stdout
        assert said == (patch.id in applied)
    assert "again" in done.stdout, "applying twice does no harm"


REMOVALS = {
    "torchtitan-cpu-device": (
        "import torch._utils as home; del home._get_available_device_type",
        "torch._utils._get_available_device_type",
    ),
    "torch-distributed-set-timeout": (
        "import torch.distributed as d; d.__dict__.pop('set_timeout', None); del d.distributed_c10d._set_pg_timeout",
        "torch.distributed.distributed_c10d._set_pg_timeout",
    ),
    "torch-pipeline-micro-batches": (
        "import torch.distributed.pipelining.schedules as home; del home.PipelineScheduleMulti",
        "torch.distributed.pipelining.schedules.PipelineScheduleMulti",
    ),
    "torch-pipeline-shape-pass": (
        "from torch.distributed.pipelining.stage import PipelineStage as home; del home._forward_metadata_inference",
        "torch.distributed.pipelining.stage.PipelineStage._forward_metadata_inference",
    ),
    "torchtitan-final-sleep": ("import torchtitan.trainer as home; del home.time", "torchtitan.trainer.time"),
    "torchtitan-cpu-peak": ("import torchtitan.tools.utils as home; del home.get_peak_flops", "torchtitan.tools.utils.get_peak_flops"),
}
"""How each patch's target is taken away, and how the error names it."""


def test_every_patch_is_tried_without_its_target() -> None:
    assert set(REMOVALS) == {patch.id for patch in TORCHTITAN}


@pytest.mark.slow
@pytest.mark.parametrize("name", REMOVALS)
def test_a_patch_whose_target_is_gone_names_itself_and_the_target(tmp_path: Path, name: str) -> None:
    removal, target = REMOVALS[name]
    code = f"""
from primus_app.backends.base import load_backend
from primus_app.backends.torchtitan.device import prepare_device
patches = {{patch.id: patch for patch in load_backend("torchtitan").patches()}}
if {name.startswith(("torchtitan-final", "torchtitan-cpu-peak"))}:
    prepare_device()
{removal}
try:
    patches[{name!r}].apply()
except RuntimeError as error:
    print(error)
"""
    done = in_process(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{name}: "), done.stdout
    assert target in done.stdout


def test_a_failure_to_apply_is_never_swallowed() -> None:
    def fail() -> None:
        raise RuntimeError("mine: lib.target is gone")

    broken = replace(TORCHTITAN[0], is_needed=lambda: True, apply=fail)
    with pytest.raises(RuntimeError, match=r"lib\.target is gone"):
        apply_patches("auto", [broken])


def attribute(path: str) -> Callable[..., Any]:
    module, _, names = path.partition(".")
    found: Any = importlib.import_module(f"primus_app.backends.torchtitan.{module}")
    for name in names.split("."):
        found = getattr(found, name)
    assert callable(found)
    return found


@pytest.mark.parametrize("part", [each.part for each in STAND_INS])
def test_every_stand_in_exists(part: str) -> None:
    from primus_app.backends.torchtitan.device import prepare_device

    prepare_device()
    assert inspect.getsource(attribute(part))


def test_the_page_is_in_step() -> None:
    page = patches_page()
    assert (ROOT / "docs/patches.md").read_text(encoding="utf-8") == page, "run ./scripts/docs"
    for patch in TORCHTITAN:
        assert f"| `{patch.id}` | `{patch.target}` | {patch.upstream} | {patch.condition} | {patch.reason} |" in page
    for each in STAND_INS:
        assert f"`{each.part}`" in page
