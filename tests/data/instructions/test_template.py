"""What a chat template writes is what transformers writes, and what of it is learnt is the responses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from primus_app.config.errors import UserError
from primus_app.config.schema import DataConfig
from primus_app.data.instructions.build import learned_tokens
from primus_app.data.instructions.conversation import Mistake
from primus_app.data.instructions.find_template import PLAIN_TEMPLATE, chosen_template, open_template
from primus_app.data.instructions.template import ChatTemplate
from primus_app.data.tokenizer import open_tokenizer
from tests.data.instructions.conftest import CHATML, Tune

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is the answer, größer 🦊?"},
    {"role": "assistant", "content": "The answer is é 42."},
    {"role": "user", "content": "assistant"},
    {"role": "assistant", "content": "i"},
]
TRIMMED = [*CHAT[:2], {"role": "assistant", "content": "  spaces around \n"}]

INST = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content | trim }} {{ eos_token }}"
    "{% elif m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]{% endif %}{% endfor %}"
)
GENERATION = (
    "{%- for m in messages %}\n    {%- if m.role == 'assistant' %}\n<|im_start|>assistant\n{% generation %}{{ m.content }}<|im_end|>"
    "{% endgeneration %}\n    {%- else %}\n<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n    {%- endif %}\n{%- endfor %}\n"
)
THINKING = (
    "{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}"
    "{%- endfor %}{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}{%- if m.role == 'assistant' and loop.index0 > ns.last %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{{- m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""The habit of Qwen3's: an empty thought before the last response alone."""
FORCED = CHATML.replace("<|im_start|>assistant\\n", "<|im_start|>assistant\\n<think>\\n")
"""The habit of reasoning models: the generation prompt opens a thought that a finished conversation does not have."""
LOOPS = (
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{{ m.role }}={{ m.content | tojson }}{{ eos_token }}{% endfor %}"
)


