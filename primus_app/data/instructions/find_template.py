"""Where a tokenizer's chat template is found, and the simple one of ours."""

from pathlib import Path

from primus_app.config.errors import Problem, UserError
from primus_app.config.schema import DataConfig
from primus_app.data.huggingface_tokenizer import settings_beside, token_text
from primus_app.data.instructions.template import ChatTemplate
from primus_app.data.tokenizer import Tokenizer
from primus_app.plan.data_files import BYTE, PLAIN, absolute, tokenizer_file

PLAIN_TEMPLATE = """\
{% for message in messages %}
{{ message.role }}:
{{ message.content }}{{ eos_token if message.role == 'assistant' else '' }}

{% endfor %}
{% if add_generation_prompt %}
assistant:
{% endif %}
"""
"""Each message under its role; the tokenizer's end of document ends a response."""

FILE = "chat_template.jinja"
SETTINGS = "tokenizer_config.json"


def open_template(data: DataConfig, tokenizer: Tokenizer) -> ChatTemplate:
    """``data.chat_template``, else the one beside ``tokenizer``: chat_template.jinja before the chat_template of tokenizer_config.json.

    Raises:
        UserError: there is none, it cannot be read, or is no template.
    """
    tokens = {"eos_token": tokenizer.end_token}
    if data.tokenizer != BYTE:
        tokens = _special_tokens(data, tokens)
    if (chosen := chosen_template(data)) is not None:
        return ChatTemplate(chosen, tokens, data.chat_template or PLAIN)
    return _beside(tokenizer_file(data.tokenizer), tokens)


def chosen_template(data: DataConfig) -> str | None:
    """The source of the template that ``data`` names, or has for want of a tokenizer's files; None where the tokenizer's own counts."""
    if data.source != "instructions":
        return None
    chosen = data.chat_template or (PLAIN if data.tokenizer == BYTE else None)
    return PLAIN_TEMPLATE if chosen == PLAIN else _read(Path(absolute(chosen))) if chosen is not None else None


def _special_tokens(data: DataConfig, tokens: dict[str, str]) -> dict[str, str]:
    """The special tokens that the tokenizer's files name; a chosen end of document is the one of templates too."""
    found = dict(tokens)
    for _, values in settings_beside(tokenizer_file(data.tokenizer)):
        named = {name: text for name, value in values.items() if name.endswith("_token") and (text := token_text(value)) is not None}
        found = named | found if data.end_of_document is not None else {**found, **named}
    return found


def _beside(file: Path, tokens: dict[str, str]) -> ChatTemplate:
    if (file.parent / FILE).exists():
        return ChatTemplate(_read(file.parent / FILE), tokens, str(file.parent / FILE))
    for name, values in settings_beside(file):
        template = values.get("chat_template") if name == SETTINGS else None
        if isinstance(template, list):  # Several by name, as some tokenizers have one for tools.
            template = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}.get("default")
        if isinstance(template, str):
            return ChatTemplate(template, tokens, str(file.parent / name))
    what = f"{file} has no chat template: beside it lie neither {FILE} nor a {SETTINGS} with a chat_template."
    fix = ("data.chat_template=FILE reads one in jinja", f"data.chat_template={PLAIN} is a simple one of ours")
    raise UserError(Problem("data.chat_template", what, fix))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(Problem(str(file), f"cannot be read: {reason}.", (f"data.chat_template={PLAIN} needs no file",))) from error
