"""Where elastic sends what a rank prints and the error it ends with: attempts/N/rank-R/."""

from pathlib import Path

from torch.distributed.elastic.multiprocessing.api import LogsDest, LogsSpecs, Std


class AttemptLogs(LogsSpecs):
    """stdout.log, stderr.log and error.json of each rank, in the folder of the attempt."""

    def __init__(self, attempt: Path) -> None:
        super().__init__(str(attempt), Std.ALL, Std.NONE, None)
        self._attempt = attempt

    @property
    def root_log_dir(self) -> str:
        return str(self._attempt)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Paths by local rank; ``envs`` are the ranks' environments, which learn where to write their error."""
        stdouts, stderrs, errors = {}, {}, {}
        for local_rank, env in envs.items():
            folder = rank_folder(self._attempt, int(env["RANK"]))
            folder.mkdir(parents=True, exist_ok=True)
            stdouts[local_rank] = str(folder / "stdout.log")
            stderrs[local_rank] = str(folder / "stderr.log")
            errors[local_rank] = str(folder / "error.json")
            env["TORCHELASTIC_ERROR_FILE"] = errors[local_rank]
        return LogsDest(stdouts, stderrs, {}, {}, errors)


def rank_folder(attempt: Path, rank: int) -> Path:
    return attempt / f"rank-{rank}"
