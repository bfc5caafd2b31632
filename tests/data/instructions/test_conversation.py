"""A record as a conversation, and each thing that can be wrong with one."""

from typing import Any

import pytest

from primus_app.data.instructions.conversation import Fields, Mistake, conversation

FIELDS = Fields("prompt", "response", "messages")
ASKED, ANSWERED = {"role": "user", "content": "why?"}, {"role": "assistant", "content": "so."}


@pytest.mark.parametrize(
    ("record", "messages"),
    [
        ({"prompt": "why?", "response": "so."}, [ASKED, ANSWERED]),
        ({"prompt": "why?", "response": "so.", "id": 7, "messages": None}, [ASKED, ANSWERED]),
        ({"messages": [ASKED, ANSWERED]}, [ASKED, ANSWERED]),
        ({"prompt": "why?", "messages": [ASKED, ANSWERED, ASKED]}, [ASKED, ANSWERED, ASKED]),
        ({"messages": [{**ASKED, "name": "ada", "tool_calls": None}, ANSWERED]}, [{**ASKED, "name": "ada"}, ANSWERED]),
        ({"prompt": "", "response": "so."}, [{**ASKED, "content": ""}, ANSWERED]),
    ],
)
def test_both_forms(record: dict[str, Any], messages: list[dict[str, str]]) -> None:
    assert conversation(record, FIELDS) == messages


def test_other_field_names() -> None:
    assert conversation({"instruction": "why?", "output": "so."}, Fields("instruction", "output", "messages")) == [ASKED, ANSWERED]
    assert conversation({"chat": [ASKED, ANSWERED]}, Fields("prompt", "response", "chat")) == [ASKED, ANSWERED]


MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no form": ({"question": "why?"}, "has neither 'messages' (data.messages_key) nor 'prompt' (data.prompt_key)", "it has 'question'"),
    "no field": ({}, "has neither 'messages'", "it has no field at all"),
    "no response": ({"prompt": "why?", "responses": "so."}, "has no field 'response' (data.response_key)", "data.response_key=responses"),
    "half a pair": ({"prompt": "why?"}, "has no field 'response' (data.response_key)", "leave it out"),
    "no prompt": ({"question": "why?", "response": "so."}, "has no field 'prompt' (data.prompt_key)", "data.prompt_key="),
    "null": ({"prompt": "why?", "response": None}, "field 'response' is null, not text", "leave it out"),
    "number": ({"prompt": 7, "response": "so."}, "field 'prompt' is 7, not text", "leave it out"),
    "empty response": ({"prompt": "why?", "response": " \n"}, "field 'response' is empty", "leave it out"),
    "half a character": ({"prompt": "\ud83d", "response": "so."}, "field 'prompt' has half of a surrogate pair", "UTF-8"),
    "noncharacter": ({"prompt": "\ufdd2", "response": "so."}, "field 'prompt' has U+FDD2", "take it out"),
    "no messages": ({"messages": []}, "field 'messages' is an empty list", '"role": "assistant"'),
    "text": ({"messages": "why?"}, "field 'messages' is \"why?\", no list of messages", '"role": "assistant"'),
    "list of text": ({"messages": ["why?"]}, "no list of messages", '"role": "assistant"'),
    "no role": ({"messages": [{"content": "why?"}, ANSWERED]}, "message 0 has no 'role'; it has 'content'", "a message looks like"),
    "other format": (
        {"messages": [{"from": "human", "value": "why?"}]},
        "message 0 has no 'role' and no 'content'",
        "a message looks like",
    ),
    "gpt": ({"messages": [ASKED, {"role": "gpt", "content": "so."}]}, 'message 1 has the unknown role "gpt"', "did you mean 'assistant'?"),
    "misspelt": ({"messages": [{"role": "asistant", "content": "so."}]}, 'unknown role "asistant"', "did you mean 'assistant'?"),
    "content": (
        {"messages": [ASKED, {"role": "assistant", "content": ["so."]}]},
        'of the assistant, is ["so."], not text',
        "text",
    ),
    "empty turn": ({"messages": [ASKED, {"role": "assistant", "content": ""}]}, "message 1, of the assistant, is empty", "leave"),
    "nothing to learn": ({"messages": [ASKED]}, "has no message of the assistant", "leave it out"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_wrong_and_what_to_do(name: str) -> None:
    record, what, fix = MISTAKES[name]
    with pytest.raises(Mistake) as caught:
        conversation(record, FIELDS)
    assert what in str(caught.value)
    assert str(caught.value).endswith(".")
    assert any(fix in line for line in caught.value.fix), caught.value.fix
