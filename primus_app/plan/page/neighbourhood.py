"""Whom a rank talks to: the first ranks of each stage as cells, by node, with those that share a group with rank 0."""

from dataclasses import dataclass

from primus_app.plan.mesh import Mesh

MOST_ROWS, MOST_COLUMNS = 16, 64
CELL, NODE_GAP, ROW = 14.0, 6.0, 20.0


@dataclass(frozen=True)
class Cell:
    """A rank in pixels, with the words of its groups in common with rank 0 (``self`` for itself)."""

    rank: int
    x: float
    y: float
    groups: str
    tooltip: str


@dataclass(frozen=True)
class Neighbourhood:
    """``rows`` and ``columns`` are those drawn; ``left_out`` says what is not, or is empty."""

    cells: tuple[Cell, ...]
    rows: int
    columns: int
    width: float
    height: float
    left_out: str


def neighbourhood(mesh: Mesh) -> Neighbourhood:
    """Ranks count tp first, then cp, dp and pp, so that a row is a stage and neighbours in it share a node."""
    per_stage = mesh.world // mesh.pp
    rows, columns = min(mesh.pp, MOST_ROWS), min(per_stage, MOST_COLUMNS)
    cells = tuple(_cell(stage, place, per_stage, mesh) for stage in range(rows) for place in range(columns))
    missing = [f"{mesh.pp - rows} more stages"] if rows < mesh.pp else []
    missing += [f"{per_stage - columns:,} more ranks of each stage"] if columns < per_stage else []
    width = max((cell.x for cell in cells), default=0.0) + CELL
    return Neighbourhood(cells, rows, columns, width, rows * ROW, " and ".join(missing))


def groups_with_first(rank: int, mesh: Mesh) -> list[str]:
    """The dimensions along which ``rank`` communicates with rank 0: all other coordinates are 0."""
    tp, cp, dp, pp = coordinates(rank, mesh)
    found = []
    if rank and not cp and not dp and not pp:
        found.append("tp")
    if cp and not tp and not dp and not pp:
        found.append("cp")
    if dp and not tp and not cp and not pp:
        found.append("dp")
    if pp and not tp and not cp and not dp:
        found.append("pp")
    if mesh.ep > 1 and not pp and _same_experts_group(rank, mesh):
        found.append("ep")
    return found


def coordinates(rank: int, mesh: Mesh) -> tuple[int, int, int, int]:
    """(tp, cp, dp, pp) of a rank."""
    rank, tp = divmod(rank, mesh.tp)
    rank, cp = divmod(rank, mesh.cp)
    pp, dp = divmod(rank, mesh.dp)
    return tp, cp, dp, pp


def _same_experts_group(rank: int, mesh: Mesh) -> bool:
    """Experts are divided over the first ep of the ranks of a stage, of which etp next to each other share one."""
    return 0 < rank < mesh.ep * mesh.etp and rank % mesh.etp == 0


def _cell(stage: int, place: int, per_stage: int, mesh: Mesh) -> Cell:
    rank = stage * per_stage + place
    groups = ["self"] if rank == 0 else groups_with_first(rank, mesh)
    node = rank // mesh.devices_per_node
    first_node = stage * per_stage // mesh.devices_per_node
    words = f"; shares {', '.join(groups)} with rank 0" if groups and rank else ""
    return Cell(rank, place * CELL + (node - first_node) * NODE_GAP, stage * ROW, " ".join(groups), f"rank {rank}, node {node}{words}")
