"""A record as a conversation: messages of known roles with a response to learn from, or what is wrong with it."""

import json
import re
from dataclasses import dataclass
from typing import Any

from primus_app.config.suggest import nearest
from primus_app.data.text.documents import is_unicode

ROLES = ("system", "developer", "user", "assistant", "tool")
OTHER_WORDS = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant", "prompt": "user", "function": "tool"}
"""How other corpora call these roles."""

NONCHARACTERS = re.compile("[\ufdd0-\ufdef]")
"""Code points that Unicode keeps out of text; templates are read with their help."""

Message = dict[str, Any]
"""``role`` and ``content``, and what else the file gives, for templates that ask for it."""


class Mistake(ValueError):  # noqa: N818 — a user's mistake, not the program's
    """What is wrong with a record; ``fix`` says what to do."""

    def __init__(self, what: str, *fix: str) -> None:
        super().__init__(what)
        self.fix = fix


@dataclass(frozen=True)
class Fields:
    """The fields that hold a prompt and its response, or the messages of a whole conversation."""

    prompt: str
    response: str
    messages: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.prompt, self.response, self.messages


def conversation(values: dict[str, Any], fields: Fields) -> list[Message]:
    """The messages of a record; where it has both forms, those of ``fields.messages``.

    Raises:
        Mistake: a field is missing or of the wrong kind, a role is unknown, a response is empty or there is none.
    """
    if values.get(fields.messages) is not None:
        return _messages(values[fields.messages], fields.messages)
    if fields.prompt not in values and fields.response not in values:
        raise _no_field(values, fields)
    prompt = _text(values, fields.prompt, "data.prompt_key", fields)
    response = _text(values, fields.response, "data.response_key", fields)
    if not response.strip():
        raise Mistake(f"field {fields.response!r} is empty, so there is nothing to learn.", "leave it out, or write the response")
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


def _no_field(values: dict[str, Any], fields: Fields) -> Mistake:
    what = f"has neither {fields.messages!r} (data.messages_key) nor {fields.prompt!r} (data.prompt_key)."
    has = f"it has {', '.join(map(repr, list(values)[:6]))}" if values else "it has no field at all"
    return Mistake(what, has, "data.prompt_key=… with data.response_key=…, or data.messages_key=…, says which fields are meant")


def _text(values: dict[str, Any], name: str, key: str, fields: Fields) -> str:
    if name not in values:
        others = [field for field, value in values.items() if isinstance(value, str) and field not in fields.names]
        near = nearest(name, others, count=1, cutoff=0.6) or others[:3]
        advice = tuple(f"{key}={field} names a field that it has" for field in near)
        raise Mistake(f"has no field {name!r} ({key}).", *(advice or ("leave it out",)))
    return _checked(values[name], f"field {name!r}")


def _messages(found: Any, name: str) -> list[Message]:
    if not isinstance(found, list) or not found or not all(isinstance(message, dict) for message in found):
        what = "an empty list" if found == [] else f"{_short(found)}, no list of messages"
        raise Mistake(
            f"field {name!r} is {what}.", 'it looks like [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]'
        )
    messages = [_message(message, number) for number, message in enumerate(found)]
    if all(message["role"] != "assistant" for message in messages):
        raise Mistake("has no message of the assistant, so there is nothing to learn.", "leave it out, or write the response")
    return messages


def _message(found: Message, number: int) -> Message:
    # Parquet gives a field that only some messages have as null to all.
    message = {key: value for key, value in found.items() if value is not None or key in ("role", "content")}
    if missing := [key for key in ("role", "content") if key not in message]:
        wrong = f"message {number} has no {' and no '.join(map(repr, missing))}; it has {', '.join(map(repr, message)) or 'nothing'}."
        raise Mistake(wrong, 'a message looks like {"role": "user", "content": "…"}')
    role = message["role"]
    if role not in ROLES:
        word = str(role).lower()
        near = [OTHER_WORDS[word]] if word in OTHER_WORDS else nearest(word, ROLES, count=1)
        advice = [f"did you mean {one!r}?" for one in near]
        raise Mistake(f"message {number} has the unknown role {_short(role)}.", *advice, f"known are {', '.join(ROLES)}")
    content = _checked(message["content"], f"message {number}, of the {role},")
    if role == "assistant" and not content.strip():
        raise Mistake(f"message {number}, of the assistant, is empty, so there is nothing to learn.", "leave the conversation out")
    return message


def _checked(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Mistake(f"{where} is {_short(value)}, not text.", "write it as text, or leave it out")
    if not is_unicode(value):
        raise Mistake(f"{where} has half of a surrogate pair, which is no character.", "write it again from text that is UTF-8")
    if found := NONCHARACTERS.search(value):
        raise Mistake(f"{where} has U+{ord(found[0]):04X}, which is no character.", "take it out")
    return value


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:40]
