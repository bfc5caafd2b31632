"""Fine-tuning is asked for as a whole: stage, weights and responses; and where attention stops."""

import pytest

from primus_app.config.compose import Request
from primus_app.config.load import load_config
from primus_app.plan.stage_rules import check_stage, stops_at_borders

POST, WEIGHTS, CHATS = "training.stage=post", "checkpoint.load=/weights", ("data=instructions", "data.path=/chats")


@pytest.mark.parametrize(
    ("overrides", "wheres"),
    [
        ((), []),
        ((WEIGHTS,), []),
        ((POST, WEIGHTS, *CHATS), []),
        ((POST, *CHATS), ["training.stage"]),
        ((POST, WEIGHTS), ["training.stage"]),
        ((POST,), ["training.stage", "training.stage"]),
        (CHATS, ["data.source"]),
        ((POST, WEIGHTS, *CHATS, "training.document_mask=true"), ["training.document_mask"]),
    ],
)
def test_stage_weights_and_responses_go_together(overrides: tuple[str, ...], wheres: list[str]) -> None:
    problems = check_stage(load_config(Request(overrides), hardware="cpu"))
    assert [problem.where for problem in problems] == wheres
    assert all(problem.fix and problem.what.endswith(".") for problem in problems)


@pytest.mark.parametrize(
    ("overrides", "stops"),
    [
        ((), False),
        (("training.document_mask=true",), True),
        (CHATS, True),
        ((*CHATS, "data.packing=false"), False),
    ],
)
def test_attention_stops_where_documents_or_packed_examples_end(overrides: tuple[str, ...], stops: bool) -> None:
    assert stops_at_borders(load_config(Request(overrides), hardware="cpu")) == stops
