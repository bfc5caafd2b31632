"""What of backend.native Megatron has, takes and heeds: every other option is refused by name. Imports no megatron."""

from functools import cache

from primus_app.backends.megatron.native.fields import recorded_fields, type_of
from primus_app.backends.megatron.native.options import OPTIONS
from primus_app.backends.megatron.native.owned import OWNED
from primus_app.backends.megatron.native.refused import REFUSED
from primus_app.backends.megatron.native.rules import RULES
from primus_app.backends.megatron.versions import tested_version
from primus_app.backends.native.check import check_options
from primus_app.backends.native.options import Option, Options
from primus_app.config.errors import Problem
from primus_app.config.schema import Config
from primus_app.plan.mesh import Mesh

PAGE = "docs/native-options.md lists Megatron's options"


def check_native(config: Config, mesh: Mesh | None) -> list[Problem]:
    """Every option of backend.native that the megatron-core that is there has not, takes otherwise, or would not heed; all at once."""
    return check_options(options_of(tested_version(config.backend)), config, mesh)


@cache
def options_of(version: str) -> Options:
    """The tables for the fields that ``version`` has, by the nearest version that is recorded."""
    facts = recorded_fields(version)
    return Options(
        engine=f"megatron-core {'.'.join(version.split('.')[:2])}",
        passed={name: Option(type_of(facts[name]), each.help, each.rules) for name, each in OPTIONS.items() if name in facts},
        owned={name: owner for name, owner in OWNED.items() if name in facts},
        refused={name: reason for name, reason in REFUSED.items() if name in facts},
        rules=RULES,
        whole=PAGE,
    )
