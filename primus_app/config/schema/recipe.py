"""How the model learns: training, optimizer, precision and data."""

from typing import Annotated, Literal

from pydantic import Field

from primus_app.config.schema.base import Section, how, what


class TrainingConfig(Section):
    """How long, on how much at a time, from which seed."""

    stage: Literal["pre", "post"] = what(
        "pre",
        "Stage of training; pre is pre-training from text, post is fine-tuning: the weights of checkpoint.load learn the responses of "
        "data=instructions.",
    )
    steps: int | None = what(200, "Optimizer steps; None when training.tokens says how long.", unit="steps", gt=0)
    tokens: int | None = what(None, "Tokens to train on instead of steps, rounded up to whole steps.", unit="tokens", gt=0)
    seq_len: int = what(128, "Tokens in one sample.", unit="tokens", gt=0)
    global_batch_size: int = what(16, "Samples in one optimizer step, over all ranks.", unit="samples", gt=0)
    micro_batch_size: Annotated[int, Field(gt=0)] | Literal["auto"] = how(
        "auto",
        "Samples in one forward pass of one rank; auto is the largest up to 8 that batch, layout and predicted memory allow.",
        unit="samples",
    )
    seed: int = what(1234, "Seed of the weights and of the sample order.", ge=0, lt=2**63)
    recompute: Literal["none", "selective", "full"] = how("none", "Which activations are computed again in the backward pass.")
    recompute_layers: int | None = how(
        None, "recompute=full: how many layers of each pipeline stage are computed again, its first ones; None is all.", unit="layers", gt=0
    )
    eval_every: int = how(50, "Steps between two evaluations; 0 never evaluates.", unit="steps", ge=0)
    eval_steps: int = how(4, "Global batches of the validation split in one evaluation.", unit="batches", gt=0)
    document_mask: bool = what(False, "Whether attention and positions stop at document borders.")
    load_balancing: Literal["none", "expert_bias", "aux_loss"] = what(
        "none",
        "How experts are kept evenly loaded: expert_bias moves the router's selection bias by a step against the load, aux_loss adds "
        "a loss of each sequence's load to the cross entropy.",
    )
    aux_loss_coefficient: float = what(
        1e-2, "aux_loss: what the balance loss, mean over sequences and sum over layers, is multiplied by.", gt=0
    )
    deterministic: bool = how(False, "Whether only deterministic kernels are used, at some cost in speed.")


class OptimizerConfig(Section):
    """AdamW with decoupled decay on tensors of two and more dimensions, and its schedule."""

    name: Literal["adamw"] = what("adamw", "The optimizer.")
    lr: float = what(3e-3, "Peak learning rate.", gt=0)
    min_lr: float | None = what(None, "Learning rate at the end of the schedule; None is a tenth of lr.", ge=0)
    warmup_steps: int | None = what(
        None, "Steps over which the rate rises linearly to lr; None is a tenth of the schedule.", unit="steps", ge=0
    )
    schedule: Literal["cosine", "linear", "constant", "wsd"] = what(
        "cosine", "Curve after the warm-up; wsd holds the peak and falls linearly over the last fifth."
    )
    schedule_steps: int | None = what(
        None, "Length of the schedule, fixed at a run's first start; None takes training.steps.", unit="steps", gt=0
    )
    weight_decay: float = what(0.1, "Decoupled weight decay; 1-D tensors are not decayed.", ge=0)
    beta1: float = what(0.9, "Decay of the first moment.", ge=0, lt=1)
    beta2: float = what(0.95, "Decay of the second moment.", ge=0, lt=1)
    eps: float = what(1e-8, "Added to the root of the second moment.", gt=0)
    clip_grad_norm: float = what(1.0, "Global L2 norm that gradients are clipped to; 0 does not clip.", ge=0)


class PrecisionConfig(Section):
    """Number formats of each part of the computation."""

    name: Literal["fp32", "bf16"] = what("fp32", "Name of the set, as in conf/precision/.")
    params: Literal["fp32"] = what("fp32", "Master weights.")
    compute: Literal["fp32", "bf16"] = what("fp32", "Matrix products and activations.")
    grads: Literal["fp32"] = what("fp32", "Reduction of gradients across ranks.")
    optimizer_states: Literal["fp32"] = what("fp32", "Moments of the optimizer.")


class DataConfig(Section):
    """Where the tokens come from."""

    source: Literal["stdlib_text", "mock", "indexed", "text", "instructions"] = what(
        "stdlib_text",
        "stdlib_text: the running Python's own library as text; mock: a learnable made-up language; indexed: Megatron .bin/.idx pairs; "
        "text: files of text, JSON lines or Parquet; instructions: prompts with responses, or conversations, in JSON or Parquet.",
    )
    path: str | list[str] | None = how(
        None,
        "indexed: a .bin/.idx pair; text, instructions: a file or a folder; or a list of them. The content counts as what, the place "
        "does not.",
    )
    weights: list[float] | None = what(
        None, "indexed with several pairs: how often each is read, in proportion; None is by their number of tokens."
    )
    text_key: str = how("text", "text: the field of JSON lines, or the column of Parquet, that holds the text.", min_length=1)
    prompt_key: str = how("prompt", "instructions: the field or column that holds what is asked.", min_length=1)
    response_key: str = how("response", "instructions: the field or column that holds the answer to learn.", min_length=1)
    messages_key: str = how(
        "messages",
        "instructions: the field or column that holds a conversation, a list of messages with role and content; where a record has it, "
        "it goes before prompt and response.",
        min_length=1,
    )
    chat_template: str | None = how(
        None,
        "instructions: how a conversation becomes text: a file in jinja, or plain for a simple template of ours; None is the tokenizer's "
        "own, and plain for bytes. The tokens it makes count as what.",
        min_length=1,
    )
    packing: bool = what(
        True,
        "instructions: whether several examples share a sample, attention and positions stopping at their borders; false pads each to a "
        "sample of its own.",
    )
    too_long: Literal["refuse", "drop", "truncate"] = how(
        "refuse",
        "instructions: what becomes of examples with more than training.seq_len + 1 tokens: the run is refused with their number, they "
        "are left out, or their ends are cut. What is then learnt counts as what.",
    )
    tokenizer: str = how(
        "byte",
        "How text becomes tokens: byte (256 bytes and an end of document, id 256), or a Hugging Face tokenizer.json or its folder; "
        "the tokens it makes count as what.",
        min_length=1,
    )
    end_of_document: str | None = how(
        None, "Token of a tokenizer.json that ends each document; None is the end of text that its files name.", min_length=1
    )
    split: tuple[float, float] = what((98.0, 2.0), "Shares of the documents for training and validation.")
    cache_dir: str | None = how(None, "Where prepared corpora are kept; None is primus_app under the user's cache folder.")
