"""Device detection against a /sys tree in the kernel's own format and a stand-in for nvidia-smi's output."""

from collections.abc import Callable
from pathlib import Path

import pytest

from primus_app.config.errors import ExitCode, UserError
from primus_app.launch.devices import (
    Devices,
    TorchBuild,
    detect_devices,
    gfx_name,
    installed_torch,
    known_hardware,
    nvidia_card,
    torch_build,
)

ROCM = TorchBuild("2.11.0+rocm7.2", cuda=False, hip=True)
CUDA = TorchBuild("2.13.0+cu130", cuda=True, hip=False)
CPU = TorchBuild("2.13.0+cpu", cuda=False, hip=False)

# The keys and their order as Linux 6.8 writes them (drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
GPU_PROPERTIES = """\
cpu_cores_count 0
simd_count {simd_count}
mem_banks_count 1
caches_count 217
io_links_count 1
p2p_links_count 8
cpu_core_id_base 0
simd_id_base 2147487744
max_waves_per_simd 8
lds_size_in_kb 64
gds_size_in_kb 0
num_gws 64
wave_front_size 64
array_count 32
simd_arrays_per_engine 1
cu_per_simd_array 10
simd_per_cu 4
max_slots_scratch_cu 32
gfx_target_version {gfx}
vendor_id 4098
device_id {device_id}
location_id 8960
domain 0
drm_render_minor {minor}
hive_id 17137129439237121487
num_sdma_engines 2
num_sdma_xgmi_engines 14
num_sdma_queues_per_engine 8
num_cp_queues 24
max_engine_clk_fcompute 2100
local_mem_size 0
fw_version 166
capability 2012708512
debug_prop 1511
sdma_fw_version 22
unique_id {unique_id}
num_xcc {num_xcc}
max_engine_clk_ccompute 3000
"""
CPU_PROPERTIES = "cpu_cores_count 96\nsimd_count 0\nmem_banks_count 1\ngfx_target_version 0\nvendor_id 0\ndevice_id 0\ndrm_render_minor 0\n"

MI300X = {"device_id": 0x74A1, "gfx": 90402, "simd_count": 1216, "num_xcc": 8}
MI250X = {"device_id": 0x740C, "gfx": 90010, "simd_count": 440, "num_xcc": 1}
MI355X = {"device_id": 0x75A3, "gfx": 90500, "simd_count": 1024, "num_xcc": 8}

