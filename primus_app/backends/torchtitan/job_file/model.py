"""The model, its precision and its data, of a job."""

from collections.abc import Iterator

from primus_app.backends.imported.row import Fate, Row
from primus_app.backends.imported.setting import names, setting
from primus_app.backends.torchtitan.job_file.fields import FIELDS
from primus_app.backends.torchtitan.job_file.flavors import Flavor, find_flavor
from primus_app.backends.torchtitan.job_file.read import Job
from primus_app.config.errors import Problem

FORMATS = "only bfloat16 and float32 are trained here"
SAME_TEXT = "the same text, tokenised before training and read in another order"
DOWNLOADED = "TorchTitan downloads {} while it trains: download its files to a folder and name that as data.path"
NO_TOKENIZER = "no tokenizer is named, so it is read byte by byte: data.tokenizer=<tokenizer.json> for another"


def find_model(job: Job) -> tuple[Flavor | None, list[Row], list[Problem]]:
    """The model and the rows of [model]; the problem where there is none."""
    before_0_2 = job.gives("model.tokenizer_path") or "training.batch_size" in job.written
    flavor, masked, problem = find_flavor(job["model.name"], job["model.flavor"], before_0_2=before_0_2)
    rows = [Row("model.name", job["model.name"], note="see model.flavor"), *_extras(job)]
    if flavor is None:
        assert problem is not None
        nothing = Row("model.flavor", job["model.flavor"], fate=Fate.DIFFERS, note=problem.what)
        return None, [nothing, *rows], [problem]
    balancing = ("training.load_balancing=expert_bias",) if flavor.biased else ()
    mask = ("training.document_mask=true",) if masked else ()
    notes = [flavor.note] if flavor.note else []
    if flavor.balances and not flavor.biased:
        notes.append("TorchTitan moves a selection bias of the routers that the published model has not; here none is moved")
    fate = Fate.SAME if flavor.exact and (flavor.biased or not flavor.balances) else Fate.DIFFERS
    return flavor, [Row("model.flavor", job["model.flavor"], (*flavor.overrides, *balancing, *mask), fate, "; ".join(notes)), *rows], []


def _extras(job: Job) -> Iterator[Row]:
    used = _tokenizer_key(job)
    for key in ("model.hf_assets_path", "model.tokenizer_path"):
        became = setting("data.tokenizer", job[key]) if key == used else ()
        note = "" if key == used else "nothing is tokenised with it"
        yield Row(key, job[key], became, Fate.SAME if key == used else Fate.NO_MEANING, note)
    converters = names(job["model.converters"])
    note = f"{', '.join(converters)}: {FORMATS}" if converters else ""
    yield Row("model.converters", job["model.converters"], fate=Fate.DIFFERS if converters else Fate.NO_MEANING, note=note or "none given")
    yield Row("model.print_after_conversion", job["model.print_after_conversion"], fate=Fate.NO_MEANING, note="nothing is converted")
    norm = job["model.norm_type"]
    same = "rmsnorm" in norm
    yield Row("model.norm_type", norm, fate=Fate.SAME if same else Fate.DIFFERS, note="" if same else "all norms are RMS norms")
    quantized = [name for name in FIELDS if name.startswith("quantize.")]
    for key in (*quantized, "quantize.linear.float8.enable_float8_linear", "quantize.linear.float8.moe_fqns_prototype"):
        given = next((job.written[written] for written, name in job.names.items() if name == key), None)
        wanted = key.endswith("enable_float8_linear") and bool(given)
        note = FORMATS if wanted else "has an effect with a converter for it only, and there is none here"
        yield Row(key, given, fate=Fate.DIFFERS if wanted else Fate.NO_MEANING, note=note)


