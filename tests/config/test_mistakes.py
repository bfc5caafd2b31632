"""A mistake of the user's is refused in one helpful message, all mistakes at once, however they are combined."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from primus_app.config.compose import Request, hydra_ready
from primus_app.config.errors import ExitCode, Problem, UserError
from primus_app.config.load import load_config, prepare_model
from primus_app.config.overrides import examine

Refuse = Callable[..., list[Problem]]

SEVEN = {
    "modle=llama_tiny": ("modle=llama_tiny: no such key", "did you mean model=llama_tiny?"),
    "model=lama3_8b": ("model=lama3_8b: conf/model/ has no 'lama3_8b'", "did you mean model=llama3_8b"),
    "parallel.tpp=8": ("parallel.tpp=8: no such key", "did you mean parallel.tp=8 or parallel.pp=8?"),
    "training.seq_len=abc": ("training.seq_len: 'abc' is not allowed; it takes a whole number above 0", ""),
    "+training.foo=1": ("training.foo", "`primus --cfg job --package training` shows the keys of training"),
    "mock_date=true": ("mock_date=true: no such key", "did you mean data=mock?"),
    "hydra.ouput_subdir=x": ("hydra.ouput_subdir=x: no such key", "did you mean hydra.output_subdir?"),
}
"""Each mistake with a part of what is wrong and a part of what to do."""

ALONE = [
    ("training.steps=-5", "training.steps: -5 is not allowed; it takes a whole number above 0 or null", ""),
    ("training.steps=true", "training.steps: true is not allowed; it takes a whole number above 0 or null", ""),
    ("training.steps=1.5", "training.steps: 1.5 is not allowed; it takes a whole number", ""),
    ("training.steps=", "training.steps: '' is not allowed; it takes a whole number", ""),
    ("training.steps=soon", "training.steps: 'soon' is not allowed", ""),
    ("training.document_mask=maybe", "'maybe' is not allowed; it takes true or false", ""),
    ("data.split=[true,1]", "data.split: [true, 1] is not allowed; it takes a list of 2 numbers", ""),
    ("data.split=[1,2,3]", "data.split: [1, 2, 3] is not allowed; it takes a list of 2 numbers", ""),
    ("optimizer.name=sgd", "changes the name alone; the option is chosen by optimizer=<option>", ""),
    ("precision.name=bf16", "changes the name alone", "did you mean precision=bf16?"),
    ("model.name=llama3_8b", "changes the name alone", "did you mean model=llama3_8b"),
    ("optimizer=sgd", "conf/optimizer/ has no 'sgd'", "there is only adamw"),
    ("user_name=a/b", "user_name: 'a/b' is not allowed: it names one folder: no /", ""),
    ("training.steps==3", "training.steps==3: cannot be read as key=value", "write training.steps=3"),
    ("optimizer.lr=nan", "optimizer.lr: nan is not allowed; it takes a number above 0", ""),
    ("optimizer.lr=inf", "optimizer.lr: inf is not allowed; it takes a number above 0", ""),
    ("optimizer.beta1=1", "optimizer.beta1: 1 is not allowed; it takes a number from 0 below 1", ""),
    ("cluster.nodes=all", "'all' is not allowed; it takes a whole number above 0 or auto", ""),
    ("training.recompute=ful", "it takes one of none, selective, full", "did you mean training.recompute=full?"),
    ("~training.steps", "nothing can be deleted", "set another: training.steps=<value>"),
    ("~training.steps=200", "nothing can be deleted", "set another: training.steps=<value>"),
    ("~model", "nothing can be deleted", "set another: model=<option>"),
    ("optimizer.lr=1e-4,3e-4", "is a list of values to sweep over", "add --multirun"),
    ("model=llama_tiny,qwen3_tiny", "is a list of values to sweep over", "add --multirun"),
    ("model=[llama_tiny,qwen3_tiny]", "takes one option", "--multirun model=llama_tiny,qwen3_tiny"),
    ("model={a:1}", "takes the name of a file in conf/model/", "model.<key>=<value>"),
    ("model=null", "conf/model/ has no null", "`primus --help` shows the"),
    ("experiment=none", "conf/experiment/ has no 'none'", "for none, leave it out"),
    ("experiment=null", "conf/experiment/ has no null", "for none, leave it out"),
    ("training=5", "training: 5 is not allowed; it takes a group of keys", "`primus --cfg job --package training`"),
    ("training=null", "training: null is not allowed; it takes a group of keys", "`primus --cfg job --package training`"),
    ("training={steps:5,foo:1}", "training.foo: no such key", "`primus --cfg job --package training`"),
    ("optimizer.lr=[1e-4", "cannot be read as key=value", "the [ is never closed by ]"),
    ("data.path=/a/b(c)", "cannot be read as key=value", """'data.path="/a/b(c)"'"""),
    ("data.path=it's", "cannot be read as key=value", '''data.path="it's"'''),
    ("data.split[0]=5", "cannot be read as key=value", "a key is words joined by dots"),
    ("training.steps", "cannot be read as key=value", "write training.steps=<value>"),
    ("=5", "cannot be read as key=value", "write key=value"),
    ("training.steps:5", "cannot be read as key=value", "write key=value"),
    ("model.moe.num_experts=4", "there is no moe here: model.moe is null", "such as model=deepseek_v3_tiny"),
    ("model=hf", "model.path: model=hf needs it", "model.path=<a Hugging Face config.json or its folder>"),
    ("model.path=/no/such", "has no effect on model=llama_tiny", "add model=hf"),
    ("exp_name=../x", "exp_name: '../x' is not allowed: it names a folder inside the workspace", ""),
    ("workspace=''", "workspace: '' is not allowed; it takes text that is not empty", ""),
    ("user_name=null", "user_name: null is not allowed; it takes text", ""),
    ("user_name='???'", "user_name: has no value", "give it: user_name=<value>"),
    ("+training.steps=5", "the key is there already", "write training.steps=5"),
    ("+model=llama_tiny", "an option is chosen without a plus", "write model=llama_tiny"),
    ("model@optimizer=llama_tiny", "an option goes where its group is", "write model=llama_tiny"),
    ("++training.stpes=4", "training.stpes: no such key", "did you mean training.steps?"),
    ("+trainig.steps=4", "trainig.steps: no such key", "did you mean training.steps?"),
    ("training.steps.foo=1", "no such key", "did you mean training.steps=1?"),
    ("hydra.run.dir=/x", "has no effect", "workspace=<folder>"),
    ("+hydra.foo=1", "no such key", "`primus --cfg hydra`"),
    ("hydra/launcher=submitit_slurm", "has no effect", "leave it out"),
    ("hydra.sweeper.max_batch_size=3", "has no effect without --multirun", "add --multirun"),
    ("training.steps=${nope}", "training.steps: Interpolation key 'nope' not found", "${oc.env:NAME}"),
    ("training.steps=${oc.env:PRIMUS_NO_SUCH}", "Environment variable 'PRIMUS_NO_SUCH' not found", "${oc.env:NAME}"),
    ("backend.patches=foo", "it takes one of auto, none or a list of names", ""),
    ("tensor_model_parallel_size=4", "no such key", "did you mean parallel.tp=4?"),
    ("lr=1e-4", "no such key", "did you mean optimizer.lr=1e-4?"),
    ("dtype=bf16", "no such key", "did you mean precision=bf16?"),
]
"""Each mistake, what is wrong and what to do."""


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """``refuse(overrides…)``: the problems that the request ends in."""
    monkeypatch.chdir(tmp_path)

    def ask(*overrides: str, config_dir: Path | None = None) -> list[Problem]:
        with pytest.raises(UserError) as caught:
            load_config(Request(overrides, config_dir=str(config_dir) if config_dir else None), hardware="cpu")
        assert caught.value.code == ExitCode.BAD_REQUEST
        for problem in caught.value.problems if config_dir is None else ():
            assert_suggestions_are_few_and_legal(problem)
        return list(caught.value.problems)

    return ask


def assert_suggestions_are_few_and_legal(problem: Problem) -> None:
    for line in problem.fix:
        offered = line.removeprefix("did you mean ").removesuffix("?").split(" or ") if line.startswith("did you mean") else []
        assert len(offered) <= 3
        for name in offered:
            assert_is_known(name)


@cache
def assert_is_known(name: str) -> None:
    """Typed with some value, the suggestion is never called unknown."""
    prepare_model(Request())
    with hydra_ready():
        said = str(examine(Request((name if "=" in name else f"{name}=1",)), multirun=False).problems)
    assert "no such key" not in said


def assert_says(problems: Sequence[Problem], what: str, fix: str) -> None:
    assert any(what in str(each) and fix in str(each) for each in problems), "\n".join(map(str, problems))


@pytest.mark.parametrize("typed", SEVEN)
def test_each_of_the_seven_mistakes(refuse: Refuse, typed: str) -> None:
    problems = refuse(typed)
    assert len(problems) == 1
    assert_says(problems, *SEVEN[typed])


def test_the_seven_mistakes_at_once(refuse: Refuse) -> None:
    problems = refuse(*SEVEN)
    assert len(problems) == 7
    for what, fix in SEVEN.values():
        assert_says(problems, what, fix)


@pytest.mark.parametrize(("typed", "what", "fix"), ALONE, ids=[typed for typed, _, _ in ALONE])
def test_a_mistake_alone(refuse: Refuse, typed: str, what: str, fix: str) -> None:
    problems = refuse(typed)
    assert len(problems) == 1, problems
    assert_says(problems, what, fix)


def test_all_mistakes_that_can_be_combined_at_once(refuse: Refuse) -> None:
    keyless = ("${", "???", "model.path", "experiment=", "moe", "training=", "=hf")
    typed = [text for text, _, _ in ALONE if not any(part in text for part in keyless)]
    problems = refuse(*typed)
    said = "\n".join(map(str, problems))
    for text in typed:
        key = re.split(r"[=:]", text.lstrip("+~"))[0].partition("[")[0]
        assert key in said, text


def test_a_bad_model_file_hides_no_other_mistake(refuse: Refuse) -> None:
    problems = refuse("model=hf", "model.path=/no/such", "modle=llama_tiny", "training.steps=abc", "model.hidden_size=64")
    assert [problem.where for problem in problems] == ["model.path", "modle=llama_tiny", "training.steps"]
    assert "no such file or folder: /no/such" in problems[0].what


def test_advice_on_quoting_works() -> None:
    """The quoted form as a shell hands it over."""
    config = load_config(Request(('workspace="/a/b(c)"',)), hardware="cpu")
    assert config.workspace == "/a/b(c)"
    assert load_config(Request(("workspace=/my data/a",)), hardware="cpu").workspace == "/my data/a"


def test_numbers_that_look_like_text_are_numbers() -> None:
    config = load_config(Request(("optimizer.lr=1e-5", "training.steps=1e3", "user_name=123")), hardware="cpu")
    assert (config.optimizer.lr, config.training.steps, config.user_name) == (1e-5, 1000, "123")
    assert isinstance(config.training.steps, int)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        group, _, option = name.partition("__")
        (folder / group).mkdir(exist_ok=True)
        (folder / group / f"{option}.yaml").write_text(text)
    return folder


USERS = {
    "model__broken": "name: [\n",
    "model__twice": "name: x\nname: y\n",
    "model__list": "- a\n- b\n",
    "model__partial": "name: x\nfamily: llama\n",
    "model__unknown": "defaults: [llama_tiny, _self_]\nhiden_size: 64\n",
    "model__lost": "defaults: [no_such]\nname: x\n",
    "model__text": "defaults: x\nname: x\n",
    "experiment__lost": "# @package _global_\ndefaults: [{override /model: llama_tny}]\n",
    "experiment__hf": "# @package _global_\ndefaults: [{override /model: hf}]\nmodel: {path: /no/such}\n",
    "experiment__key": "# @package _global_\ntraining: {stpes: 3}\n",
}


@pytest.mark.parametrize(
    ("typed", "what", "fix"),
    [
        ("model=broken", "broken.yaml:2: is not valid YAML", ""),
        ("model=twice", "twice.yaml:2: is not valid YAML: found duplicate key name", ""),
        ("model=list", "In 'model/list'", ""),
        ("model=partial", "model: needs num_hidden_layers, hidden_size", "model.num_hidden_layers=<value>"),
        ("model=unknown", "model.hiden_size: no such key", "did you mean model.hidden_size?"),
        ("model=lost", "In 'model/lost': Could not load 'model/no_such'", ""),
        ("model=text", "defaults must be a list", ""),
        ("experiment=lost", "Could not find 'model/llama_tny'", "did you mean model=llama_tiny"),
        ("experiment=hf", "model.path: no such file or folder: /no/such", ""),
        ("experiment=key", "training.stpes: no such key", "did you mean training.steps?"),
        ("model=partal", "conf/model/ has no 'partal'", "did you mean model=partial?"),
    ],
)
def test_a_mistake_in_a_file_of_the_users(refuse: Refuse, tmp_path: Path, typed: str, what: str, fix: str) -> None:
    assert_says(refuse(typed, config_dir=write(tmp_path, **USERS)), what, fix)
