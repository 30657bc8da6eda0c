"""A template stored in other ways, and templates that render something else; jinja2 is the oracle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jinja2
import jinja2.ext
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagleconv.errors import SourceError
from eagleconv.target.chat_template import TemplatePrint, compare_templates, read_templates
from eagleconv.target.files import GivenFiles
from eagleconv.target.template_form import TEXT, NotJinja, Piece, pieces

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\\n" }}
{%- endif %}
{# one message after the other #}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- else %}
        {{- '<|im_start|>' ~ message['role'] ~ '\\n' }}{% generation %}{{ message.content }}{% endgeneration %}<|im_end|>
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
HEADERS = """\
{% set loop_messages = messages %}
{% for message in loop_messages %}
{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' %}
  {% if loop.index0 == 0 %}
{{ bos_token }}
  {% endif %}
{{ content }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""
BRACKETS = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + "
    "' [/INST]' }}{% else %}{{ ' ' + m['content'] + eos_token}}{% endif %}{% endfor %}"
)
RAW = (
    "a {% raw %}{{ not a tag }}{% endraw %}\n b {#- gone -#} c\n  {%+ if true %}x\n{% endif +%}\n\n"
)
ODD = "{{ {'a': {'b': [1, 0x1F, 1_000, 1.5e3, 0.5]}}['a'].b | length }}{{ \"it's\" }}{% if 1 <= 2 != 3 %}}}{% endif %}"
TEMPLATES = {
    "chatml": CHATML,
    "headers": HEADERS,
    "brackets": BRACKETS,
    "raw": RAW,
    "odd": ODD,
    "plain": "no tag\n",
    "empty": "",
}
MESSAGES: tuple[list[dict[str, str]], ...] = (
    [{"role": "user", "content": "hi"}],
    [
        {"role": "system", "content": "be brief\n"},
        {"role": "user", "content": " two\n\nlines "},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "{{ no tag }}"},
    ],
)


class Generation(jinja2.ext.Extension):
    """`{% generation %}` as transformers has it: what is inside, and nothing else."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        number = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=number)


def environment() -> jinja2.Environment:
    return jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )


def of_jinja(template: str) -> list[Piece]:
    """Return the pieces that jinja2's own lexer finds."""
    out: list[Piece] = []
    tag: list[str] | None = None
    env = environment()
    # What the tokens stand for, as the parser sees it.
    for token in env.lexer.tokenize(template):
        kind, value = token.type, token.value
        if kind == "data":
            if out and out[-1][0] == TEXT:
                out[-1] = (TEXT, out[-1][1] + value)
            elif value:
                out.append((TEXT, value))
        elif kind in ("block_begin", "variable_begin"):
            tag = ["{%" if kind == "block_begin" else "{{"]
        elif kind in ("block_end", "variable_end"):
            assert tag is not None
            out.append(tuple(tag))
        else:
            assert tag is not None
            tag.append(repr(value) if kind == "string" else str(value))
    return out


def numbers(parts: list[Piece] | tuple[Piece, ...]) -> list[Piece]:
    """Return pieces with numbers as jinja2 reads them."""

    def number(text: str) -> str:
        try:
            whole = text.startswith("0x") or not set(text) & set(".e")
            return str(int(text, 0) if whole else float(text))
        except ValueError:
            return text

    return [p if p[0] == TEXT else (p[0], *map(number, p[1:])) for p in parts]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_pieces_are_those_of_jinja2(name: str) -> None:
    assert numbers(pieces(TEMPLATES[name])) == numbers(of_jinja(TEMPLATES[name]))


def written(parts: tuple[Piece, ...]) -> str:
    """Write pieces as a template again, with nothing for jinja2 to trim."""
    out = []
    for part in parts:
        if part[0] == TEXT:
            out.append("{{ " + repr(part[1]) + " }}")
        else:
            close = "+%}" if part[0] == "{%" else "}}"
            out.append(" ".join([part[0], *part[1:], close]))
    return "".join(out)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("prompt", [True, False])
