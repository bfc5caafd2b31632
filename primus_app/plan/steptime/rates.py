"""What a device does in a second, in FLOP and bytes, as training reaches it."""

from dataclasses import dataclass

from primus_app.config.schema import HardwareConfig
from primus_app.plan.workload import Workload


@dataclass(frozen=True)
class Rates:
    """Reached rates of one device, in FLOP/s, bytes/s and seconds.

    Attributes:
        gemm: large matrix products in the workload's number format.
        gemm_bf16: those that stay in bfloat16 where the others are in 8 bits: the output projection.
        gemm_edge: rows lost at each edge of a product.
        kernel: time between two kernels.
        link: to all other devices of the node together, one direction.
        mesh: whether two devices of a node share one of its links only.
        domain: devices joined by links.
        nic: to other nodes, one direction.
        link_latency: one step of a collective inside a node.
        nic_latency: one step between nodes.
    """

    gemm: float
    gemm_bf16: float
    gemm_edge: float
    attention_forward: float
    attention_backward: float
    memory: float
    kernel: float
    link: float
    mesh: bool
    domain: int
    nic: float
    link_latency: float
    nic_latency: float


def missing_constants(hardware: HardwareConfig, workload: Workload) -> tuple[str, ...]:
    """Keys of the hardware without which no time can be given; a CPU lacks most of them."""
    eight_bits = workload.compute == "fp8"
    fraction = hardware.efficiency
    needed = {
        f"peak_tflops.{workload.compute}": getattr(hardware.peak_tflops, workload.compute),
        "peak_tflops.bf16": hardware.peak_tflops.bf16,
        "hbm_tb_s": hardware.hbm_tb_s,
        "devices_per_node": hardware.devices_per_node,
        "link_gb_s": hardware.link_gb_s,
        "nic_gb_s": hardware.nic_gb_s,
        "efficiency.gemm": fraction.gemm,
        "efficiency.gemm_fp8": fraction.gemm_fp8 if eight_bits else 1.0,
        "efficiency.attention_forward": fraction.attention_forward,
        "efficiency.attention_backward": fraction.attention_backward,
        "efficiency.memory": fraction.memory,
        "efficiency.link": fraction.link,
        "efficiency.nic": fraction.nic,
    }
    return tuple(f"hardware.{name}" for name, value in needed.items() if value is None)


def rates_of(hardware: HardwareConfig, workload: Workload) -> Rates:
    """Rates for a workload's number format.

    Raises:
        ValueError: constants are missing; the message names them (see :func:`missing_constants`).
    """
    missing = missing_constants(hardware, workload)
    if missing:
        raise ValueError(f"no step time without {', '.join(missing)}")
    fraction, latency = hardware.efficiency, hardware.latency_us
    kernel = fraction.attention_portable if workload.attention == "portable" else 1.0
    bf16 = _product(hardware.peak_tflops.bf16, 1e12)
    peak = _product(getattr(hardware.peak_tflops, workload.compute), 1e12)
    wide = _product(bf16 if workload.compute == "fp8" else peak, fraction.gemm)
    return Rates(
        gemm=_product(peak, fraction.gemm_fp8) if workload.compute == "fp8" else wide,
        gemm_bf16=wide,
        gemm_edge=fraction.gemm_edge,
        attention_forward=_product(bf16, fraction.attention_forward, kernel),
        attention_backward=_product(bf16, fraction.attention_backward, kernel),
        memory=_product(hardware.hbm_tb_s, fraction.memory) * 1e12,
        kernel=latency.kernel * 1e-6,
        link=_product(hardware.link_gb_s, fraction.link) * 1e9,
        mesh=hardware.link_mesh,
        domain=hardware.link_domain or hardware.devices_per_node or 1,
        nic=_product(hardware.nic_gb_s, fraction.nic) * 1e9,
        link_latency=latency.link * 1e-6,
        nic_latency=latency.nic * 1e-6,
    )


def _product(*factors: float | None) -> float:
    result = 1.0
    for factor in factors:
        assert factor is not None
        result *= factor
    return result
