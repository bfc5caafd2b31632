"""The sum of all terms: published peaks, and arrays of layouts against layouts one by one."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from primus_app.plan.memory.backward import output_gradients
from primus_app.plan.memory.exchange import received
from primus_app.plan.memory.in_flight import in_flight
from primus_app.plan.memory.layer_bytes import final_norm, layer_input, layer_widths
from primus_app.plan.memory.layers import stage_layers
from primus_app.plan.memory.logits import logits_bytes
from primus_app.plan.memory.overhead import HOLES, PROCESS
from primus_app.plan.memory.stage_memory import StageMemory, stage_memory, worst_memory
from primus_app.plan.stages import split_layers
from primus_app.plan.workload import Layout

Of = Callable[..., Any]
GIB = 2**30


@pytest.mark.parametrize(
    ("degrees", "stage", "published"),
    [
        # MooreThreads/SimuMax, docs/b200/b200_release_v1.2_summary.json: Megatron-LM, Transformer Engine 2.11; max_memory_allocated.
        ({"pp": 2, "dp_shard": 4}, 0, 66.55),
        ({"pp": 2, "dp_shard": 4}, 1, 62.97),
        ({"tp": 4, "dp_shard": 2}, 0, 39.07),
        ({"tp": 8}, 0, 28.29),
    ],
)
def test_published_peaks_of_twelve_layers_of_llama3_70b(
    degrees: dict[str, int], stage: int, published: float, workload_of: Of, layout_of: Of
) -> None:
    workload = workload_of(model={"num_hidden_layers": 12}, loss="fused", gradient_fusion=True)
    found = stage_memory(workload, layout_of(num_microbatches=4, **degrees), stage)
    assert found.allocated / GIB == pytest.approx(published, rel=0.005)


def test_the_parts_are_the_sum(workload_of: Of, layout_of: Of) -> None:
    found = stage_memory(workload_of(), layout_of(tp=8, pp=4, num_microbatches=8), 0)
    assert found.total == sum(getattr(found, field.name) for field in fields(StageMemory))
    assert found.allocated < found.reserved < found.total


def test_the_chunked_loss_gathers_gradients_in_float32(workload_of: Of, layout_of: Of) -> None:
    # torchtitan 0.3.0, components/loss.py: GradAccumulator has 4 bytes a token and hidden element, a chunk's gradient an eighth of the
    # tokens; the chunks of several samples are copies. Logits of an eighth of the tokens, three times in float32.
    workload = workload_of("llama3_8b", engine="torchtitan", loss="chunked")
    for batch in (1, 4):
        tokens = batch * 4096
        expected = tokens * 4096 * (4 + 2 * (batch > 1)) + tokens // 8 * (2 * 4096 + 3 * 4 * 128256)
        layout = layout_of(micro_batch_size=batch)
        assert output_gradients(workload, layout) + logits_bytes(workload, layout) == expected
    tensor_parallel = output_gradients(workload, layout_of(tp=4)), output_gradients(workload, layout_of(tp=4, sequence_parallel=False))
    assert tensor_parallel[0] - tensor_parallel[1] == 4096 * 2 * 4096


@pytest.mark.parametrize(("schedule", "flying"), [("1f1b", (4, 3, 2, 1)), ("gpipe", (8, 8, 8, 8))])
def test_torchtitans_buffers_between_stages(schedule: str, flying: tuple[int, ...], workload_of: Of, layout_of: Of) -> None:
    # torch 2.13, PipelineStage: 8 inputs received but on the first stage, less those kept as activations; 8 gradients received and the
    # outputs in flight kept but on the last. Each [tokens, hidden] in bf16.
    workload, layout = workload_of(engine="torchtitan", schedule=schedule), layout_of(pp=4, num_microbatches=8)
    found = []
    for stage, alive in enumerate(flying):
        inputs, outputs = 8 - alive if stage else 0, 8 + alive if stage < 3 else 0
        found.append((received(workload, layout, stage_layers(workload.model, layout, stage), alive), (inputs + outputs) * 4096 * 8192 * 2))
    assert [count for count, _ in found] == [expected for _, expected in found]


def test_no_buffers_without_a_pipeline(workload_of: Of, layout_of: Of) -> None:
    workload, layout = workload_of(engine="torchtitan"), layout_of(num_microbatches=8)
    assert received(workload, layout, stage_layers(workload.model, layout, 0), 1) == 0


@pytest.mark.parametrize("engine", ["megatron", "torchtitan"])
def test_a_process_on_a_cpu(engine: Any, workload_of: Of, layout_of: Of) -> None:
    found = stage_memory(workload_of("llama_tiny", engine=engine, fused=False, compute="fp32"), layout_of(), 0)
    assert found.overhead == PROCESS[engine]
    assert found.reserved_in_vain == int(HOLES[engine] * (found.activations + found.temporary))


def test_recomputation_needs_less(workload_of: Of, layout_of: Of) -> None:
    for engine in ("megatron", "torchtitan"):
        workload = workload_of(engine=engine)
        none, selective, full = (stage_memory(workload, layout_of(tp=8, recompute=index), 0).activations for index in range(3))
        assert none > selective > full


@pytest.mark.parametrize(("name", "pp", "vpp"), [("llama3_1_405b", 4, 4), ("llama3_70b", 4, 1), ("deepseek_v3", 7, 3)])
@pytest.mark.parametrize("first", [1, 3, 99])
def test_only_the_first_layers_of_each_virtual_stage_are_recomputed(
    name: str, pp: int, vpp: int, first: int, workload_of: Of, layout_of: Of
) -> None:
    # Megatron's block method: each virtual stage keeps its first layers' inputs, and all that the others keep without recomputation.
    workload = workload_of(name, schedule="interleaved" if vpp > 1 else "1f1b", recompute_layers=first)
    layout, model = layout_of(pp=pp, vpp=vpp, num_microbatches=2 * pp, recompute=2), workload.model
    split = split_layers(model.num_hidden_layers, pp * vpp)
    assert split is not None
    widths = layer_widths(workload, selective=False)
    leading = model.num_hidden_layers if model.moe is None else model.moe.first_k_dense_replace
    for stage in range(pp):
        kept = 0
        for index in range(stage, pp * vpp, pp):
            for place in range(split[index]):
                kind = widths.dense if sum(split[:index]) + place < leading else widths.experts
                kept += (layer_input(workload) if place < first else kind).bytes(workload, layout)
        end = final_norm(workload).bytes(workload, layout) if stage == pp - 1 else 0
        expected = in_flight(workload, layout, stage) * kept + end
        assert stage_memory(workload, layout, stage).activations == pytest.approx(expected, abs=1)


def test_a_group_of_recomputed_layers_keeps_one_input_and_is_whole_while_it_is_undone(workload_of: Of, layout_of: Of) -> None:
    # Megatron's uniform method on the 40 layers of a first stage in groups of 4.
    workload, layout = workload_of(), layout_of(pp=2, recompute=2)
    alone, grouped = (stage_memory(workload_of(recompute_group=size), layout, 0) for size in (1, 4))
    each = layer_input(workload).bytes(workload, layout)
    assert alone.activations - grouped.activations == (40 - 10) * each
    layer = layer_widths(workload, selective=False).dense.bytes(workload, layout)
    assert grouped.temporary - alone.temporary == 3 * layer


@pytest.mark.parametrize("engine", ["megatron", "torchtitan"])
@pytest.mark.parametrize("name", ["llama3_1_405b", "deepseek_v3", "deepseek_v3_tiny"])
@pytest.mark.parametrize("fused", [False, True])
def test_arrays_give_what_single_layouts_give_and_the_worst_is_that_of_all_stages(
    engine: str, name: str, fused: bool, workload_of: Of
) -> None:
    workload = workload_of(name, engine=engine, schedule="interleaved", fused=fused)
    layouts = random_layouts(workload.model, 60)
    arrays = Layout(*(np.array([getattr(one, field.name) for one in layouts]) for field in fields(Layout)))
    together = worst_memory(workload, arrays)
    for index, one in enumerate(layouts):
        alone = worst_memory(workload, one)
        assert alone.total == max(stage_memory(workload, one, stage).total for stage in range(one.pp)), one
        assert all(getattr(alone, field.name) == getattr(together, field.name)[index] for field in fields(StageMemory)), one


@pytest.mark.parametrize(
    ("name", "pp", "vpp"), [("llama3_1_405b", 8, 8), ("llama3_1_405b", 16, 1), ("deepseek_v3", 7, 3), ("deepseek_v3", 21, 1)]
)
def test_layers_are_those_of_the_plan(name: str, pp: int, vpp: int, workload_of: Of, layout_of: Of) -> None:
    model = workload_of(name).model
    split = split_layers(model.num_hidden_layers, pp * vpp)
    assert split is not None
    kinds = [0] * (model.moe.first_k_dense_replace if model.moe else model.num_hidden_layers)
    kinds += [1] * (model.num_hidden_layers - len(kinds))
    held = [[0, 0] for _ in range(pp)]
    for index, size in enumerate(split):
        for kind in kinds[sum(split[:index]) :][:size]:
            held[index % pp][kind] += 1
    found = [stage_layers(model, layout_of(pp=pp, vpp=vpp), stage) for stage in range(pp)]
    assert [[layers.dense, layers.experts] for layers in found] == held


def random_layouts(model: Any, count: int) -> list[Layout]:
    random = np.random.default_rng(0)
    pipelines = [(pp, vpp) for pp in (1, 2, 3, 7, 9) for vpp in (1, 2, 3, 7) if pp > 1 or vpp == 1]
    pipelines = [pair for pair in pipelines if split_layers(model.num_hidden_layers, pair[0] * pair[1])]
    found = []
    for _ in range(count):
        pp, vpp = pipelines[random.integers(len(pipelines))]
        tp, cp, micro, ep = (int(random.choice([1, 2, 4])) for _ in range(4))
        ep = ep if model.moe else 1
        shard, total, recompute = int(random.choice([8, 16])), int(random.choice([4, 64])), int(random.integers(3))
        sharded = bool(random.integers(2))
        found.append(Layout(tp, pp, vpp, cp, ep, 1, 1, shard, micro, total, tp > 1, sharded, recompute))
    return found