def test_the_pieces_render_as_the_template(
    name: str, messages: list[dict[str, str]], prompt: bool
) -> None:
    values = {
        "messages": messages,
        "tools": [{"name": "f"}] if prompt else None,
        "add_generation_prompt": prompt,
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    before = environment().from_string(TEMPLATES[name]).render(**values)
    after = environment().from_string(written(pieces(TEMPLATES[name]))).render(**values)
    assert after == before


TAGS = ("{% if x %}", "{%- if x %}", "{% endif -%}", "{{ x }}", "{{- x -}}", "{#- c #}", "{# c -#}",
        "{%+ if x %}", "{% endif +%}", "{% raw %} {{ {%- endraw %}", "{% raw -%}\n a{% endraw %}\n")  # fmt: skip
TEXTS = ("", " ", "\n", "a", "\n  ", "  \n", " b \n\n", "\r\n\t", "}}", "%}", "#}", "\n\n\n")


@given(st.lists(st.one_of(st.sampled_from(TAGS), st.sampled_from(TEXTS)), max_size=12))
@settings(deadline=None, max_examples=500)
def test_trimming_is_that_of_jinja2(parts: list[str]) -> None:
    template = "".join(parts)
    assert list(pieces(template)) == of_jinja(template)


@pytest.mark.parametrize("template", ["{#", "a {#", "a\n{% raw %}", "{% raw -%}", "{#-"])
def test_what_begins_at_the_very_end(template: str) -> None:
    try:
        environment().parse(template)
    except jinja2.TemplateSyntaxError:
        with pytest.raises(NotJinja):
            pieces(template)
        return
    assert list(pieces(template)) == of_jinja(template)


@given(st.text(alphabet="{}%#-+ '\"\\\nab1._|()[]rawend", max_size=40))
@settings(deadline=None, max_examples=3000)
def test_any_text_is_read_as_jinja2_reads_it_or_refused(template: str) -> None:
    try:
        environment().parse(template)
    except jinja2.TemplateSyntaxError:
        return  # what we make of it does not matter: it cannot be rendered
    assert numbers(pieces(template)) == numbers(of_jinja(template))


def of(files: Mapping[str, Any]) -> TemplatePrint | None:
    def get(name: str) -> bytes:
        content = files[name]
        return (content if isinstance(content, str) else json.dumps(content)).encode()

    return read_templates(GivenFiles("t", files, get))


def one(template: str) -> TemplatePrint:
    found = of({"chat_template.jinja": template})
    assert found is not None
    return found


def test_storage_changes_nothing() -> None:
    before = one(CHATML)
    spaced = CHATML.replace("{{- ", "{{-   ").replace(" }}", "\n}}").replace("\n", "\r\n")
    quoted = CHATML.replace("'<|im_start|>'", '"<|im_start|>"').replace(" == ", "==")
    plain = CHATML.replace("{# one message after the other #}\n", "")
    for other in (spaced, quoted, plain, CHATML + "\n"):
        assert other != CHATML
        assert one(other).digest == before.digest, other
    for files in (
        {"tokenizer_config.json": {"chat_template": CHATML}},
        {"tokenizer_config.json": {"chat_template": [{"name": "default", "template": CHATML}]}},
        {"chat_template.json": {"chat_template": CHATML}},
        {"chat_template.jinja": CHATML, "tokenizer_config.json": {"chat_template": "other"}},
    ):
        assert of(files) == before


@pytest.mark.parametrize(
    "change",
    [
        ("<|im_start|>system", "<|start|>system"),
        ("<|im_end|>\n    {%- endif", "<|im_end|>\n\n    {% endif"),
        ('message.role == "user"', 'message.role == "human"'),
        ("'\\n\\n'", "'\\n'"),
        ("not loop.first", "loop.first"),
        ("{%- for tool in", "{% for tool in"),
    ],
)
def test_what_is_rendered_changes_the_digest(change: tuple[str, str]) -> None:
    assert change[0] in CHATML
    other = one(CHATML.replace(*change))
    assert other.digest != one(CHATML).digest
    (sentence,) = compare_templates(one(CHATML), other)
    assert sentence.startswith("the template differs first in piece ")


def test_the_difference_is_shown() -> None:
    (sentence,) = compare_templates(one("{{ a }}b{{ c }}"), one("{{ a }}B{{ c }}"))
    assert sentence == "the template differs first in piece 2: 'B', recorded 'b'"
    (sentence,) = compare_templates(one("{{ a }}b"), one("{{ a }}"))
    assert sentence == "the template differs first in piece 2: its end, recorded 'b'"


def test_several_templates() -> None:
    files: dict[str, Any] = {
        "chat_template.jinja": "a",
        "additional_chat_templates/tool_use.jinja": "b",
    }
    before = of(files)
    assert before is not None
    assert set(before.templates) == {"default", "tool_use"}
    listed = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    assert of({"tokenizer_config.json": {"chat_template": listed}}) == before
    assert TemplatePrint.from_json(json.loads(json.dumps(before.as_json()))) == before
    assert compare_templates(before, one("a")) == ("the template 'tool_use' is gone",)
    assert compare_templates(one("a"), before) == ("the template 'tool_use' is new",)


def test_none_and_broken() -> None:
    assert of({"config.json": {}}) is None
    assert of({"tokenizer_config.json": {"bos_token": "x"}}) is None
    for value in (3, [{"name": 1}], {"default": None}):
        with pytest.raises(SourceError, match="neither a text nor a list"):
            of({"tokenizer_config.json": {"chat_template": value}})
    with pytest.raises(SourceError, match="not valid JSON"):
        of({"tokenizer_config.json": "{"})


def test_what_is_no_template_is_taken_as_it_is() -> None:
    with pytest.raises(NotJinja):
        pieces("{{ a ")
    assert one("{{ a ").digest != one("{{ b ").digest
    assert one("{{ a ").digest == one("{{ a ").digest
