"""TorchTitan's stand-ins: parts of ours that its configuration or its Trainer takes, without any change upstream. Imports no torch."""

from primus_app.backends.stand_ins import StandIn

ON_CPU = "on a CPU"

STAND_INS: tuple[StandIn, ...] = (
    StandIn(
        part="attention.CpuFlexAttention",
        through="the configuration of the model's attention",
        condition=ON_CPU,
        reason="FlexAttention has no backward pass on a CPU; scaled_dot_product_attention gives the same, with sinks our own softmax.",
    ),
    StandIn(
        part="attention.CpuAttentionMasks",
        through="a subclass of the model",
        condition=ON_CPU,
        reason="The plain causal mask is made once a shape instead of once a micro batch, which costs time on a CPU.",
    ),
    StandIn(
        part="experts.Float32GroupedExperts",
        through="the configuration of the model's experts",
        condition="precision.compute=fp32, on every device",
        reason="TorchTitan's grouped experts compute in bfloat16 whatever the precision.",
    ),
    StandIn(
        part="experts.Float32Gate",
        through="the configuration of the model's router",
        condition=ON_CPU,
        reason="TorchTitan asks autocast for a router in float32, which the CPU's autocast refuses with a warning.",
    ),
    StandIn(
        part="experts.Float32GptOssExperts",
        through="the configuration of the model's experts",
        condition="precision.compute=fp32, on every device, in gpt_oss",
        reason="As of Float32GroupedExperts.",
    ),
    StandIn(
        part="output_bias.WholeBiasGradient",
        through="the configuration of the model's attention",
        condition="in gpt_oss, on every device",
        reason="Under tensor parallelism the output projection's bias gets the gradient divided by tp.",
    ),
    StandIn(
        part="model.gpt_oss.CpuGptOssModel",
        through="a subclass of the model",
        condition=f"{ON_CPU}, in gpt_oss",
        reason="As of CpuAttentionMasks; gpt_oss has two masks.",
    ),
    StandIn(
        part="trainer.RunTrainer._reduce_by_sum",
        through="FSDPModule.set_force_sum_reduction_for_comms of torch",
        condition=ON_CPU,
        reason="gloo has no scaled sum, which FSDP2 asks for because TorchTitan sets its divide factor to 1.",
    ),
    StandIn(
        part="backend.TorchTitanBackend.train",
        through='torch.compiler.set_stance("force_eager") of torch',
        condition="on a CPU, without backend.native.compile.enable=true",
        reason="Only FlexAttention's mask would be compiled, which takes tens of seconds on a CPU.",
    ),
)
