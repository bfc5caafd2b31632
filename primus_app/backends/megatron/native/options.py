"""The fields of Megatron's configurations that may be passed through: how a run is carried out, never what it computes.

What each takes is in recorded/, since it may differ from version to version.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Passed:
    """What a field does, and the rules of ``rules.py`` that it must pass."""

    help: str
    rules: tuple[str, ...] = ()


GPU = ("accelerator",)
EXPERTS = ("accelerator", "experts")
FLEX = ("accelerator", "flex", "above_0")
OFFLOAD = ("accelerator", "whole_pipeline", "no_recompute", "some_layers")
OFFLOADED = ("accelerator", "offloading")
FINE = ("accelerator", "fine_offloading")

OPTIONS: dict[str, Passed] = {
    "ddp.overlap_grad_reduce": Passed(
        "Whether gradients are summed over data parallel ranks during the backward pass; true by default on accelerators.", ("replicas",)
    ),
    "ddp.overlap_param_gather": Passed(
        "Whether the distributed optimizer's new weights are gathered during the forward pass; true by default on accelerators.",
        ("sharded", "grad_overlap"),
    ),
    "ddp.align_param_gather": Passed(
        "Whether all stages of an interleaved pipeline begin to gather weights at the same time; true by default with interleaving.",
        ("param_overlap", "interleaved"),
    ),
    "ddp.bucket_size": Passed(
        "Numbers in a bucket of gradients that are summed together; null leaves it to Megatron.", ("grad_overlap", "size")
    ),
    "ddp.check_for_nan_in_grad": Passed("Whether a gradient that is not finite ends training before it is summed over ranks."),
    "ddp.pad_buckets_for_high_nccl_busbw": Passed("Whether buckets are padded to sizes that NCCL sends fast.", ("accelerator", "sharded")),
    "ddp.nccl_ub": Passed("Whether buckets lie in memory that NCCL has registered.", ("accelerator", "replicas")),
    "ddp.disable_symmetric_registration": Passed("Whether that memory is registered without symmetry.", ("accelerator", "user_buffers")),
    "transformer.recompute_modules": Passed(
        "What training.recompute=selective computes again: core_attn, moe_act, layernorm, mla_up_proj, mlp, moe, shared_experts.",
        ("selective", "modules"),
    ),
    "transformer.recompute_method": Passed(
        "How training.recompute=full groups layers: uniform, or block for the first of a stage.", ("full", "all_layers", "not_null")
    ),
    "transformer.recompute_num_layers": Passed(
        "With training.recompute=full the layers of a group, or with block how many are computed again.", ("full", "all_layers", "layers")
    ),
    "transformer.distribute_saved_activations": Passed(
        "Whether what training.recompute=full keeps is divided over tp.", ("accelerator", "full", "tensor", "whole_sequence")
    ),
    "transformer.cross_entropy_loss_fusion": Passed("Whether the loss is computed by a fused function.", ("rounded_loss",)),
    "transformer.cross_entropy_fusion_impl": Passed(
        "Whose fused function: Megatron's, or Transformer Engine's.", ("accelerator", "fused_loss")
    ),
    "transformer.bias_activation_fusion": Passed(
        "Whether SwiGLU is computed by a fused function; Transformer Engine's layers do by default."
    ),
    "transformer.bias_dropout_fusion": Passed(
        "Whether residuals are added by a fused function; Transformer Engine's layers do by default."
    ),
    "transformer.gradient_accumulation_fusion": Passed("Whether matrix products add to the gradients' own memory.", GPU),
    "transformer.apply_rope_fusion": Passed("Whether positions are applied by a fused function.", ("accelerator", "stretched_latent")),
    "transformer.fused_single_qkv_rope": Passed(
        "Whether that function takes queries, keys and values at once.", ("accelerator", "rope_fusion")
    ),
    "transformer.fused_residual_rmsnorm": Passed("Whether a norm adds the residual too.", GPU),
    "transformer.attention_backend": Passed(
        "Which of Transformer Engine's attentions: flash, fused, unfused or auto.", ("accelerator", "engines_attention", "kernels")
    ),
    "transformer.cp_comm_type": Passed(
        "How Transformer Engine's attention communicates under cp: p2p, all_gather, a2a or a2a+p2p; a list has one for each layer.",
        ("accelerator", "context", "engines_attention", "exchange"),
    ),
    "transformer.symmetric_ar_type": Passed("Which sums over tp go through symmetric memory.", ("accelerator", "tensor", "whole_sequence")),
    "transformer.disable_bf16_reduced_precision_matmul": Passed(
        "Whether matrix products of bfloat16 are summed in float32 throughout.", ("accelerator", "half")
    ),
    "transformer.clone_scatter_output_in_embedding": Passed(
        "Whether each tp rank's part of the embedding is copied, so that the whole can be freed; true by default.",
        ("tensor", "divided_sequence"),
    ),
    "transformer.batch_p2p_sync": Passed(
        "Whether the device is waited for after stages exchange in a batch; true by default.", ("accelerator", "pipeline", "batched")
    ),
    "transformer.deallocate_pipeline_outputs": Passed(
        "Whether a stage frees what it has sent; true by default on accelerators.", ("accelerator", "pipeline")
    ),
    "transformer.overlap_p2p_comm_warmup_flush": Passed(
        "Whether stages overlap their exchange at the ends of a step too.", ("interleaved",)
    ),
    "transformer.microbatch_group_size_per_vp_stage": Passed(
        "Micro batches that a virtual stage takes in a row; pp by default.", ("interleaved", "group")
    ),
    "transformer.defer_embedding_wgrad_compute": Passed(
        "Whether the last stage computes the output layer's gradients once the pipeline drains.",
        ("accelerator", "pipeline", "accumulation"),
    ),
    "transformer.wgrad_deferral_limit": Passed("Of how many micro batches; 0 is all.", ("accelerator", "deferral", "from_0")),
    "transformer.moe_token_dispatcher_type": Passed(
        "How tokens come to their experts: allgather, alltoall or flex.", ("experts", "dispatcher")
    ),
    "transformer.moe_flex_dispatcher_backend": Passed("What flex communicates through.", ("accelerator", "flex")),
    "transformer.moe_deepep_num_sms": Passed("Processors that DeepEP takes.", FLEX),
    "transformer.moe_hybridep_num_sms": Passed("Processors that HybridEP takes.", FLEX),
    "transformer.moe_permute_fusion": Passed("Whether tokens are sorted by expert in a fused function.", EXPERTS),
    "transformer.moe_router_fusion": Passed("Whether the router is a fused function.", EXPERTS),
    "transformer.moe_shared_expert_overlap": Passed(
        "Whether shared experts compute while tokens travel.", ("accelerator", "experts", "shared_experts", "all_to_all")
    ),
    "transformer.cpu_offloading": Passed("Whether activations are kept in host memory until the backward pass.", OFFLOAD),
    "transformer.cpu_offloading_num_layers": Passed("Of how many layers.", (*OFFLOADED, "fewer_layers")),
    "transformer.cpu_offloading_activations": Passed("Whether activations are; true by default.", OFFLOADED),
    "transformer.cpu_offloading_weights": Passed("Whether weights are too.", OFFLOADED),
    "transformer.cpu_offloading_double_buffering": Passed("Whether two layers' activations are on their way at a time.", OFFLOADED),
    "transformer.cpu_offloading_retain_pinned_cpu_buffers": Passed("Whether host memory is kept for the next step.", OFFLOADED),
    "transformer.fine_grained_activation_offloading": Passed(
        "Whether activations of offload_modules are kept in host memory.", ("accelerator", "one_offloading")
    ),
    "transformer.offload_modules": Passed(
        "Whose: core_attn, attn_proj, expert_fc1, moe_act, attn_norm, mlp_norm, qkv_linear.", (*FINE, "offload_modules")
    ),
    "transformer.min_offloaded_tensor_size": Passed("Numbers from which on a tensor is worth moving.", (*FINE, "from_0")),
}
"""By dotted name, over all recorded versions."""
