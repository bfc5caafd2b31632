"""Weights out of a checkpoint into transformers, and from there back into TorchTitan."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from primus_app.backends.converted_folder import write_folder
from primus_app.backends.given_weights import GivenWeights
from primus_app.backends.hf_names import hf_buffers, hf_parameters
from primus_app.config.huggingface_export import config_json
from primus_app.config.schema import ModelConfig

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
YARN = {
    "rope_type": "yarn",
    "factor": 16.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 128,
    "mscale": 0.7,
    "mscale_all_dim": 0.7,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama with llama3 rope": ("llama_tiny", {"rope_scaling": LLAMA3, "rms_norm_eps": 1e-3}),
    "llama tied": ("llama_tiny", {"tie_word_embeddings": True}),
    "qwen3 with wide heads, tied": ("qwen3_tiny", {"tie_word_embeddings": True, "head_dim": 48}),
    "qwen3_moe": ("qwen3_moe_tiny", {}),
    "deepseek_v3 with yarn": ("deepseek_v3_tiny", {"rope_scaling": YARN}),
}


@pytest.fixture
def checkpoint(seeded_model: Callable[..., Any], tmp_path: Path) -> Callable[[ModelConfig], tuple[Any, Path]]:
    """``checkpoint(model)``: TorchTitan's module with weights and selection biases that are not the seeded ones, and its saved step."""

    def save(model: ModelConfig) -> tuple[Any, Path]:
        module = seeded_model(model, 3).eval()
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name.endswith("expert_bias_E"):
                    buffer.copy_(torch.linspace(-0.2, 0.2, buffer.numel()))
            for number, weight in enumerate(module.parameters()):
                weight.mul_(1 + number % 7 / 50)
        dcp.save(module.state_dict(), checkpoint_id=str(tmp_path / "step-1"), no_dist=True)
        return module, tmp_path / "step-1"

    return save


def exported(model: ModelConfig, step: Path, folder: Path) -> Path:
    dtypes = {weight.name: "F32" for weight in (*hf_parameters(model), *hf_buffers(model))}
    given = GivenWeights(step, model, "a step", "step-1", dtypes, config_json(model), ())
    write_folder(given, "hf", folder, None, lambda done, total: None)
    return folder


def with_transformers(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    loaded, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
    )
    # A shared output layer is not stored.
    assert not [name for name in report["missing_keys"] if name != "lm_head.weight"]
    assert not report["unexpected_keys"]
    return loaded.eval()


@pytest.mark.parametrize(("name", "changes"), CASES.values(), ids=CASES.keys())
def test_logits_in_transformers_are_those_of_the_checkpoint(
    name: str, changes: dict[str, Any], model_of: Any, checkpoint: Any, tmp_path: Path
) -> None:
    model = model_of(name, init_std=0.06, **changes)
    module, step = checkpoint(model)
    theirs = with_transformers(exported(model, step, tmp_path / "hf"))
    tokens = torch.randint(0, model.vocab_size, (4, 64), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(64).expand(4, 64).contiguous()
    with torch.no_grad():
        logits = module(tokens, positions, module.get_attention_masks(positions))
        expected = theirs(tokens).logits
    assert expected.abs().max() > 0.1
    assert (logits - expected).abs().max() <= 1e-5


@pytest.mark.parametrize(("name", "changes"), CASES.values(), ids=CASES.keys())
def test_what_is_exported_loads_back_bit_for_bit(
    name: str, changes: dict[str, Any], model_of: Any, checkpoint: Any, seeded_model: Any, tmp_path: Path
) -> None:
    from primus_app.backends.torchtitan.load import load_weights
    from primus_app.backends.torchtitan.model.build import FAMILIES

    model = model_of(name, **changes)
    module, step = checkpoint(model)
    other = seeded_model(model, 4)
    load_weights([other], model, exported(model, step, tmp_path / "hf"), FAMILIES[model.family].adapter(other.config, None))
    _same(other, module)


@pytest.mark.parametrize("name", ["llama_tiny", "deepseek_v3_tiny"])
def test_a_checkpoint_loads_bit_for_bit_whole_and_as_a_pipeline_stage(name: str, model_of: Any, checkpoint: Any, seeded_model: Any) -> None:
    from primus_app.backends.torchtitan.load import load_checkpoint

    model = model_of(name)
    module, step = checkpoint(model)
    other = seeded_model(model, 4)
    load_checkpoint([other], step)
    _same(other, module)
    first, last = seeded_model(model, 5), seeded_model(model, 5)
    first.norm = first.lm_head = last.tok_embeddings = None
    del first.layers["2"], first.layers["3"], last.layers["0"], last.layers["1"]
    load_checkpoint([first, last], step)
    stages = first.state_dict() | last.state_dict()
    assert stages.keys() == module.state_dict().keys()
    assert all(torch.equal(value, module.state_dict()[key]) for key, value in stages.items())


def test_transformers_own_files_load(model_of: Any, checkpoint: Any, seeded_model: Any, tmp_path: Path) -> None:
    """Saved by transformers in several small files with an index."""
    from primus_app.backends.torchtitan.load import load_weights
    from primus_app.backends.torchtitan.model.build import FAMILIES

    model = model_of("deepseek_v3_tiny")
    module, step = checkpoint(model)
    theirs = with_transformers(exported(model, step, tmp_path / "hf"))
    theirs.save_pretrained(tmp_path / "saved", max_shard_size="1MB")
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 3
    other = seeded_model(model, 4)
    load_weights([other], model, tmp_path / "saved", FAMILIES[model.family].adapter(other.config, None))
    _same(other, module)


def _same(found: torch.nn.Module, expected: torch.nn.Module) -> None:
    states, wanted = found.state_dict(), expected.state_dict()
    assert states.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(states[name], wanted[name])] == []
