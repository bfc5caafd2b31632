"""How a conversation is written as text: the chat template of a tokenizer, and which characters of it are responses.

The contract of templates is that of transformers' apply_chat_template: https://huggingface.co/docs/transformers/chat_templating.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from primus_app.config.errors import Problem, UserError
from primus_app.data.instructions.conversation import Message, Mistake

BEGIN, END, PROBE = "\ufdd0", "\ufdd1", "\ufdd2"
"""Characters that Unicode keeps free of meaning: the borders of what a template marks as generated, and a stand-in for a response."""

GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
ADVICE = "mark what the assistant says by {% generation %} … {% endgeneration %} in the template"


@dataclass(frozen=True)
class Rendered:
    """The text of a conversation, and the first and the end character of each part that is learnt."""

    text: str
    spans: tuple[tuple[int, int], ...]


class ChatTemplate:
    """Writes conversations. ``tokens`` are the special tokens that it may name, as eos_token; ``where`` is where it comes from."""

    def __init__(self, source: str, tokens: dict[str, str], where: str) -> None:
        self.source, self.tokens = source, tokens
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        environment.filters["tojson"] = _tojson
        # No strftime_now, which transformers has: the tokens would change from day to day, and a run could not be continued.
        environment.globals["raise_exception"] = _raise
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            what = f"line {error.lineno}: is no chat template that jinja reads: {error.message}."
            raise UserError(Problem(where, what, ("copy it again",))) from error
        self._marks = GENERATION.search(source) is not None

    def render(self, messages: list[Message]) -> Rendered:
        """The whole conversation, no generation prompt behind it.

        What is learnt of it is what the template marks by generation blocks; without any, each response with what follows the prompt
        before it and with the text that ends its turn, without white space behind that.

        Raises:
            Mistake: the template refuses the conversation, or does not say where its responses are.
        """
        marked = self._text(messages)
        if self._marks:
            return _without_marks(marked)
        turns = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
        return Rendered(marked, tuple(self._span(marked, messages, number) for number in turns))

    def _text(self, messages: list[Message], *, prompts: bool = False) -> str:
        try:
            return self._template.render(messages=messages, add_generation_prompt=prompts, tools=None, documents=None, **self.tokens)
        except TemplateError as error:
            raise Mistake(f"the chat template refuses it: {error}.", "write it as the model's template wants it") from error
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            raise Mistake(f"the chat template fails on it: {error}.", "write it as the model's template wants it") from error

    def _span(self, text: str, messages: list[Message], number: int) -> tuple[int, int]:
        """The response of message ``number`` in ``text``, and what ends its turn."""
        begin, end, after = self._content(text, messages, number)
        before = self._text(messages[:number], prompts=True)
        if text.startswith(before) and len(before) <= begin:
            begin = len(before)  # Also what the template adds before the response, as an empty thought.
        tail = after.rstrip() or after
        if not text.startswith(tail, end):
            raise Mistake(f"the chat template writes message {number} in another way with what follows than without.", ADVICE)
        return begin, end + len(tail)

    def _content(self, text: str, messages: list[Message], number: int) -> tuple[int, int, str]:
        """Where the content of message ``number`` lies in ``text``, and what follows it where nothing more is said."""
        probe = {**messages[number], "content": PROBE}
        left, found, right = self._text([*messages[:number], probe, *messages[number + 1 :]]).partition(PROBE)
        if not found or not text.startswith(left) or not text.endswith(right) or len(left) + len(right) >= len(text):
            raise Mistake(f"the chat template does not write the text of message {number} as it is.", ADVICE)
        last = number + 1 == len(messages)
        after = right if last else self._text([*messages[:number], probe]).partition(PROBE)[2]
        return len(left), len(text) - len(right), after


def _without_marks(marked: str) -> Rendered:
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    length = 0
    for number, part in enumerate(re.split(f"[{BEGIN}{END}]", marked)):
        if number % 2 and part:
            spans.append((length, length + len(part)))
        parts.append(part)
        length += len(part)
    if not spans:
        raise Mistake("the chat template marks nothing of it as generated.", "leave it out, or mend the template's generation blocks")
    return Rendered("".join(parts), tuple(spans))


class _Generation(Extension):
    """{% generation %} … {% endgeneration %}: its content between BEGIN and END."""

    tags = {"generation"}  # noqa: RUF012 — jinja's own form

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Macro) -> str:
        return f"{BEGIN}{caller()}{END}"


def _raise(message: str) -> None:
    raise TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    """jinja's own escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
