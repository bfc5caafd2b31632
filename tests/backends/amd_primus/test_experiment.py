"""Experiments of Primus as files: environment, files that extend others, presets of the user's own, and every mistake in one message."""

from pathlib import Path

import pytest

from primus_app.backends.amd_primus import convert, read_experiment
from primus_app.config.errors import UserError

HEAD = """
work_group: ${TEAM:amd}
user_name: ada
exp_name: &name ${NAME:first}
workspace: ./out
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: ${MODEL:llama2_7B}.yaml
    overrides:
"""


def write(folder: Path, text: str, name: str = "exp.yaml") -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return str(folder / name)


def test_the_environment_is_put_in_as_primus_does(tmp_path: Path) -> None:
    text = (
        HEAD + "      lr: ${LR:2.0e-4}\n      train_iters: ${STEPS:7}\n      mock_data: ${MOCK:true}\n      train_data_path: ${DATA:null}\n"
    )
    told = read_experiment(write(tmp_path, text), {"STEPS": "9", "MODEL": "llama3_8B"})
    assert told.settings == {"lr": 2e-4, "train_iters": 9, "mock_data": True, "train_data_path": None}
    assert (told.model, told.outer["work_group"], told.outer["exp_name"]) == ("llama3_8B", "amd", "first")
    assert told.environment == {"train_iters": "STEPS", "modules.pre_trainer.model": "MODEL"}
    rows = {row.key: row for row in convert(told).rows}
    assert rows["train_iters"].note == "from $STEPS"
    assert rows["lr"].note == ""


