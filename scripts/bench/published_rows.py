"""A published run as the estimates see it: what its source says of model, layout and software, and what it has measured."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from published_models import model_of

from primus_app.config.schema import HardwareConfig, ModelConfig
from primus_app.plan.parameters import training_flops_per_token
from primus_app.plan.workload import RECOMPUTE, Layout, Workload

CONF = Path(__file__).resolve().parents[2] / "conf"
Row = dict[str, Any]

TITAN = ("torchtitan", "llm-foundry", "Modalities", "ColossalAI")
"""Sources whose software divides weights with FSDP, and has FlashAttention 2 as PyTorch has it."""
BEFORE_FLASH = ("SC21", "2205.05198", "vTrain", "MegaScale", "deepspeed-azure")
"""Sources from before FlashAttention, overlapped reductions and the distributed optimizer."""
OVERLAPPED_TP = ("Bridge", "NeMo", "Megatron-LM examples")
SITES: dict[str, dict[str, Any]] = {
    "scaling_mn5": {"hbm_tb_s": 2.0, "devices_per_node": 4, "nic_gb_s": 25},
    "scaling_leonardo": {
        "hbm_tb_s": 1.64,
        "peak_tflops": {"fp32": 22, "bf16": 358, "fp8": None, "fp4": None},
        "devices_per_node": 4,
        "nic_gb_s": 12.5,
    },
    "vTrain": {"nic_gb_s": 12.5},
}
"""What of a source's machines differs from the device's file: MareNostrum 5's H100 of 64 GB, Leonardo's custom A100, a NIC of 100 Gb/s."""
VARIANTS: dict[str, dict[str, Any]] = {
    "H100-96GB": {"hbm_tb_s": 2.4, "peak_tflops": {"fp32": 60, "bf16": 884, "fp8": 1768, "fp4": None}},
    "H100-95GB": {"hbm_tb_s": 2.4, "peak_tflops": {"fp32": 60, "bf16": 884, "fp8": 1768, "fp4": None}},
    "a100_40gb": {"hbm_tb_s": 1.555},
}
"""Variants of a device by gpu_type: HBM2e at 500 W (torchtitan's), and the A100 of 40 GB."""


@dataclass(frozen=True)
class Run:
    """One run; what its source does not give is None. Seconds and bytes.

    Attributes:
        memory_kind: what ``memory`` is: what torch has allocated, what its allocator has reserved, or what is used of the device.
    """

    workload: Workload
    layout: Layout
    hardware: HardwareConfig
    step_s: float | None
    memory: float | None
    memory_kind: Literal["allocated", "reserved", "used"]


def run_of(row: Row) -> Run | str:
    """The run, or why it cannot be modelled."""
    notes, dtype = row.get("notes") or "", (row.get("dtype") or "").lower()
    if reason := _reason(row, notes, dtype):
        return reason
    model = model_of(row)
    if isinstance(model, str):
        return model
    if model.moe is not None and row.get("ep") is None:
        return "layout not given"
    layout = _layout(row, notes)
    if isinstance(layout, str):
        return layout
    hardware = _hardware(row)
    if isinstance(hardware, str):
        return hardware
    workload = _workload(row, model, layout, notes, dtype)
    step_s = _step_s(row, model, workload)
    memory = row["memory_gib"] * 2**30 if row.get("memory_gib") else None
    if step_s is None and memory is None:
        return "nothing measured that can be compared"
    return Run(workload, layout, hardware, step_s, memory, _memory_kind(notes))


def _memory_kind(notes: str) -> Literal["allocated", "reserved", "used"]:
    if "allocated" in notes:
        return "allocated"
    return "used" if "% of device" in notes else "reserved"


def _reason(row: Row, notes: str, dtype: str) -> str | None:
    source, recompute = row["source"], row.get("recompute") or ""
    rules = {
        "LoRA": "lora" in (source + notes).lower() or "PEFT" in notes,
        "FP4": "fp4" in dtype,
        "tokens dropped": "tokendrop" in row["model"],
        "fine-tuning on packed sequences": "SFT" in notes or "fine-tune" in notes,
        "parts of experts recomputed": "moe" in recompute,
        "every other layer recomputed": recompute == "selective(layer)",
        "float8 by rows": "rowwise" in dtype,
        "layout not given": row.get("tp") is None or "cumulative" in notes,
        "changed mathematics (parallel block, sliding window)": "MegaScale" in source
        and "MegaScale" in notes
        and "Megatron-LM" not in notes.partition(";")[0],
    }
    return next((reason for reason, holds in rules.items() if holds), None)


def _layout(row: Row, notes: str) -> Layout | str:
    tp, pp, cp, ep, vpp = (row.get(name) or 1 for name in ("tp", "pp", "cp", "ep", "vpp"))
    gpus = row["gpus"]
    dp = row.get("dp") or gpus // (tp * pp * cp)
    if dp * tp * pp * cp != gpus:
        return "the layout does not come to the devices"
    micro, vpp = _micro_batch(row, pp, vpp)
    if micro is None:
        return "micro batch not given"
    size = row.get("global_bs") or micro * dp * (8 if pp == 1 else 64)
    if size % (dp * micro):
        return "the batch does not divide"
    source, recompute = row["source"], row.get("recompute") or "none"
    is_old = _is_old(source)
    sequence_parallel = not is_old or recompute.startswith("selective+")
    replicate = dp // 4 if "HYBRID" in notes else 1
    kind = "full" if recompute.startswith("full") else "selective" if recompute.startswith("selective") else "none"
    return Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        cp=cp,
        ep=ep,
        etp=1,
        dp_replicate=replicate,
        dp_shard=dp // replicate,
        micro_batch_size=micro,
        num_microbatches=size // (dp * micro),
        sequence_parallel=int(sequence_parallel and tp > 1),
        sharded_optimizer=int(not is_old),
        recompute=RECOMPUTE.index(kind),
    )


