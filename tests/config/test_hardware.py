"""The figures in conf/hardware/ against the vendors' data sheets (dense, without sparsity)."""

from typing import Any

import pytest
import yaml

from primus_app.config.location import conf_dir
from primus_app.config.schema.place import HardwareConfig

FOLDER = conf_dir() / "hardware"

# memory GB, HBM TB/s, TFLOP/s in fp32, bf16, fp8, fp4, GB/s one way to the other devices of the node.
# AMD: data sheets and white papers of CDNA 2, 3 and 4 (MI250X: one GCD of two). NVIDIA: data sheets of the SXM boards and HGX B200.
DATA_SHEETS = {
    "mi250x": (64, 1.638, 47.9, 191.5, None, None, 350),
    "mi300x": (192, 5.3, 163.4, 1307.4, 2614.9, None, 448),
    "mi325x": (256, 6.0, 163.4, 1307.4, 2614.9, None, 448),
    "mi350x": (288, 8.0, 144.2, 2306.9, 4613.7, 9227.5, 537.6),
    "mi355x": (288, 8.0, 157.3, 2516.6, 5033.2, 10066.3, 537.6),
    "a100": (80, 2.039, 19.5, 312, None, None, 300),
    "h100": (80, 3.35, 67, 989.4, 1978.9, None, 450),
    "h200": (141, 4.8, 67, 989.4, 1978.9, None, 450),
    "b200": (180, 7.7, 75, 2250, 4500, 9000, 900),
}
GFX = {"mi250x": "gfx90a", "mi300x": "gfx942", "mi325x": "gfx942", "mi350x": "gfx950", "mi355x": "gfx950"}


def read(name: str) -> dict[str, Any]:
    """A file of conf/hardware laid over the section in config.yaml, as Hydra does."""
    base = yaml.safe_load((conf_dir() / "config.yaml").read_text())["hardware"]
    own = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    assert isinstance(base, dict)
    return {**base, **own, "peak_tflops": {**base["peak_tflops"], **own.get("peak_tflops", {})}}


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.yaml")))
def test_every_file_is_valid_and_bears_its_own_name(name: str) -> None:
    assert HardwareConfig.model_validate(read(name)).name == name


@pytest.mark.parametrize("name", DATA_SHEETS)
def test_figures_are_the_data_sheets(name: str) -> None:
    device = HardwareConfig.model_validate(read(name))
    peak = device.peak_tflops
    assert (device.memory_gb, device.hbm_tb_s, peak.fp32, peak.bf16, peak.fp8, peak.fp4, device.link_gb_s) == DATA_SHEETS[name]
    assert device.devices_per_node == 8
    assert (device.vendor, device.gfx) == (("amd", GFX[name]) if name in GFX else ("nvidia", None))


@pytest.mark.parametrize(("name", "compute_units", "clock_ghz", "bf16_per_clock"), [("mi300x", 304, 2.1, 2048), ("mi355x", 256, 2.4, 4096)])
def test_peaks_follow_from_units_and_clock(name: str, compute_units: int, clock_ghz: float, bf16_per_clock: int) -> None:
    peak = HardwareConfig.model_validate(read(name)).peak_tflops
    bf16 = compute_units * clock_ghz * bf16_per_clock / 1e3
    assert peak.bf16 == pytest.approx(bf16, rel=1e-4)
    assert peak.fp8 == pytest.approx(2 * bf16, rel=1e-4)


def test_every_device_that_detection_knows_has_a_file() -> None:
    from primus_app.launch.devices import AMD_CARDS, NEAREST_BY_GFX, NVIDIA_CARDS, NVIDIA_FAMILIES

    named = {hardware for _, hardware, _ in AMD_CARDS.values() if hardware} | set(NEAREST_BY_GFX.values())
    named |= {hardware for _, hardware in (*NVIDIA_CARDS, *NVIDIA_FAMILIES)}
    assert named == set(DATA_SHEETS)
