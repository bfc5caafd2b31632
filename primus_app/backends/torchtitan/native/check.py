"""What of backend.native TorchTitan has, takes and heeds: every other option is refused by name. Imports no torch."""

from primus_app.backends.native.check import check_options
from primus_app.backends.native.options import Options
from primus_app.backends.torchtitan.native.options import OPTIONS
from primus_app.backends.torchtitan.native.owned import OWNED, REFUSED, SECTIONS_OWNED
from primus_app.backends.torchtitan.native.rules import RULES
from primus_app.config.errors import Problem
from primus_app.config.schema import Config
from primus_app.plan.mesh import Mesh

TITAN = Options(
    engine="TorchTitan 0.3.0",
    passed=OPTIONS,
    owned=OWNED,
    refused=REFUSED,
    rules=RULES,
    owned_sections=SECTIONS_OWNED,
    whole="docs/native-options.md lists TorchTitan's options",
)


def check_native(config: Config, mesh: Mesh | None) -> list[Problem]:
    """Every option of backend.native that is unknown, of the wrong type, a key of ours, or without effect; all at once."""
    return check_options(TITAN, config, mesh)
