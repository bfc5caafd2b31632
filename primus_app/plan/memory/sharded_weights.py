"""What FSDP2 has unsharded at a time, under TorchTitan."""

from dataclasses import dataclass

from primus_app.plan.memory.arithmetic import choose, larger
from primus_app.plan.memory.layers import StageLayers
from primus_app.plan.memory.logits import output_weights
from primus_app.plan.memory.state import RankParameters, dense_layer_parameters, expert_layer_parameters
from primus_app.plan.memory.widths import element
from primus_app.plan.parameters import count_layer
from primus_app.plan.workload import Layout, Number, Workload

FLOAT32 = 4


@dataclass(frozen=True)
class Unsharded:
    """Bytes of one rank.

    Attributes:
        always: from the first micro batch of a step to the last.
        at_output: besides, while the output layer and the loss are undone.
        at_layer: besides, while a layer is undone.
    """

    always: Number
    at_output: Number
    at_layer: Number


def unsharded(workload: Workload, layout: Layout, layers: StageLayers, parameters: RankParameters) -> Unsharded:
    """Gathered weights and gradients before they are scattered (torch, distributed/fsdp/_fully_shard).

    Without a pipeline a layer's weights are gathered in the compute format and dropped after use, and the next layer's are fetched
    meanwhile: two layers. The output layer stays gathered between its forward and its backward pass. A gradient is whole once
    in the compute format, and once more in float32 as the input of the reduce-scatter. With a pipeline weights stay gathered
    from the first micro batch to the last (reshard_after_forward="default" of torchtitan), and gradients are added up
    whole in float32 until the last micro batch's backward pass.
    """
    wide, sharded = element(workload), layout.shards * layout.dp_replicate > 1
    total = parameters.dense + parameters.experts
    pipeline = layout.pp > 1
    layer = _largest_layer(workload, layout, layers)
    output = layers.is_last * output_weights(workload, layout)
    always = choose(pipeline, (wide + FLOAT32) * total, wide * output)
    gradient = wide + FLOAT32
    at_output = choose(pipeline, wide * output, gradient * output)
    at_layer = choose(pipeline, gradient * layer, 2 * wide * layer + gradient * layer)
    return Unsharded(sharded * always, sharded * at_output, sharded * at_layer)


def _largest_layer(workload: Workload, layout: Layout, layers: StageLayers) -> Number:
    model = workload.model
    first, last = count_layer(model, 0), count_layer(model, model.num_hidden_layers - 1)
    dense = (layers.dense > 0) * dense_layer_parameters(model, first, layout)
    if model.moe is None:
        return dense
    experts = dense_layer_parameters(model, last, layout) + expert_layer_parameters(model, last, layout)
    return larger(dense, (layers.experts > 0) * experts)
