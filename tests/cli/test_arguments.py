"""The command line taken apart, and refused where a word would be passed over."""

from pathlib import Path

import pytest

from primus_app.cli.arguments import parse_arguments, split_verb
from primus_app.config.errors import UserError


@pytest.mark.parametrize(
    ("argv", "verb", "overrides"),
    [
        ([], "train", ()),
        (["training.steps=5"], "train", ("training.steps=5",)),
        (["train", "model=x"], "train", ("model=x",)),
        (["plan", "model=x", "--json", "a.b=1"], "plan", ("model=x", "a.b=1")),
        (["--multirun", "a=1,2", "-cn", "config", "b=1"], "train", ("a=1,2", "b=1")),
        (["~a"], "train", ("~a",)),
        (["+a=1"], "train", ("+a=1",)),
    ],
)
def test_verb_and_overrides(argv: list[str], verb: str, overrides: tuple[str, ...]) -> None:
    arguments = parse_arguments(argv)
    assert (arguments.verb, arguments.request.overrides) == (verb, overrides)


def test_the_verbs_own_flag_wherever_it_stands() -> None:
    assert parse_arguments(["plan", "a=1", "--json", "-cn", "config"]).flags == {"--json"}


def test_the_users_folder_is_absolute_and_the_name_without_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/big.yaml").touch()
    request = parse_arguments(["--config-dir", "mine", "--config-name=big.yaml"]).request
    assert (request.config_dir, request.config_name) == (str(tmp_path / "mine"), "big")


@pytest.mark.parametrize(
    ("argv", "what", "fix"),
    [
        (["plna"], "plna: no such verb", "did you mean plan?"),
        (["xyz"], "xyz: no such verb", "one of train, plan"),
        (["plan", "plan"], "plan: a verb comes first, and there is one at most", "leave out plan or plan"),
        (["training.steps=5", "plna"], "plna: a verb comes first", "write primus plan"),
        (["plan", "--jsn"], "--jsn: no such flag of plan", "did you mean --json?"),
        (["--json"], "--json: no such flag of train", ""),
        (["--multi"], "--multi: no such flag of train", "did you mean --multirun?"),
        (["--multrun"], "--multrun: no such flag of train", "did you mean --multirun?"),
        (["--training.steps=5"], "no such flag", "settings have no dashes: did you mean training.steps=5?"),
        (["--lr", "1e-4"], "no such flag", "settings have no dashes: did you mean optimizer.lr=<value>?"),
        (["--tensor-model-parallel-size=8"], "no such flag", "settings have no dashes: did you mean parallel.tp=8?"),
        (["--mock-data"], "no such flag", "settings have no dashes: did you mean data=mock?"),
        (["--zzz"], "--zzz: no such flag", "see `primus --help`"),
        (["--cfg", "jbo"], "invalid choice: 'jbo'", "see `primus --help`"),
        (["--cfg"], "--cfg/-c: expected one argument", "see `primus --help`"),
        (["--info", "nope"], "invalid choice: 'nope'", "see `primus --help`"),
        (["--package", "training"], "--package: has no effect without --cfg", "add --cfg job"),
        (["--resolve"], "--resolve: has no effect without --cfg", "add --cfg job"),
        (["--cfg", "job", "--multirun"], "--multirun: has no effect", "leave it out"),
        (["plan", "--json", "--cfg", "job"], "--json: has no effect", "leave it out"),
        (["--config-path", "/tmp"], "--config-path: has no effect", "--config-dir DIR"),
        (["--experimental-rerun", "x"], "--experimental-rerun: has no effect", "config.yaml"),
        (["--config-dir", "/no/such"], "--config-dir: no such folder: /no/such", ""),
        (["training.steps=5", "training.steps=6"], "training.steps: is given 2 times: training.steps=5, training.steps=6", "all but one"),
        (["model=llama_tiny", "+model=llama_tiny"], "model: is given 2 times", "all but one"),
        (["--config-name", "confg"], "--config-name: no file confg.yaml", "did you mean config?"),
    ],
)
def test_refused(argv: list[str], what: str, fix: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_arguments(argv)
    (problem,) = caught.value.problems
    assert what in str(problem)
    assert fix in str(problem)


def test_an_option_that_would_never_be_read(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/llama_tiny.yaml").touch()
    with pytest.raises(UserError, match="is never read: model=llama_tiny is the one that came with primus"):
        parse_arguments(["--config-dir", str(tmp_path)])


def test_a_setting_is_no_verb() -> None:
    assert split_verb(["model=plan", "plan"]) == ("train", ["model=plan", "plan"])