def precision_rows(job: Job) -> Iterator[Row]:
    """The number formats."""
    compute, params = job["training.mixed_precision_param"], job["training.dtype"]
    bf16 = "bfloat16" in (compute, params)
    yield Row("training.mixed_precision_param", compute, ("precision=bf16",) if bf16 else ())
    whole = params == "bfloat16"
    note = "weights, gradients and moments stay float32; matrix products are bfloat16" if whole else ""
    yield Row("training.dtype", params, fate=Fate.DIFFERS if whole else Fate.SAME, note=note)
    yield Row("training.mixed_precision_reduce", job["training.mixed_precision_reduce"])


def _tokenizer_key(job: Job) -> str | None:
    """The key that names the tokenizer of the text, if one does and there is text."""
    if job["training.dataset"] == "c4_test" and job["training.dataset_path"] is None:
        return None
    return next((key for key in ("model.hf_assets_path", "model.tokenizer_path") if job[key]), None)


def data_rows(job: Job) -> Iterator[Row]:
    """The corpus: TorchTitan tokenises text while it trains, here it is tokenised before."""
    dataset, path = job["training.dataset"], job["training.dataset_path"]
    if dataset == "c4_test" and path is None:
        note = "TorchTitan's 2,000 documents do not come with it: data=stdlib_text, the default, is a small corpus that needs nothing"
        yield Row("training.dataset", dataset, fate=Fate.DIFFERS, note=note)
    else:
        tokenizer = "" if _tokenizer_key(job) else f"; {NO_TOKENIZER}"
        note = (SAME_TEXT if path else DOWNLOADED.format(dataset)) + tokenizer
        yield Row("training.dataset", dataset, ("data=text", *(() if path else setting("data.path", dataset))), Fate.DIFFERS, note)
    yield Row("training.dataset_path", path, setting("data.path", path) if path else ())
    for key in (name for name in FIELDS if ".dataloader." in name):
        yield Row(key, job[key], fate=Fate.NO_MEANING, note="samples are read from a file of tokens, without worker processes")


def evaluation_rows(job: Job, dp: int | None) -> Iterator[Row]:
    """[validation]: every so many steps, on whole global batches of the validation split."""
    enabled, every, steps = job["validation.enable"], job["validation.freq"], job["validation.steps"]
    off = "has no effect: validation is off"
    yield Row("validation.enable", enabled, () if enabled else setting("training.eval_every", 0))
    yield Row("validation.freq", every, setting("training.eval_every", every)) if enabled else _off("validation.freq", every, off)
    local, seq_len = job["validation.local_batch_size"], job["validation.seq_len"]
    size = job["training.global_batch_size"] if job["training.global_batch_size"] > 0 else job["training.local_batch_size"] * (dp or 1)
    if not enabled:
        yield _off("validation.steps", steps, off)
    elif steps > 0:
        batches = max(1, -(-steps * local * (dp or 1) // size))
        same = dp is not None and batches * size == steps * local * dp
        note = f"in global batches of {size} samples" + ("" if same else ", rounded up" if dp else ", for one data-parallel rank")
        yield Row("validation.steps", steps, setting("training.eval_steps", batches), Fate.SAME if same else Fate.DIFFERS, note)
    else:
        yield Row(
            "validation.steps", steps, fate=Fate.DIFFERS, note="the whole split each time; here training.eval_steps global batches, 4"
        )
    yield _off("validation.local_batch_size", local, "evaluations take the micro batches of training")
    differs = enabled and seq_len != job["training.seq_len"]
    note = f"evaluations have the {job['training.seq_len']} tokens of training.seq_len"
    yield Row("validation.seq_len", seq_len, fate=Fate.DIFFERS if differs else Fate.NO_MEANING, note=note)
    for key in ("validation.dataset", "validation.dataset_path"):
        note = off if not enabled else "the validation split of the corpus, a share of data.split"
        yield Row(key, job[key], fate=Fate.DIFFERS if enabled and job.gives(key) else Fate.NO_MEANING, note=note)


def _off(key: str, value: object, note: str) -> Row:
    return Row(key, value, fate=Fate.NO_MEANING, note=note)
