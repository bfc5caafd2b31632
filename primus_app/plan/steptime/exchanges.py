"""Communication inside a layer: of tensor, context and expert parallel ranks, and what of it computing does not hide."""

import numpy as np

from primus_app.config.schema import ModelConfig, MoeConfig
from primus_app.plan.steptime.collectives import Group, all_gather_s, all_reduce_s, all_to_all_s, group
from primus_app.plan.steptime.overlap import exposed_s
from primus_app.plan.steptime.products import routed_rows
from primus_app.plan.steptime.rates import Rates
from primus_app.plan.workload import Layout, Number, Workload

PIPELINED = 0.22
"""Communication that remains when a product and its collective run in pieces: the first or last piece, and slower products."""


def tp_s(
    rates: Rates, workload: Workload, layout: Layout, tokens: Number, blocks: Number, products: Number, *, backward: bool = False
) -> Number:
    """Exposed seconds of ``blocks`` blocks (attention, MLP) between tensor parallel ranks.

    With sequence parallelism a block gathers its input and scatters its output, otherwise it sums its output over the ranks. Going
    back, Megatron hides the sum for the inputs, and the second gathering of them, under the products of the backward pass
    (arXiv 2205.05198, section 4.2.2), and exposes the gathering of the output's gradient. TorchTitan hides nothing.
    """
    ranks = group(rates, layout.tp)
    num_bytes = 2.0 * tokens * workload.model.hidden_size
    gather, whole = all_gather_s(rates, ranks, num_bytes), all_reduce_s(rates, ranks, num_bytes)
    first = np.where(layout.sequence_parallel, gather, 0.0)
    second = whole - first
    if workload.overlap_tp:
        each = PIPELINED * (first + second)
    elif backward and workload.engine == "megatron":
        hidden = blocks * np.where(layout.sequence_parallel, 2 * gather, second)
        return blocks * first + exposed_s(hidden, products)
    else:
        each = first + second
    return blocks * each


def cp_s(rates: Rates, workload: Workload, layout: Layout, tokens: Number, attention: Number, *, backward: bool = False) -> Number:
    """Exposed seconds of passing keys and values round the context parallel ranks, going back their gradients too.

    Megatron passes them in a ring while the part that is there is computed; TorchTitan gathers them first.
    """
    model = workload.model
    ranks = group(rates, layout.cp, layout.tp)
    num_bytes = (4.0 if backward else 2.0) * tokens * _key_and_value(model) / layout.tp
    if workload.engine == "torchtitan":
        return all_gather_s(rates, ranks, num_bytes * layout.cp)
    hop = num_bytes / np.where(ranks.nodes > 1, rates.nic, rates.link)
    hop = hop + np.where(ranks.nodes > 1, rates.nic_latency, rates.link_latency)
    return (layout.cp - 1) * np.maximum(hop - attention / layout.cp, 0.0)


def ep_s(rates: Rates, workload: Workload, moe: MoeConfig, layout: Layout, tokens: Number, computing: Number) -> Number:
    """Exposed seconds of sending tokens to their experts and back; the backward pass sends the same two ways."""
    ranks = group(rates, layout.ep, layout.etp)
    num_bytes = 2.0 * routed_rows(moe, tokens, layout) * workload.model.hidden_size
    copies = copies_between_nodes(moe, ranks) if workload.dispatcher == "deepep" else 1.0
    seconds = 2 * all_to_all_s(rates, ranks, num_bytes, far_share=copies)
    experts_tp = group(rates, layout.etp)
    seconds = seconds + 2 * all_gather_s(rates, experts_tp, num_bytes)
    return exposed_s(seconds, computing) if workload.overlap_ep else seconds


def copies_between_nodes(moe: MoeConfig, ranks: Group) -> Number:
    """Nodes a token goes to over experts it goes to, when a node with several of its experts gets one copy: N(1 − (1 − 1/N)^k) / k.

    N are the nodes that its experts may be on: where a token keeps to some groups of experts, as DeepSeek-V3's to 4 of 8
    (arXiv 2412.19437, section 2.1.2), those that these groups are on.
    """
    chosen, nodes = moe.num_experts_per_tok, ranks.nodes
    if moe.n_group > 1:
        nodes = np.minimum(nodes, moe.topk_group * np.maximum(nodes / moe.n_group, 1))
    return nodes * (1 - (1 - 1 / nodes) ** chosen) / chosen


def _key_and_value(model: ModelConfig) -> int:
    if model.mla is None:
        return 2 * model.num_key_value_heads * model.head_dim
    return model.num_attention_heads * (model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim + model.mla.v_head_dim)
