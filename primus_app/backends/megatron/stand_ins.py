"""Megatron's stand-ins: parts of ours that go in through a layer's specification or an argument, without any change upstream. No torch."""

from primus_app.backends.stand_ins import StandIn

NO_ENGINE = "Transformer Engine does not import, or there is no accelerator"

STAND_INS: tuple[StandIn, ...] = (
    StandIn(
        part="attention.CoreAttention",
        through="the specification of a layer",
        condition=f"{NO_ENGINE}; or training.document_mask=true; or windows under parallel.cp",
        reason="Megatron's own core attention knows no context parallelism, no heads of two sizes and no masks of documents, "
        "Transformer Engine's no masks of documents, and no windows under context parallelism.",
    ),
    StandIn(
        part="sinks.SinkAttention",
        through="the specification of a layer",
        condition="in a model with attention sinks",
        reason="As of CoreAttention; and Transformer Engine has sinks in some of its versions and kernels only.",
    ),
    StandIn(
        part="expert_bias.ExpertDown",
        through="the specification of a layer",
        condition=f"{NO_ENGINE}; in experts with biases",
        reason="Megatron adds the bias to a view in place, which autograd refuses, and with tp takes biases of experts for one.",
    ),
    StandIn(
        part="yarn.YarnTransformerConfig",
        through="a subclass of TransformerConfig",
        condition="yarn without latent attention",
        reason="GPTModel reads yarn's numbers of its configuration, which has no fields for them.",
    ),
    StandIn(
        part="norm.SequenceParallelNorm",
        through="the specification of a layer",
        condition=NO_ENGINE,
        reason="Megatron's wrapper of torch's norm refuses sequence parallelism.",
    ),
    StandIn(
        part="replicated.ReplicatedLinear",
        through="the specification of a layer",
        condition=f"{NO_ENGINE}; in latent attention",
        reason="Down projections divided over tp lose gradients of the keys' positions.",
    ),
    StandIn(
        part="backend.MegatronBackend.train",
        through='torch.compiler.set_stance("force_eager") of torch',
        condition="on a CPU",
        reason="Megatron compiles its small fused functions, which takes tens of seconds on a CPU and fails in a path with spaces.",
    ),
    StandIn(
        part="optimizer.set_rate",
        through="the groups of parameters",
        condition="always",
        reason="Megatron's schedule runs a step behind the design's; the groups' own exceptions from decay are kept.",
    ),
    StandIn(
        part="stored.open_step",
        through="checkpoints on disk",
        condition="always",
        reason="Megatron's state dicts do not carry over between kinds of optimizer; all parameters share one count of steps after them.",
    ),
)