Machine = Callable[..., Path]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Builds a root folder with sys/ and dev/ for two CPU sockets and the cards given."""

    def build(*cards: dict[str, int], sockets: int = 2) -> Path:
        nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
        (tmp_path / "dev/dri").mkdir(parents=True)
        (tmp_path / "dev/kfd").touch()
        texts = [CPU_PROPERTIES] * sockets
        for position, card in enumerate(cards):
            minor = 128 + 8 * position
            (tmp_path / f"dev/dri/renderD{minor}").touch()
            texts.append(GPU_PROPERTIES.format(minor=minor, unique_id=0xABC0 + position, **card))
        for number, text in enumerate(texts):
            (nodes / str(number)).mkdir(parents=True)
            (nodes / str(number) / "properties").write_text(text)
        return tmp_path

    return build


def detect(
    root: Path, environment: dict[str, str] | None = None, torch: TorchBuild = ROCM, nvidia_smi: str = "/nonexistent/nvidia-smi"
) -> Devices:
    return detect_devices(root, environment or {}, torch=torch, nvidia_smi=nvidia_smi)


@pytest.mark.parametrize(("version", "name"), [(90010, "gfx90a"), (90402, "gfx942"), (90500, "gfx950"), (110003, "gfx1103")])
def test_gfx_names_are_the_compilers(version: int, name: str) -> None:
    assert gfx_name(version) == name


def test_eight_mi300x_among_the_cpu_nodes(machine: Machine) -> None:
    found = detect(machine(*[MI300X] * 8))
    assert (found.hardware, found.count, found.names) == ("mi300x", 8, ("MI300X",) * 8)
    assert found.unknown is None
    assert found.unused is None
    assert known_hardware(found) == "mi300x"


@pytest.mark.parametrize(
    ("device_id", "hardware"),
    [
        (0x7408, "mi250x"),
        (0x740C, "mi250x"),
        (0x74A1, "mi300x"),
        (0x74B5, "mi300x"),
        (0x74A5, "mi325x"),
        (0x74B9, "mi325x"),
        (0x75A0, "mi350x"),
        (0x75A3, "mi355x"),
    ],
)
def test_every_known_id_names_its_file(machine: Machine, device_id: int, hardware: str) -> None:
    assert detect(machine({**MI300X, "device_id": device_id})).hardware == hardware


def test_a_card_without_an_entry_is_refused_with_the_nearest_named(machine: Machine) -> None:
    found = detect(machine({**MI250X, "device_id": 0x740F, "simd_count": 416}))
    assert (found.hardware, found.unknown, found.nearest, found.count) == ("unknown", "MI210", "mi250x", 1)
    with pytest.raises(UserError) as refusal:
        known_hardware(found)
    assert str(refusal.value).startswith(
        "hardware: no conf/hardware entry for MI210; nearest: mi250x\n  say which figures to use: hardware=mi250x"
    )
    assert refusal.value.code is ExitCode.UNFIT_MACHINE


def test_a_device_id_nobody_knows_is_shown_with_its_number(machine: Machine) -> None:
    found = detect(machine({"device_id": 0x7550, "gfx": 120001, "simd_count": 128, "num_xcc": 1}))
    assert (found.unknown, found.nearest) == ("AMD device 0x7550 (gfx1201)", None)


def test_an_mi250_is_not_taken_for_an_mi250x(machine: Machine) -> None:
    found = detect(machine({**MI250X, "simd_count": 416}))
    assert (found.unknown, found.nearest) == ("MI250", "mi250x")


def test_a_divided_mi300x_does_not_get_the_figures_of_a_whole_one(machine: Machine) -> None:
    found = detect(machine(*[{**MI300X, "simd_count": 152, "num_xcc": 1}] * 8))
    assert (found.unknown, found.nearest) == ("MI300X divided into partitions of 1 of 8 XCDs", "mi300x")


def test_two_kinds_of_card_are_not_one_kind(machine: Machine) -> None:
    found = detect(machine(MI300X, MI355X))
    assert (found.unknown, found.nearest, found.count) == ("1 x MI300X and 1 x MI355X", "mi300x", 2)


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({"HIP_VISIBLE_DEVICES": "0,3"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "1"}, 1),
        ({"HIP_VISIBLE_DEVICES": "0,1,2", "CUDA_VISIBLE_DEVICES": "0"}, 3),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "0,1,2"}, 2),
        ({"ROCR_VISIBLE_DEVICES": "GPU-000000000000abc1"}, 1),
        ({"HIP_VISIBLE_DEVICES": "0,-1,2"}, 1),
        ({"HIP_VISIBLE_DEVICES": "0,0"}, 1),
        ({"HIP_VISIBLE_DEVICES": "99"}, 0),
        ({"HIP_VISIBLE_DEVICES": ""}, 0),
    ],
)
def test_visible_devices_are_obeyed(machine: Machine, environment: dict[str, str], count: int) -> None:
    found = detect(machine(*[MI300X] * 8), environment)
    assert (found.hardware, found.count) == (("mi300x", count) if count else ("cpu", 1))


def test_nodes_keep_the_kernels_order_past_nine(machine: Machine) -> None:
    root = machine(*[MI300X] * 8, MI355X, sockets=4)
    assert detect(root, {"HIP_VISIBLE_DEVICES": "8"}).names == ("MI355X",)


def test_only_cards_whose_render_node_is_in_the_container_count(machine: Machine) -> None:
    root = machine(*[MI300X] * 8)
    for minor in range(128, 160, 8):
        (root / f"dev/dri/renderD{minor}").unlink()
    assert detect(root).count == 4


def test_cards_that_cannot_be_opened_are_named_not_passed_over(machine: Machine) -> None:
    root = machine(*[MI300X] * 8)
    (root / "dev/kfd").unlink()
    found = detect(root)
    assert (found.hardware, found.count) == ("cpu", 1)
    assert found.unused == "8 AMD devices, but /dev/kfd or /dev/dri/renderD* cannot be opened from here"


def test_a_torch_without_rocm_cannot_use_the_cards(machine: Machine) -> None:
    found = detect(machine(*[MI300X] * 2), torch=CPU)
    assert found.hardware == "cpu"
    assert found.unused == "2 x MI300X, but the installed torch 2.13.0+cpu is built without ROCm"


def test_a_machine_without_accelerators_is_one_cpu_process(tmp_path: Path) -> None:
    found = detect(tmp_path, torch=CPU)
    assert (found.hardware, found.count, found.names, found.unused) == ("cpu", 1, (), None)
    assert found.memory_gib > 0


def test_the_memory_of_a_container_is_its_limit(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{2**28}\n")
    assert detect(tmp_path).memory_gib == 0.25


@pytest.mark.parametrize(
    ("name", "hardware", "nearest"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100", "a100"),
        ("NVIDIA A100-SXM4-40GB", None, "a100"),
        ("NVIDIA A100-PCIE-40GB", None, "a100"),
        ("NVIDIA H100 80GB HBM3", "h100", "h100"),
        ("NVIDIA H100 PCIe", None, "h100"),
        ("NVIDIA H200", "h200", "h200"),
        ("NVIDIA H200 NVL", None, "h200"),
        ("NVIDIA GH200 480GB", None, "h200"),
        ("NVIDIA B200", "b200", "b200"),
        ("NVIDIA GB200", None, "b200"),
        ("NVIDIA GeForce RTX 4090", None, None),
    ],
)
def test_nvidia_names(name: str, hardware: str | None, nearest: str | None) -> None:
    card = nvidia_card(name)
    assert (card.hardware, card.nearest) == (hardware, nearest)


@pytest.fixture
def nvidia_smi(tmp_path: Path) -> Callable[[str], str]:
    def build(script: str) -> str:
        file = tmp_path / "nvidia-smi"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return str(file)

    return build


FOUR_H100 = "\n".join(f"echo 'NVIDIA H100 80GB HBM3, GPU-{number}f2c81a0-3d5e-97b1-04aa-5c1f6e0d2b37'" for number in range(4))


@pytest.mark.parametrize(
    ("environment", "count"),
    [({}, 4), ({"CUDA_VISIBLE_DEVICES": "2,3"}, 2), ({"CUDA_VISIBLE_DEVICES": "GPU-1f2c"}, 1), ({"HIP_VISIBLE_DEVICES": "0"}, 4)],
)
def test_nvidia_cards_are_counted(tmp_path: Path, nvidia_smi: Callable[[str], str], environment: dict[str, str], count: int) -> None:
    found = detect(tmp_path, torch=CUDA, nvidia_smi=nvidia_smi(FOUR_H100), environment=environment)
    assert (found.hardware, found.count) == ("h100", count)


def test_a_mig_slice_does_not_get_the_figures_of_its_card(tmp_path: Path, nvidia_smi: Callable[[str], str]) -> None:
    found = detect(tmp_path, torch=CUDA, nvidia_smi=nvidia_smi(FOUR_H100), environment={"CUDA_VISIBLE_DEVICES": "MIG-5c1f6e0d"})
    assert (found.unknown, found.nearest, found.count) == ("a MIG slice of NVIDIA H100 80GB HBM3", "h100", 1)


def test_an_nvidia_smi_that_fails_means_no_card(tmp_path: Path, nvidia_smi: Callable[[str], str]) -> None:
    script = "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9"
    assert detect(tmp_path, torch=CUDA, nvidia_smi=nvidia_smi(script)).hardware == "cpu"


@pytest.mark.parametrize(
    ("source", "build"),
    [
        ("from typing import Optional\n__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", CPU),
        ("from typing import Optional\n__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", CUDA),
        ("__version__ = '2.11.0+rocm7.2'\ncuda: Optional[str] = None\nhip: Optional[str] = '7.2.26015-fc0010cf6a'\n", ROCM),
    ],
)
def test_the_build_of_torch_is_read_from_its_version_file(source: str, build: TorchBuild) -> None:
    assert torch_build(source) == build


def test_the_installed_torch_is_found_without_importing_it() -> None:
    import torch

    build = installed_torch()
    assert build is not None
    assert (build.version, build.cuda, build.hip) == (
        torch.version.__version__,
        torch.version.cuda is not None,
        torch.version.hip is not None,
    )
