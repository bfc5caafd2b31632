"""What the chosen engine refuses, and whether the other one would train it."""

from dataclasses import replace

from primus_app.backends.base import load_backend
from primus_app.config.errors import Problem
from primus_app.config.kinds import choices, schema_fields
from primus_app.config.schema import Config
from primus_app.plan.mesh import Mesh


def refusals(config: Config, mesh: Mesh | None) -> list[Problem]:
    """The problems of ``config``'s engine; each names another engine where one has none with this configuration."""
    refused = load_backend(config.backend.name).check(config, mesh)
    able = _engine_without_problems(config, mesh) if refused else None
    if able is None:
        return refused
    option = f"backend={able}"

    def named(problem: Problem) -> Problem:
        said = any(fix.startswith(option) for fix in problem.fix)
        return problem if said else replace(problem, fix=(*problem.fix, f"{option} trains it"))

    return [named(each) for each in refused]


def _engine_without_problems(config: Config, mesh: Mesh | None) -> str | None:
    for name in choices(schema_fields()["backend.name"]):
        other = config.model_copy(update={"backend": config.backend.model_copy(update={"name": name})})
        engine = load_backend(name)
        if name != config.backend.name and not engine.check(other, mesh) and not engine.check_machine(other):
            return name
    return None