def _micro_batch(row: Row, pp: int, vpp: int) -> tuple[int | None, int]:
    """The micro batch and vpp, where need be from what the source says elsewhere."""
    source = row["source"]
    if row.get("micro_bs") is not None:
        return row["micro_bs"], vpp
    if "MegaScale" in source:
        return 1, 6
    if "torchtitan" in source:
        return (4 if pp > 1 and row["seq_len"] <= 10_000 else 1), vpp
    return (1 if "long_sequence" in source or "Megatron-MoE" in source else None), vpp


def _workload(row: Row, model: ModelConfig, layout: Layout, notes: str, dtype: str) -> Workload:
    source = row["source"]
    is_titan = any(name in source for name in TITAN) or (row.get("fsdp") or 0) > 1 or "HYBRID" in notes
    is_old = _is_old(source)
    compute: Literal["fp8", "bf16"] = "fp8" if any(word in dtype for word in ("fp8", "float8", "mx")) else "bf16"
    portable = any(name in source for name in TITAN)
    generation = _bridge(row, compute, model, layout, notes)
    pads = 128 * layout.tp
    return Workload(
        model=model,
        seq_len=row["seq_len"],
        global_batch_size=row.get("global_bs") or layout.dp * layout.micro_batch_size * layout.num_microbatches,
        engine="torchtitan" if is_titan else "megatron",
        compute=compute,
        schedule="interleaved" if layout.vpp > 1 else "1f1b",
        padded_vocab=math.ceil(model.vocab_size / pads) * pads,
        fused=True,
        loss="fused" if "CE fusion" in notes or _compiles_the_loss(source, notes) else "plain",
        gradient_fusion=not is_titan,
        compiled="eager" not in notes and "llm-foundry" not in source and "Modalities" not in source,
        attention="unfused" if is_old else "portable" if portable else "vendor",
        overlap_dp="no overlap" not in notes and not is_old,
        reduce="bf16" if is_old or "Modalities" in source or "PURE" in notes else "fp32",
        overlap_tp=any(name in source for name in OVERLAPPED_TP) or "sync" in notes,
        waits_for_sends=is_old,
        gathers="tensors" if is_old and is_titan else "layers",
        **generation,
    )


