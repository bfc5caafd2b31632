"""Where and how a run is carried out: layout, backend, cluster, hardware."""

from typing import Annotated, Any, Literal

from pydantic import Field

from primus_app.config.schema.base import Section, how

Degree = Annotated[int, Field(gt=0)] | Literal["auto"]


class ParallelConfig(Section):
    """The layout. dp is derived: world = dp * cp * tp * pp, and dp = dp_replicate * dp_shard."""

    name: str = how("single", "Name of the layout, as in conf/parallel/.", min_length=1)
    tp: int = how(1, "Tensor parallel degree: ranks that share each layer's matrices.", gt=0)
    pp: int = how(1, "Pipeline parallel degree: stages that the layers are divided into.", gt=0)
    vpp: int = how(1, "Virtual pipeline stages on each rank.", gt=0)
    cp: int = how(1, "Context parallel degree: ranks that share one sequence.", gt=0)
    ep: int = how(1, "Expert parallel degree: ranks that share the experts; divides dp * cp, or dp * cp * tp where etp is 1.", gt=0)
    etp: int = how(1, "Tensor parallel degree inside each expert.", gt=0)
    dp_replicate: Degree = how(1, "Replicas whose gradients are averaged (DDP, HSDP); auto takes what is left.")
    dp_shard: Degree = how("auto", "Ranks that shard weights, gradients and optimizer (FSDP); auto takes what is left.")
    sequence_parallel: bool = how(True, "Whether norms and residuals are split along the sequence under tp.")
    schedule: Literal["1f1b", "interleaved", "gpipe", "zero_bubble"] = how("1f1b", "Pipeline schedule.")
    distributed_optimizer: Literal["auto"] | bool = how(
        "auto", "Megatron: whether optimizer states are sharded over the ranks of dp_shard and cp; auto where dp_shard is above 1."
    )


class BackendConfig(Section):
    """The engine that trains."""

    name: Literal["torchtitan", "megatron"] = how("torchtitan", "The engine.")
    runner: Literal["core", "pretrain"] = how(
        "core", "Megatron: core is a training loop of this program over megatron.core, pretrain is Megatron-LM's own in megatron.training."
    )
    megatron_path: str | None = how(
        None,
        "Megatron: a folder with megatron/ in it, such as a checkout of Megatron-LM, that is used in place of the installed one.",
        min_length=1,
    )
    native: dict[str, Any] = how(
        {}, "Further options of the engine by their own names: backend.native.compile.enable=true; see native-options.md."
    )
    patches: Literal["auto", "none"] | list[str] = how(
        "auto", "Corrections of the engine: auto applies those that are needed, none none, a list only those named."
    )


class ClusterConfig(Section):
    """The machines."""

    name: Literal["local"] = how("local", "Where ranks are started; local is this machine.")
    nodes: Degree = how("auto", "Machines; auto is the fewest that hold the layout.", unit="nodes")
    devices_per_node: Degree = how("auto", "Devices on each machine; auto is all its accelerators, or 1 process on a CPU.", unit="devices")


class PeakTflops(Section):
    """Dense peak rates, without sparsity; None where the device has no such format or no published figure."""

    fp32: float | None = how(None, "Peak in float32 (matrix rate).", unit="TFLOP/s", gt=0)
    bf16: float | None = how(None, "Peak in bfloat16.", unit="TFLOP/s", gt=0)
    fp8: float | None = how(None, "Peak in 8-bit floats.", unit="TFLOP/s", gt=0)
    fp4: float | None = how(None, "Peak in 4-bit floats.", unit="TFLOP/s", gt=0)


class Latency(Section):
    """Time of one step of a collective before the first byte arrives, and of starting a kernel."""

    kernel: float = how(0.0, "Between two kernels of a device.", unit="us", ge=0)
    link: float = how(0.0, "One step between devices of a node.", unit="us", ge=0)
    nic: float = how(0.0, "One step between nodes.", unit="us", ge=0)


class Efficiency(Section):
    """What is reached of the data sheet's figures; each is a fraction but gemm_edge."""

    gemm: float | None = how(None, "Large matrix products in float32 and bfloat16.", gt=0, le=1)
    gemm_fp8: float | None = how(None, "Large matrix products in 8-bit floats.", gt=0, le=1)
    gemm_edge: float = how(0.0, "Rows lost at the edge of a product: 1 + edge (1/m + 1/n + 1/k) times its time.", ge=0)
    attention_forward: float | None = how(None, "Forward attention on long sequences, of the bfloat16 peak.", gt=0, le=1)
    attention_backward: float | None = how(None, "Backward attention on long sequences, of the bfloat16 peak.", gt=0, le=1)
    attention_portable: float = how(1.0, "Rate of FlashAttention 2, as in PyTorch, over that of the maker's own kernel.", gt=0, le=1)
    memory: float | None = how(None, "Operations bound by memory.", gt=0, le=1)
    link: float | None = how(None, "Collectives inside a node.", gt=0, le=1)
    nic: float | None = how(None, "Collectives between nodes.", gt=0, le=1)


class HardwareConfig(Section):
    """One kind of device, from its data sheet; a CPU has no peak, so no MFU is shown."""

    name: str = how("auto", "Name of the device, as in conf/hardware/; auto is the one found on this machine.", min_length=1)
    vendor: Literal["amd", "nvidia", "cpu"] | None = how(None, "Who makes it.")
    gfx: str | None = how(None, "AMD's name of the instruction set.")
    memory_gb: float | None = how(None, "Device memory as sold; None is this machine's.", unit="GB", gt=0)
    hbm_tb_s: float | None = how(None, "Memory bandwidth.", unit="TB/s", gt=0)
    peak_tflops: PeakTflops = how(PeakTflops(), "Dense peak rates by number format.")
    devices_per_node: int | None = how(None, "Devices in the usual node.", unit="devices", gt=0)
    link_gb_s: float | None = how(None, "Bandwidth to the other devices of the node, one direction, all links.", unit="GB/s", gt=0)
    link_mesh: bool = how(False, "Whether two devices share one of these links only, as on AMD; otherwise a switch gives them all.")
    link_domain: int | None = how(None, "Devices that the links join; None is the devices of a node.", unit="devices", gt=0)
    nic_gb_s: float | None = how(None, "Bandwidth to other nodes, one direction, for each device.", unit="GB/s", gt=0)
    latency_us: Latency = how(Latency(), "Fixed times.")
    efficiency: Efficiency = how(Efficiency(), "Fractions of the figures above that training reaches.")
    price_per_hour: float | None = how(None, "Price of one device for an hour, in any currency.", ge=0)
