"""The entry of one rank process: reads the run directory, opens its logs and hands over to the backend."""

import json
import os
import signal
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import record

from primus_app.backends.base import RankContext, load_backend
from primus_app.backends.megatron.versions import naming_path
from primus_app.backends.patches import apply_patches
from primus_app.data.prepare import PreparedData
from primus_app.run.directory import RunDirectory
from primus_app.run.orphan import forks_die_with_parent
from primus_app.run.rank_logs import open_logs
from primus_app.run.snapshot import read_config


@record
def main(run_path: str, attempt: str) -> None:
    """Train as attempt ``attempt`` of the run at ``run_path`` says; elastic's variables tell which rank this is."""
    forks_die_with_parent()  # Writers of checkpoints, which would go on where a new attempt has begun.
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The agent accounts for it; a KeyboardInterrupt here would only be noise.
    run = RunDirectory(Path(run_path))
    folder = run.attempts_dir / attempt
    config = read_config(folder / "config.yaml")
    rank = int(os.environ["RANK"])
    open_logs(run.log_dir(rank, config.training.stage), config.logging.level, rank)
    context = RankContext(
        config=config,
        run=run,
        attempt=int(attempt),
        data=PreparedData.from_dict(json.loads((folder / "data.json").read_text())),
        rank=rank,
        local_rank=int(os.environ["LOCAL_RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    backend = load_backend(config.backend.name)
    try:
        with naming_path(config.backend.megatron_path):
            backend.prepare(config)
            apply_patches(config.backend.patches, backend.patches())
            backend.train(context)
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # torch's checkpoint errors are no Exception, and elastic would pass them over.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
