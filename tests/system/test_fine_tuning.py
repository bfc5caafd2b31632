"""Fine-tuning on both engines: the loss is that of the responses alone, whatever the engine, the layout and the packing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from primus_app.backends.converted_folder import write_folder
from primus_app.backends.given_weights import find_given
from primus_app.config.compose import Request
from primus_app.config.huggingface_export import config_json
from primus_app.config.load import load_config
from tests.system.program import Forge, Start, rows

pytestmark = pytest.mark.slow

PAIRS = [{"prompt": f"Count to {n % 9}, please" + "!" * (9 - n % 9), "response": "so " * (n % 9) + "done"} for n in range(32)]
"""53 to 69 tokens, two to a sample of 129; of them 5 to 29 are learnt, so that a mean of means is another number."""
STEPS = 10
TWO = "cluster.devices_per_node=2"
LAYOUTS = {
    "tp2_dp2": ("parallel=tp2", "cluster.devices_per_node=4", "training.micro_batch_size=1"),
    "pp2": ("parallel=pp2", TWO, "training.micro_batch_size=1"),
    "megatron": ("backend=megatron", "training.micro_batch_size=2"),
    "megatron_pp2": ("backend=megatron", "parallel=pp2", TWO, "training.micro_batch_size=1"),
    "megatron_cp2": ("backend=megatron", "parallel.cp=2", TWO),
}
"""With packed samples."""


def weights(folder: Path) -> Any:
    """A model of transformers at random weights, as it is in ``folder``."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**config_json(load_config(Request(), hardware="cpu").model, end_of_document=256)))
    model.save_pretrained(folder)
    return model.eval()


def loss_of_responses(model: Any, pairs: list[dict[str, str]]) -> float:
    """Each conversation alone: the sum over the responses' bytes and their end, divided by their number."""
    total, number = 0.0, 0
    for pair in pairs:
        before = f"user:\n{pair['prompt']}\n\nassistant:\n".encode()
        tokens = torch.tensor([*before, *pair["response"].encode(), 256, *b"\n\n"])
        with torch.no_grad():
            logits = model(tokens[None]).logits[0]
        losses = torch.nn.functional.cross_entropy(logits[:-1], tokens[1:], reduction="none")
        learnt = losses[len(before) - 1 :][: len(pair["response"]) + 1]
        total, number = total + learnt.sum().item(), number + len(learnt)
    return total / number


def losses_and_evaluations(run: Path) -> list[float]:
    found = [row[key] for row in rows(run) for key in ("loss", "eval_loss") if key in row]
    assert len(found) == STEPS + 2
    return found


def test_both_engines_learn_the_responses_alone(start: Start, forge: Forge, tmp_path: Path) -> None:
    model = weights(tmp_path / "weights")
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    common = (
        "training.stage=post",
        f"checkpoint.load='{tmp_path}/weights'",
        "data=instructions",
        f"data.path='{tmp_path}/chats.jsonl'",
        f"data.cache_dir='{tmp_path}/cache'",
        "data.split=[50,50]",
        "training.seq_len=128",
        "training.global_batch_size=8",
        f"training.steps={STEPS}",
        "training.eval_every=5",
        "training.eval_steps=1",
        "optimizer.lr=1e-3",
        "checkpoint.every=0",
    )
    program = start(*common, "data.packing=false", "training.global_batch_size=16", exp_name="padded")
    code, output = program.end()
    assert code == 0, output
    assert (program.run / "logs/post_trainer/rank-0/info.log").exists()
    assert "data            train: 16 examples in 16 samples" in output
    padded = losses_and_evaluations(program.run)
    assert padded[0] == pytest.approx(loss_of_responses(model, PAIRS[::2]), rel=1e-5)
    assert padded[STEPS - 1] < padded[0] - 0.5
    # Each step reads every example once, so that even packing leaves no trace but in the last digits.
    for name, layout in LAYOUTS.items():
        run = forge.train(*common, *layout, workspace=tmp_path / "work", exp_name=name)
        assert losses_and_evaluations(run) == pytest.approx(padded, rel=1e-5), name


def test_a_balance_loss_counts_samples_whatever_is_masked(forge: Forge, tmp_path: Path) -> None:
    """The responses of a sample are 5 to 58 tokens, and a sample counts alike; with pp, the first stage sees no label."""
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    base = ("model=qwen3_moe_tiny", "training.seq_len=128", "training.global_batch_size=8", "training.eval_every=0", "optimizer.lr=1e-3")
    first = forge.train(*base, "training.steps=1", "checkpoint.every=1", workspace=tmp_path, exp_name="first")
    tuned = (
        *base,
        "training.stage=post",
        f"checkpoint.load='{first}'",
        "data=instructions",
        f"data.path='{tmp_path}/chats.jsonl'",
        f"data.cache_dir='{tmp_path}/cache'",
        "data.split=[50,50]",
        f"training.steps={STEPS}",
        "checkpoint=none",
        "training.load_balancing=aux_loss",
        "training.aux_loss_coefficient=1.0",
    )
    layouts = {
        "titan": (),
        "megatron": ("backend=megatron", "training.micro_batch_size=2"),
        "pp2": ("backend=megatron", "parallel=pp2", "training.micro_batch_size=1", "cluster.devices_per_node=2"),
        "dp2": ("backend=megatron", "parallel=dp", "cluster.devices_per_node=2"),
    }
    found = {}
    for name, layout in layouts.items():
        found[name] = rows(forge.train(*tuned, *layout, workspace=tmp_path, exp_name=name))
        assert len(found[name]) == STEPS
        for key in ("loss", "balance_loss"):
            ours, theirs = ([row[key] for row in found[each]] for each in ("titan", name))
            assert theirs == pytest.approx(ours, rel=1e-4), name


def test_weights_go_out_with_the_template_that_they_learnt(tmp_path: Path) -> None:
    weights(tmp_path / "weights")
    given = replace(find_given(tmp_path / "weights", None), chat_template="{{ messages[0].content }}")
    write_folder(given, "hf", tmp_path / "out", None, lambda done, total: None)
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == "{{ messages[0].content }}"
