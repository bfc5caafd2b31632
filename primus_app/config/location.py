"""Where the configuration files lie: inside the installed package, or beside it in a checkout."""

from pathlib import Path

import primus_app

MARKER = "config.yaml"


def conf_dir(package: Path | None = None) -> Path:
    """The folder with ``config.yaml`` and its groups; ``package`` is the folder of primus_app (default: the imported one).

    Raises RuntimeError if the package came without its configuration.
    """
    folder = package or Path(primus_app.__file__).parent
    candidates = (folder / "conf", folder.parent / "conf")
    for candidate in candidates:
        if (candidate / MARKER).is_file():
            return candidate.resolve()
    places = " nor ".join(str(candidate / MARKER) for candidate in candidates)
    raise RuntimeError(f"primus_app is installed without its configuration: neither {places} exists; install it again")
