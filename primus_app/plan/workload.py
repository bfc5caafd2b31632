"""What the estimates of memory and time are about: a model at work, and one layout of it or arrays of many."""

from dataclasses import dataclass
from typing import Any, Literal

from primus_app.config.schema import ModelConfig

Number = Any
"""An int, or an array of numpy with one element for each layout of a search; arithmetic that is written for one serves both."""


@dataclass(frozen=True)
class Layout:
    """One layout, or many of the same length; world = dp_replicate · dp_shard · cp · tp · pp, as in :class:`primus_app.plan.mesh.Mesh`.

    Attributes:
        num_microbatches: micro batches of one data parallel rank in a step.
        sequence_parallel: whether norms and residuals are split along the sequence under tp.
        sharded_optimizer: Megatron: whether optimizer states are divided over dp_shard · cp. TorchTitan's FSDP divides always.
        recompute: index into RECOMPUTE.
    """

    tp: Number
    pp: Number
    vpp: Number
    cp: Number
    ep: Number
    etp: Number
    dp_replicate: Number
    dp_shard: Number
    micro_batch_size: Number
    num_microbatches: Number
    sequence_parallel: Number
    sharded_optimizer: Number
    recompute: Number

    @property
    def dp(self) -> Number:
        """Ranks that read different samples."""
        return self.dp_replicate * self.dp_shard

    @property
    def world(self) -> Number:
        """All ranks."""
        return self.dp * self.cp * self.tp * self.pp

    @property
    def shards(self) -> Number:
        """Ranks over which dense weights or their optimizer states are divided."""
        return self.dp_shard * self.cp

    @property
    def expert_shards(self) -> Number:
        """The same for routed experts: those of ``shards`` and tp that do not hold different experts or parts of them; at least 1.

        Neither engine lets ep reach across dp_replicate where weights or optimizer states are divided: TorchTitan's mesh of experts is
        dp_replicate x efsdp x ep (distributed/parallel_dims.py), and Megatron divides the ranks of an expert among dp_replicate
        replicas of its optimizer (parallel_state.py, intra_partial_expert_data_parallel_size). What would is refused.
        """
        ranks = self.dp_shard * self.cp * self.tp // (self.ep * self.etp)
        return ranks + (ranks == 0)


RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class Workload:
    """What does not differ between the layouts of a search.

    Attributes:
        engine: whose way of allocating and overlapping.
        compute: number format of matrix products and activations.
        schedule: of the pipeline, as parallel.schedule.
        padded_vocab: rows of the vocabulary's tables as the engine holds them, over all tp ranks.
        fused: whether the kernels are an accelerator's (fused attention, norms, SwiGLU and cross entropy), which save less for the
            backward pass; otherwise those of a CPU.
        loss: ``fused`` keeps gradients in the place of the logits; ``plain`` makes them float32 first; ``chunked`` works through a part of
            the tokens at a time (torchtitan).
        gradient_fusion: Megatron on an accelerator: whether matrix products add to the float32 gradients themselves, which leaves a
            placeholder of each weight's shape behind.
        compiled: whether operations on single elements run together in few kernels (torch.compile, or Megatron's own kernels);
            TorchTitan's backward pass then works them out again instead of keeping what they gave.
        attention: the kernel: the maker's own (cuDNN, AITER, through Transformer Engine), a portable one (FlashAttention 2, as
            PyTorch has it), or several that write the scores to memory, as everywhere before 2022.
        overlap_dp: whether gradients and weights travel between data parallel ranks while others are computed.
        reduce: number format in which gradients travel.
        overlap_tp: whether products of tensor parallel ranks run in pieces with their communication (asynchronous tensor parallelism).
        overlap_ep: whether tokens travel to experts while another micro batch is computed.
        graphs: whether kernels are launched as recorded graphs, not one by one by the host.
        fused_experts: whether an expert's products, SwiGLU and conversions run in one kernel.
        dispatcher: how tokens reach their experts: one copy for each expert, or one for each node (DeepEP).
        waits_for_sends: whether stages send as Megatron did before it overlapped sends (core's overlap_p2p_comm): what all tp ranks hold
            alike goes in parts and is gathered there, and virtual stages do not compute meanwhile either.
        gathers: what fully sharded weights are gathered by: layers, or tensors one by one as in DeepSpeed's ZeRO 3.
        recompute_layers: with full recomputation the layers of each virtual stage, its first ones, that are computed again; None: all.
        recompute_group: with full recomputation how many of them are computed again together, of which the first one's input is kept.
    """

    model: ModelConfig
    seq_len: int
    global_batch_size: int
    engine: Literal["megatron", "torchtitan"]
    compute: Literal["fp32", "bf16", "fp8"]
    schedule: Literal["1f1b", "interleaved", "gpipe", "zero_bubble"]
    padded_vocab: int
    fused: bool
    loss: Literal["fused", "plain", "chunked"] = "plain"
    gradient_fusion: bool = False
    compiled: bool = False
    attention: Literal["vendor", "portable", "unfused"] = "vendor"
    overlap_dp: bool = True
    reduce: Literal["fp32", "bf16"] = "fp32"
    overlap_tp: bool = False
    overlap_ep: bool = False
    graphs: bool = False
    fused_experts: bool = False
    dispatcher: Literal["alltoall", "deepep"] = "alltoall"
    waits_for_sends: bool = False
    gathers: Literal["layers", "tensors"] = "layers"
    recompute_layers: int | None = None
    recompute_group: int = 1


def recomputed_share(workload: Workload, layout: Layout) -> Number:
    """The part of a model's layers that full recomputation computes again."""
    if workload.recompute_layers is None:
        return 1.0
    share = workload.recompute_layers * layout.pp * layout.vpp / workload.model.num_hidden_layers
    return share + (1.0 - share) * (share > 1)