def transformers_of(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(folder)


def ours(folder: Path, messages: list[dict[str, str]]) -> tuple[str, list[int], list[str]]:
    """Text, ids, and the learnt parts of the text."""
    data = DataConfig(source="instructions", tokenizer=str(folder))
    tokenizer = open_tokenizer(str(folder))
    found = open_template(data, tokenizer).render(messages)
    ((ids, _),) = tokenizer.encode_with_offsets([found.text])
    return found.text, ids.tolist(), [found.text[begin:end] for begin, end in found.spans]


CASES = {
    "chatml": (CHATML, CHAT, ["The answer is é 42.<|im_end|>", "i<|im_end|>"]),
    "inst": (INST, CHAT[1:], [" The answer is é 42. <|im_end|>", " i <|im_end|>"]),
    "trimmed": (INST, TRIMMED[1:], [" spaces around <|im_end|>"]),
    "generation": (GENERATION, CHAT, ["The answer is é 42.<|im_end|>", "i<|im_end|>"]),
    "thinking": (THINKING, CHAT, ["The answer is é 42.<|im_end|>", "<think>\n\n</think>\n\ni<|im_end|>"]),
    "forced": (FORCED, CHAT, ["The answer is é 42.<|im_end|>", "i<|im_end|>"]),
    "plain": (PLAIN_TEMPLATE, CHAT, ["The answer is é 42.<|im_end|>", "i<|im_end|>"]),
}


@pytest.mark.parametrize("case", CASES)
def test_text_and_tokens_are_those_of_transformers_and_the_responses_are_learnt(tokenizer_folder: Tune, case: str) -> None:
    template, messages, learnt = CASES[case]
    folder = tokenizer_folder(template)
    text, ids, spans = ours(folder, messages)
    theirs = transformers_of(folder)
    assert text == theirs.apply_chat_template(messages, tokenize=False)
    assert ids == theirs.apply_chat_template(messages, return_dict=True)["input_ids"]
    assert spans == learnt


def test_filters_and_loop_controls_of_transformers(tokenizer_folder: Tune) -> None:
    """This template has no generation prompt, so all that follows the user's turn is the model's to say."""
    folder, chat = tokenizer_folder(LOOPS), [*CHAT[:2], {"role": "assistant", "content": 'quoted "<x>" é'}]
    text, _, spans = ours(folder, chat)
    assert text == transformers_of(folder).apply_chat_template(chat, tokenize=False)
    assert spans == ['assistant="quoted \\"<x>\\" é"<|im_end|>']


def test_the_mask_is_that_of_transformers(tokenizer_folder: Tune) -> None:
    """Of those templates whose mask transformers can give: with generation blocks."""
    folder = tokenizer_folder(GENERATION)
    theirs = transformers_of(folder).apply_chat_template(CHAT, return_dict=True, return_assistant_tokens_mask=True)
    tokenizer = open_tokenizer(str(folder))
    found = open_template(DataConfig(source="instructions", tokenizer=str(folder)), tokenizer).render(CHAT)
    ((_, offsets),) = tokenizer.encode_with_offsets([found.text])
    assert learned_tokens(offsets, found.spans).tolist() == theirs["assistant_masks"]


def test_a_token_over_the_border_is_learnt() -> None:
    offsets = np.array([[0, 2], [2, 5], [5, 5], [5, 6], [6, 9]])
    assert learned_tokens(offsets, [(3, 6)]).tolist() == [0, 1, 1, 1, 0], "one without characters, within"
    assert learned_tokens(offsets, [(0, 1), (8, 9)]).tolist() == [1, 0, 0, 0, 1]


def test_bytes_have_a_template_by_default() -> None:
    tokenizer = open_tokenizer("byte")
    found = open_template(DataConfig(source="instructions"), tokenizer).render([CHAT[1], CHAT[2]])
    assert found.text == "user:\nWhat is the answer, größer 🦊?\n\nassistant:\nThe answer is é 42.<|end|>\n\n"
    ((ids, offsets),) = tokenizer.encode_with_offsets([found.text])
    learnt = ids[learned_tokens(offsets, found.spans).astype(bool)].tolist()
    assert learnt == [*"The answer is é 42.".encode(), 256]
    rest = found.text.replace("<|end|>", "").encode()
    assert [token for token in ids.tolist() if token != 256] == list(rest)
    assert offsets[-1].tolist() == [len(found.text) - 1, len(found.text)]


def test_a_file_goes_before_the_tokenizers_own_and_a_choice_before_both(tokenizer_folder: Tune, tmp_path: Path) -> None:
    folder = tokenizer_folder([{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}])
    tokenizer = open_tokenizer(str(folder))

    def source(**data: Any) -> str:
        return open_template(DataConfig(source="instructions", tokenizer=str(folder), **data), tokenizer).source

    assert source() == CHATML
    (folder / "chat_template.jinja").write_text(INST)
    assert source() == INST
    (tmp_path / "mine.jinja").write_text(GENERATION)
    assert source(chat_template=str(tmp_path / "mine.jinja")) == GENERATION
    assert source(chat_template="plain") == PLAIN_TEMPLATE
    chosen = [
        chosen_template(DataConfig(source="instructions", chat_template=name)) for name in (str(tmp_path / "mine.jinja"), "plain", None)
    ]
    assert chosen == [GENERATION, PLAIN_TEMPLATE, PLAIN_TEMPLATE], "bytes have no other"
    assert chosen_template(DataConfig(source="instructions", tokenizer=str(folder))) is None
    assert chosen_template(DataConfig(source="text")) is None


def test_the_chosen_end_of_document_is_the_templates_too(tokenizer_folder: Tune) -> None:
    folder = tokenizer_folder(INST)
    tokenizer = open_tokenizer(str(folder), "<|endoftext|>")
    data = DataConfig(source="instructions", tokenizer=str(folder), end_of_document="<|endoftext|>")
    assert open_template(data, tokenizer).render(CHAT[1:3]).text.endswith("<|endoftext|>")


def test_no_template(tokenizer_folder: Tune) -> None:
    folder = tokenizer_folder(None)
    with pytest.raises(UserError, match=r"data.chat_template: .*has no chat template") as caught:
        open_template(DataConfig(source="instructions", tokenizer=str(folder)), open_tokenizer(str(folder)))
    assert "data.chat_template=plain" in str(caught.value)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{% for m in messages %}", "mine: line 1: is no chat template that jinja reads"),
        ("{{ messages | nonsense }}", "mine: line 1: is no chat template that jinja reads: No filter named 'nonsense'"),
    ],
)
def test_a_broken_template(template: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        ChatTemplate(template, {}, "mine")


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses it: roles must alternate"),
        ("{{ messages[0].content + 1 }}", "fails on it"),
        ("{{ strftime_now('%Y') }}", "refuses it: 'strftime_now' is undefined"),
        ("{{ messages[-1].role }}", "does not write the text of message 4 as it is|does not write the text of message 2 as it is"),
        ("{% generation %}{% endgeneration %}", "marks nothing"),
        ("{{ messages.append(1) }}", "refuses it"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "refuses it"),
    ],
)
def test_a_template_that_does_not_fit(template: str, told: str) -> None:
    with pytest.raises(Mistake, match=told) as caught:
        ChatTemplate(template, {}, "mine").render(CHAT)
    assert caught.value.fix