def _bridge(row: Row, compute: str, model: ModelConfig, layout: Layout, notes: str) -> dict[str, Any]:
    """How NVIDIA's recipes run experts, which differ by release and device (Megatron-Bridge, scripts/performance)."""
    source, device = row["source"], str(row["gpu_type"]).lower()
    if "ModelZoo" in source:
        grace = "gb200" in device
        dispatcher = "deepep" if "DeepEP" in notes or grace else "alltoall"
        return {"graphs": grace, "fused_experts": False, "overlap_ep": "1f1b overlap" in notes, "dispatcher": dispatcher}
    found = re.search(r"Bridge.*\[(\d\d\.\d\d)", source)
    dispatcher = "deepep" if found or "DeepEP" in notes else "alltoall"
    if not found or model.moe is None:
        return {"overlap_ep": "1f1b overlap" in notes, "dispatcher": dispatcher}
    release = found[1]
    is_hopper = device.startswith("h100")
    is_new = release >= "26.06" and compute == "fp8" and not is_hopper
    is_grace = device.startswith("gb")
    name = str(row["model"]).upper()
    graphs = is_new or is_grace or (release >= "26.02" and not is_hopper and "30B" in name)
    overlap = is_new or (device == "b200" and "DEEPSEEK" in name and layout.vpp > 1) or ("235B" in name and is_hopper)
    if "235B" in name and not is_grace:
        dispatcher = "alltoall"
    return {"graphs": graphs, "fused_experts": is_new, "overlap_ep": overlap, "dispatcher": dispatcher}


def _hardware(row: Row) -> HardwareConfig | str:
    device = str(row["gpu_type"]).lower()
    names = ("gb300", "gb200", "b300", "b200", "h200", "h100", "mi355x", "mi325x", "mi300x", "a100")
    name = next((each for each in names if each in device), "a100" if "ampere" in device else None)
    if name is None or not (CONF / f"hardware/{name}.yaml").exists():
        return "a device without figures"
    values = yaml.safe_load((CONF / f"hardware/{name}.yaml").read_text(encoding="utf-8"))
    for place, changes in SITES.items():
        values |= changes if place in row["source"] else {}
    for variant, changes in VARIANTS.items():
        values |= changes if variant in row["gpu_type"] else {}
    return HardwareConfig.model_validate(values)


def _step_s(row: Row, model: ModelConfig, workload: Workload) -> float | None:
    """The time of a step, which many sources give as tokens or FLOPs a second."""
    samples, length, gpus = workload.global_batch_size, workload.seq_len, row["gpus"]
    if row.get("iteration_s"):
        return float(row["iteration_s"])
    if row.get("tokens_per_s_per_gpu"):
        return float(samples * length / (row["tokens_per_s_per_gpu"] * gpus))
    if not row.get("tflops_per_gpu"):
        return None
    flops = _flops_of_a_step(row["source"], model, samples, length)
    return flops / (row["tflops_per_gpu"] * 1e12 * gpus) if flops is not None else None


def _flops_of_a_step(source: str, model: ModelConfig, samples: int, length: int) -> float | None:
    """By the source's own convention; None where it does not say."""
    layers, hidden, vocab = model.num_hidden_layers, model.hidden_size, model.vocab_size
    if "SC21" in source or "deepspeed-azure" in source:
        # arXiv 2104.04473, equation 3.
        return 96 * samples * length * layers * hidden**2 * (1 + length / (6 * hidden) + vocab / (16 * layers * hidden))
    whole = training_flops_per_token(model, length)
    if "long_sequence" in source:
        return samples * length * (whole - 6 * layers * hidden * length)
    return samples * length * whole if "ModelZoo" in source or "Megatron-LM" in source else None


def _compiles_the_loss(source: str, notes: str) -> bool:
    """Since April 2025 torchtitan compiles the loss with the model (pull request 1033); its sources have the month in their names."""
    month = re.search(r"(20\d\d)-?(\d\d)", source)
    return "torchtitan" in source and "eager" not in notes and month is not None and month[1] + month[2] > "202504"


def _is_old(source: str) -> bool:
    return any(name in source for name in BEFORE_FLASH)
