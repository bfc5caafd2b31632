"""What is no mistake and yet worth knowing before a run starts."""

from primus_app.config.schema import Config
from primus_app.plan.mesh import Mesh


def notes(config: Config, mesh: Mesh | None) -> list[str]:
    """One sentence each; ``mesh`` is None where the layout does not come out."""
    found = []
    if config.model.init == "native" and config.checkpoint.load is None and mesh is not None and mesh.world > 1:
        found.append(
            f"model.init=native on {mesh.world} ranks: the engine draws each rank's weights by itself, so another layout begins with "
            "others and gives another curve; model.init=seeded does not"
        )
    return found