def test_a_variable_without_default_has_to_be_set(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_experiment(write(tmp_path, HEAD + "      lr: ${RATE}\n"), {})
    (problem,) = error.value.problems
    assert problem.where.endswith("exp.yaml: modules.pre_trainer.overrides.lr")
    assert "needs the environment's variable RATE" in problem.what


@pytest.mark.parametrize("word", ["extends", "bases"])
def test_files_that_an_experiment_extends(word: str, tmp_path: Path) -> None:
    write(tmp_path, HEAD + "      lr: 1.0e-3\n      train_iters: 5\n", "base.yaml")
    over = write(tmp_path, f"{word}: [base.yaml]\nexp_name: second\nmodules:\n  pre_trainer:\n    overrides:\n      lr: 2.0e-3\n")
    told = read_experiment(over, {})
    assert told.settings == {"lr": 2e-3, "train_iters": 5}
    assert told.outer["exp_name"] == "second"


def test_a_file_that_extends_itself(tmp_path: Path) -> None:
    write(tmp_path, "extends: b.yaml\n", "a.yaml")
    with pytest.raises(UserError, match="extends itself"):
        read_experiment(write(tmp_path, "extends: a.yaml\n", "b.yaml"), {})


def test_settings_without_presets_are_those_of_an_exported_experiment(tmp_path: Path) -> None:
    """Primus writes its experiments out with every setting in the module itself, and no config."""
    text = HEAD.replace("    config: pre_trainer.yaml\n", "").replace("    overrides:\n", "    train_iters: 3\n    trainable: true\n")
    told = read_experiment(write(tmp_path, text), {})
    assert (told.config, told.settings) == (None, {"train_iters": 3, "trainable": True})


def test_a_preset_of_the_users_own_beside_the_experiment(tmp_path: Path) -> None:
    write(tmp_path, "extends:\n  - llama3_8B.yaml\nnum_layers: 4\nmax_position_embeddings: 2048\n", "tiny.yaml")
    converted = convert(read_experiment(write(tmp_path, HEAD), {"MODEL": "tiny"}))
    assert converted.problems == ()
    assert {"model=llama3_8b", "model.num_hidden_layers=4", "model.max_position_embeddings=2048"} <= set(converted.overrides)


def test_a_preset_of_a_checkout_is_read_with_all_that_it_extends(tmp_path: Path) -> None:
    models = "primus/configs/models/megatron"
    write(
        tmp_path,
        "position_embedding_type: rope\nnormalization: RMSNorm\nhidden_dropout: 0.0\nattention_dropout: 0.0\n",
        f"{models}/base.yaml",
    )
    sizes = "num_layers: 2\nhidden_size: 256\nffn_hidden_size: 512\nnum_attention_heads: 4\nmax_position_embeddings: 512\n"
    write(tmp_path, f"extends: base.yaml\n{sizes}vocab_size: 1000\n", f"{models}/own.yaml")
    write(tmp_path, "seq_length: 64\n", "primus/configs/modules/megatron/pre_trainer.yaml")
    converted = convert(read_experiment(write(tmp_path, HEAD, "examples/deep/exp.yaml"), {"MODEL": "own"}))
    assert converted.problems == ()
    wanted = {"model.name=own", "model.num_hidden_layers=2", "model.hidden_size=256", "model.head_dim=64", "model.num_key_value_heads=4"}
    assert wanted | {"model.vocab_size=1000", "training.seq_len=64"} <= set(converted.overrides)


def test_an_experiment_is_no_preset_whatever_its_name(tmp_path: Path) -> None:
    write(tmp_path, HEAD, "llama3_8B.yaml")
    converted = convert(read_experiment(write(tmp_path, HEAD, "llama2_7B.yaml"), {"MODEL": "llama3_8B"}))
    assert "model=llama3_8b" in converted.overrides


@pytest.mark.parametrize(
    ("change", "where", "what", "fix"),
    [
        (("llama2_7B", "llama2_8B"), "modules.pre_trainer.model", "no preset known here, nor in reach", "did you mean llama2_7B.yaml"),
        (("llama2_7B", "grok1"), "modules.pre_trainer.model", "Grok is not trained here", "model=hf"),
        (("llama2_7B", "llama_base"), "modules.pre_trainer.model", "no model", "name a model"),
        (("pre_trainer.yaml", "pre_trianer.yaml"), "modules.pre_trainer.config", "no preset", "did you mean pre_trainer.yaml?"),
        (("pre_trainer.yaml", "sft_trainer.yaml"), "modules.pre_trainer.config", "fine-tuning", "pre_trainer.yaml"),
        (("framework: megatron", "framework: megatorn"), "modules.pre_trainer.framework", "no counterpart", "did you mean megatron?"),
        (("framework: megatron", "framework: maxtext"), "modules.pre_trainer.framework", "no counterpart", "megatron and torchtitan"),
        (("framework:", "framwork:"), "modules.pre_trainer.framework", "is missing", "did you mean modules.pre_trainer.framwork?"),
        (("work_group:", "workgroup:"), "work_group", "is missing", "did you mean workgroup?"),
        (("pre_trainer:\n", "pre_trianer:\n"), "modules.pre_trianer", "no such module", "did you mean modules.pre_trainer?"),
        (("pre_trainer:\n", "post_trainer:\n"), "modules.post_trainer", "is fine-tuning", ""),
    ],
)
def test_mistakes_outside_the_settings(change: tuple[str, str], where: str, what: str, fix: str, tmp_path: Path) -> None:
    file = write(tmp_path, HEAD.replace(*change) + "      lr: 1.0\n")
    try:
        problems = convert(read_experiment(file, {})).problems
    except UserError as error:
        problems = error.problems
    (problem,) = problems
    assert problem.where == f"{file}: {where}"
    assert what in problem.what
    assert fix in "\n".join(problem.fix)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [1\n", "is not valid YAML"),
        ("- a\n- b\n", "has no keys with values"),
        ("", "has no keys with values"),
        ("name: a\n", "is no experiment of Primus: it has no modules"),
        (HEAD + "      lr: 1.0\n      lr: 2.0\n", "lr is given 2 times, line"),
        (HEAD.replace("overrides:\n", "overrides: 5\n"), "modules.pre_trainer.overrides: has no keys"),
    ],
)
def test_files_that_are_no_experiment(text: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_experiment(write(tmp_path, text), {})
    assert what in str(error.value)


def test_wrong_values_all_at_once(tmp_path: Path) -> None:
    wrong = {"lr": "1e-5", "train_iters": "many", "lr_decay_style": "cosin", "num_attention_heads": "0"}
    settings = {**wrong, "sequence_parallel": "1"}  # Megatron takes 0 and 1 for a truth.
    file = write(tmp_path, HEAD + "".join(f"      {key}: {value}\n" for key, value in settings.items()))
    problems = {problem.where.rpartition(" ")[2]: problem for problem in convert(read_experiment(file, {})).problems}
    assert set(problems) == set(wrong)
    assert problems["lr"].fix == ("YAML reads 1e-5 as text: write 1.0e-5",)
    assert problems["lr_decay_style"].fix == ("did you mean cosine?",)
