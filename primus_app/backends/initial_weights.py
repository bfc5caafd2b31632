"""checkpoint.load before launch: whether the weights are there, whole and of this architecture, and what names their content."""

from dataclasses import dataclass
from pathlib import Path

from primus_app.backends.hf_weights import find_tensors, identity, model_of
from primus_app.backends.safetensors_files import has_weights
from primus_app.backends.stored_folder import is_converted, read_note
from primus_app.backends.stored_index import stored_problem
from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import Config, ModelConfig
from primus_app.config.typed import typed
from primus_app.run.checkpoints import newest_checkpoint
from primus_app.run.directory import run_directory
from primus_app.run.saved_step import find_saved_step, is_run_or_step, run_of
from primus_app.run.snapshot import read_config
from primus_app.run.what import differences, what_of

LOAD = "checkpoint.load"
DIGEST = "checkpoint.load_digest"
NOT_ARCHITECTURE = ("model.name", "model.init", "model.init_std")
"""Keys of *what* in ``model`` that weights do not have to agree with."""


@dataclass(frozen=True)
class InitialWeights:
    """Weights found good: the folder that ranks read, and what names its content."""

    folder: Path
    digest: str


def check_load(config: Config) -> list[Problem]:
    """Everything that speaks against starting from checkpoint.load; empty where nothing is to be loaded, or not any more."""
    checkpoint = config.checkpoint
    if checkpoint.load is None:
        fix = ("leave it out, or give checkpoint.load too",)
        return [Problem(DIGEST, "has no effect without checkpoint.load", fix)] if checkpoint.load_digest else []
    problems = []
    if config.model.init == "native":
        what = "native has no effect with checkpoint.load, whose weights take the place of the first ones"
        problems.append(Problem("model.init", what, ("leave it out",)))
    try:
        resolve_load(config)
    except UserError as error:
        problems += error.problems
    return problems


def resolve_load(config: Config) -> Config:
    """``config`` with checkpoint.load as the folder that is read and load_digest filled.

    A run that has checkpoints of its own goes on from them: what it has started from may then be gone.
    Raises:
        UserError: with everything that speaks against these weights.
    """
    if config.checkpoint.load is None:
        return config
    begun = _begun_from(config)
    if begun is None:
        found = find_weights(Path(config.checkpoint.load).expanduser().absolute(), config)
    elif newest_checkpoint(run_directory(config)) is not None:
        found = begun
    else:
        found = find_weights(begun.folder, config)
    expected = config.checkpoint.load_digest
    if expected not in (None, found.digest):
        what = f"{expected!r} is expected, and the weights of {found.folder} are {found.digest!r}"
        raise UserError(Problem(DIGEST, what, ("bring the expected weights back, or leave it out",)))
    checkpoint = config.checkpoint.model_copy(update={"load": str(found.folder), "load_digest": found.digest})
    return config.model_copy(update={"checkpoint": checkpoint})


def find_weights(path: Path, config: Config) -> InitialWeights:
    """The weights at ``path``, a run directory, a step folder or a Hugging Face folder, for ``config``'s model.

    Raises:
        UserError: with everything that speaks against them.
    """
    try:
        return _found(path, config)
    except OSError as error:  # A name that is too long, or a folder that others may not look into.
        raise UserError(Problem(LOAD, f"{path}: {error.strerror}", _kinds())) from error


def _found(path: Path, config: Config) -> InitialWeights:
    if is_run_or_step(path):
        step = find_saved_step(path, where=LOAD)
        _require_architecture(config, step.config.model, step.run.path, f"take the model as {step.run.config_file} has it")
        _require_whole(step.folder)
        return InitialWeights(step.folder, step.identity)
    if not (is_converted(path) or has_weights(path) or (path / "config.json").exists()):
        raise UserError(Problem(LOAD, _no_weights(path), _advice(path)))
    _require_architecture(config, model_of(path, LOAD), path, f"model=hf {typed('model.path', path)} takes the model from there")
    if is_converted(path):
        note = read_note(path, config.model, LOAD)
        _require_whole(path)
        return InitialWeights(path, note.identity)
    return InitialWeights(path, identity(find_tensors(path, config.model, LOAD)))


def _require_whole(folder: Path) -> None:
    if problems := stored_problem(folder, LOAD):
        raise UserError(problems)


def _begun_from(config: Config) -> InitialWeights | None:
    """What the run has started from, where it has begun and is given the same place again."""
    run = None if config.exp_name is None else run_directory(config)
    if run is None or not run.run_file.exists() or not run.config_file.exists():
        return None
    begun = read_config(run.config_file).checkpoint
    if begun.load is None or begun.load_digest is None or config.checkpoint.load is None:
        return None
    folder, given = Path(begun.load), Path(config.checkpoint.load).expanduser().absolute()
    return InitialWeights(folder, begun.load_digest) if given in (folder, run_of(folder).path) else None


def _require_architecture(config: Config, stored: ModelConfig, place: Path, fix: str) -> None:
    wanted, found = (_architecture(config, model) for model in (config.model, stored))
    if different := differences(found, wanted):
        problems = [Problem(item.key, f"{item.new!r} here, {item.old!r} in {place}") for item in different]
        raise UserError([*problems, Problem(LOAD, f"{place} holds the weights of another architecture", (fix,))])


def _architecture(config: Config, model: ModelConfig) -> dict[str, object]:
    what = what_of(config.model_copy(update={"model": model}))
    return {key: value for key, value in what.items() if key.startswith("model.") and key not in NOT_ARCHITECTURE}


def _no_weights(path: Path) -> str:
    if not path.exists():
        return f"no such folder: {path}"
    return f"{path} is {'a file' if path.is_file() else 'neither a run directory nor a Hugging Face folder'}"


def _advice(path: Path) -> tuple[str, ...]:
    nearby = path.parent if path.is_file() else path
    files = (file for pattern in ("*/run.json", "*/config.json") for file in sorted(nearby.glob(pattern)))
    inside = [str(file.parent) for file in files][:3]
    return (*_kinds(), *((f"{'beside it' if path.is_file() else 'in it'}: {', '.join(inside)}",) if inside else ()))


def _kinds() -> tuple[str]:
    return ("give a run directory, checkpoints/step-<n> in one, or a folder with config.json and safetensors",)
