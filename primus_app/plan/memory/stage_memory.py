"""The memory of one rank of each pipeline stage: the sum of all terms."""

from dataclasses import dataclass

from primus_app.plan.memory.arithmetic import choose, larger, share, smaller
from primus_app.plan.memory.backward import layer_gradients, output_gradients
from primus_app.plan.memory.exchange import received
from primus_app.plan.memory.in_flight import in_flight
from primus_app.plan.memory.layer_bytes import FULL, SELECTIVE, LayerWidths, final_norm, layer_input, layer_widths
from primus_app.plan.memory.layers import StageLayers, recomputed_layers, stage_layers
from primus_app.plan.memory.logits import logits_bytes, output_weights
from primus_app.plan.memory.overhead import device_bytes, reserved_in_vain, workspace_bytes
from primus_app.plan.memory.placeholders import placeholders, unfused_gradient
from primus_app.plan.memory.sharded_weights import unsharded
from primus_app.plan.memory.state import RankParameters, rank_parameters, state
from primus_app.plan.memory.widths import element
from primus_app.plan.workload import Layout, Number, Workload


@dataclass(frozen=True)
class StageMemory:
    """Bytes of one rank at its peak; each an int, or an array with one element for each layout.

    Attributes:
        weights: parameters, with the copies that fp8 keeps.
        gradients: that live through the step.
        optimizer: main weights where they are separate, and moments.
        activations: kept for the backward pass, of all micro batches in flight.
        temporary: the largest of what the loss or the backward pass of a layer needs for a moment, with gathered weights.
        overhead: of the process, not of tensors.
        reserved_in_vain: what the allocator holds and nobody uses.
    """

    weights: Number
    gradients: Number
    optimizer: Number
    activations: Number
    temporary: Number
    overhead: Number
    reserved_in_vain: Number

    @property
    def allocated(self) -> Number:
        """Bytes of all tensors at the peak, as torch's max_memory_allocated tells."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.temporary

    @property
    def reserved(self) -> Number:
        """Bytes that the allocator holds at the peak, as torch's max_memory_reserved tells."""
        return self.allocated + self.reserved_in_vain

    @property
    def total(self) -> Number:
        """Bytes that the device needs."""
        return self.reserved + self.overhead


def stage_memory(workload: Workload, layout: Layout, stage: Number) -> StageMemory:
    """The peak of one rank of pipeline rank ``stage``, counted from 0, with all of its virtual stages."""
    layers = stage_layers(workload.model, layout, stage)
    parameters = rank_parameters(workload, layout, layers)
    held = state(workload, layout, parameters)
    activations, again = _activations(workload, layout, layers, stage)
    temporary = _temporary(workload, layout, layers, parameters, again, stage)
    vain = reserved_in_vain(workload, held.weights + held.gradients + held.optimizer, activations + temporary)
    return StageMemory(held.weights, held.gradients, held.optimizer, activations, temporary, device_bytes(workload, layout), vain)


def worst_memory(workload: Workload, layout: Layout) -> StageMemory:
    """The peak of the rank that needs most, term by term.

    Ranks whose layers are alike need the less the later they are, so five candidates are enough: the first two, the first one that has
    only layers with experts, the last but one and the last.
    """
    last = layout.pp - 1
    leading = workload.model.moe.first_k_dense_replace if workload.model.moe else 0
    candidates = [0 * last, smaller(0 * last + 1, last), last]
    if leading:
        candidates.append(smaller(-(-leading // (workload.model.num_hidden_layers // (layout.pp * layout.vpp))), last))
    found = stage_memory(workload, layout, candidates[0])
    for stage in candidates[1:]:
        found = _worse(found, stage_memory(workload, layout, stage))
    return found


def _worse(first: StageMemory, second: StageMemory) -> StageMemory:
    worse = second.total > first.total
    return StageMemory(**{name: choose(worse, getattr(second, name), getattr(first, name)) for name in StageMemory.__annotations__})


def _activations(workload: Workload, layout: Layout, layers: StageLayers, stage: Number) -> tuple[Number, Number]:
    """Kept for the backward pass by all micro batches in flight; and the bytes of what full recomputation makes again at a time.

    A group of layers keeps the input of its first one, and is whole again while it is undone. Where some layers are not computed again,
    these are undone first, and leave room for it (Megatron-core, transformer/transformer_block.py: uniform and block).
    """
    plain = layer_widths(workload, selective=False)
    none = _kept(plain, workload, layout, layers)
    selective = _kept(layer_widths(workload, selective=True), workload, layout, layers)
    fresh = recomputed_layers(workload, layout, stage, layers)
    groups = share(fresh.total, workload.recompute_group)
    kept_whole = StageLayers(layers.dense - fresh.dense, layers.experts - fresh.experts, layers.is_first, layers.is_last)
    full = groups * layer_input(workload).bytes(workload, layout) + _kept(plain, workload, layout, kept_whole)
    each = choose(layout.recompute == FULL, full, choose(layout.recompute == SELECTIVE, selective, none))
    end = layers.is_last * final_norm(workload).bytes(workload, layout)
    one = smaller(layers.total, workload.recompute_group) * _largest(plain, workload, layout, layers)
    again = (layout.recompute == FULL) * (kept_whole.total == 0) * one
    total = in_flight(workload, layout, stage) * each + end
    return total // 1, again


def _kept(widths: LayerWidths, workload: Workload, layout: Layout, layers: StageLayers) -> Number:
    found = 0 * layers.total
    if widths.dense is not None:
        found = found + layers.dense * widths.dense.bytes(workload, layout)
    if widths.experts is not None:
        found = found + layers.experts * widths.experts.bytes(workload, layout)
    return found


def _largest(widths: LayerWidths, workload: Workload, layout: Layout, layers: StageLayers) -> Number:
    found = 0 * layers.total
    for count, each in ((layers.dense, widths.dense), (layers.experts, widths.experts)):
        if each is not None:
            found = larger(found, (count > 0) * each.bytes(workload, layout))
    return found


def _temporary(workload: Workload, layout: Layout, layers: StageLayers, parameters: RankParameters, again: Number, stage: Number) -> Number:
    at_output = layers.is_last * (logits_bytes(workload, layout) + output_gradients(workload, layout))
    at_layer = layer_gradients(workload, layout, layers) + again
    always = workspace_bytes(workload, layout)
    if workload.engine == "torchtitan":
        gathered = unsharded(workload, layout, layers, parameters)
        always = always + received(workload, layout, layers, in_flight(workload, layout, stage))
        return always + gathered.always + larger(at_output + gathered.at_output, at_layer + gathered.at_layer)
    at_output = at_output + layers.is_last * element(workload) * output_weights(workload, layout)
    at_layer = at_layer + unfused_gradient(workload, layout, layers)
    return always + placeholders(workload, layout, layers) + larger(at_output, at_layer)
