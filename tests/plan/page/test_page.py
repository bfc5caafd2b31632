"""The pictures of the page: geometry by hand, and the page as a document of its own."""

from html.parser import HTMLParser

import pytest

from primus_app.plan.mesh import Mesh
from primus_app.plan.page import bars, gantt
from primus_app.plan.page.neighbourhood import coordinates, groups_with_first, neighbourhood
from primus_app.plan.page.page import Contents, Traffic, render_page

MESH = Mesh(world=64, nodes=8, devices_per_node=8, tp=4, pp=2, vpp=1, cp=2, ep=8, etp=1, dp_replicate=1, dp_shard=4, dp=4)
BAR = bars.Bar("stage 0", (("weights", 30.0), ("gradients", 0.0), ("activations", 10.0)))


def contents(**changes: object) -> Contents:
    passes = [gantt.Pass(0, "forward", 0, 0, 0.0, 1.0), gantt.Pass(1, "backward", 0, 0, 1.0, 3.0)]
    values = {
        "title": "a model on 64 devices",
        "command": "primus plan model=x",
        "verdict": "fits",
        "verdict_kind": "fits",
        "facts": [("world", "64", "8 x 8")],
        "memory": [BAR],
        "device_gib": 80.0,
        "passes": passes,
        "timeline_note": "one micro batch",
        "step": [("compute", 3.0), ("bubble", 1.0)],
        "mesh": MESH,
        "traffic": [Traffic("tp", 4, "inside a node", 1.5, 0.25)],
    }
    return Contents(**{**values, **changes})  # type: ignore[arg-type]


def test_bars_are_to_scale_and_nothing_is_drawn_of_nothing() -> None:
    pixels = bars.scale([BAR], 80.0)
    assert pixels == bars.WIDTH / 80
    first, second = bars.pieces(BAR, pixels)
    assert (first.name, first.x, first.width) == ("weights", 0.0, 30 * pixels)
    assert (second.name, second.x, second.width) == ("activations", 30 * pixels, 10 * pixels)


def test_a_bar_over_the_limit_sets_the_scale() -> None:
    assert bars.scale([BAR], 10.0) == bars.WIDTH / 40


def test_time_runs_to_the_right_over_the_whole_width() -> None:
    first, second = gantt.boxes(contents().passes)  # type: ignore[arg-type]
    assert (first.x, first.y) == (0.0, 0.0)
    assert (second.x, second.y) == pytest.approx((gantt.WIDTH / 3, gantt.ROW + gantt.GAP))
    assert second.width == pytest.approx(2 * gantt.WIDTH / 3, abs=1.0)


def test_a_rank_is_its_coordinates_tp_first() -> None:
    # rank = tp + 4 (cp + 2 (dp + 4 pp))
    assert coordinates(3 + 4 * (1 + 2 * (2 + 4 * 1)), MESH) == (3, 1, 2, 1)


def test_groups_of_rank_zero_have_the_sizes_of_the_layout() -> None:
    found = [groups_with_first(rank, MESH) for rank in range(MESH.world)]
    sizes = {name: 1 + sum(name in groups for groups in found) for name in ("tp", "cp", "dp", "pp", "ep")}
    assert sizes == {"tp": 4, "cp": 2, "dp": 4, "pp": 2, "ep": 8}


def test_what_is_too_much_to_draw_is_said() -> None:
    big = Mesh(world=16384, nodes=2048, devices_per_node=8, tp=8, pp=32, vpp=1, cp=1, ep=1, etp=1, dp_replicate=1, dp_shard=64, dp=64)
    found = neighbourhood(big)
    assert (found.rows, found.columns) == (16, 64)
    assert found.left_out == "16 more stages and 448 more ranks of each stage"
    assert neighbourhood(MESH).left_out == ""


class Elements(HTMLParser):
    """Every element's name and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_else_and_has_every_picture() -> None:
    found = Elements(render_page(contents()))
    assert found.links == []
    assert not {"script", "link", "img", "iframe"} & set(found.names)
    assert found.names.count("svg") == 4


def test_names_of_the_user_are_escaped() -> None:
    text = render_page(contents(title="<script>alert(1)</script>", notes=["a & b"]))
    assert "<script>" not in text
    assert "a &amp; b" in text


def test_what_is_not_known_is_left_out() -> None:
    found = Elements(render_page(contents(memory=[], passes=[], step=[], mesh=None, traffic=[], device_gib=None)))
    assert "svg" not in found.names
