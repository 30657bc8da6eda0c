"""Prompts to measure acceptance on: a built-in set, and files in the forms of known benchmarks."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eagleconv.errors import SourceError

_BUILT_IN = os.path.join(os.path.dirname(__file__), "prompts.jsonl")
BUILT_IN = "built-in"
Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation to be continued.

    Attributes:
        id: Of the prompt in its file.
        category: As its file says; empty where it says none.
        messages: `role` and `content`; the last one is the user's.
    """

    id: str
    category: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts and where they come from.

    Attributes:
        name: `built-in`, or the file's name.
        prompts: In the order in which they are run: one of each category in turn.
        digest: sha256 of their messages.
    """

    name: str
    prompts: tuple[Prompt, ...]
    digest: str


def load_prompts(path: str | None = None, limit: int | None = None) -> PromptSet:
    """Read prompts.

    Args:
        path: A file: JSON lines or a JSON list with `turns` (MT-Bench, Spec-Bench, SPEED-Bench),
            `messages` (OpenAI) or `prompt`, or plain text with a prompt on each line. The
            built-in set where None.
        limit: How many, at most.

    Raises:
        SourceError: It cannot be read, or an entry has none of these forms.
    """
    name = path or _BUILT_IN
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise SourceError(f"prompts {name} cannot be read: {why}") from None
    prompts = _interleaved(_parse(text, name))
    if not prompts:
        raise SourceError(f"prompts {name}: there is none in it")
    chosen = tuple(prompts[:limit])
    said = json.dumps([list(p.messages) for p in chosen], sort_keys=True, ensure_ascii=True)
    digest = hashlib.sha256(said.encode()).hexdigest()
    return PromptSet(os.path.basename(path) if path else BUILT_IN, chosen, digest)


def _parse(text: str, name: str) -> list[Prompt]:
    start = text.lstrip("\ufeff \t\r\n")[:1]
    if start == "[":
        try:
            entries = list(enumerate(json.loads(text.lstrip("\ufeff")), 1))
        except ValueError as error:
            raise SourceError(f"prompts {name}: not valid JSON: {error}") from None
        return [_prompt(entry, f"{name}, entry {number}", number) for number, entry in entries]
    lines = [
        (n, line) for n, line in enumerate(text.lstrip("\ufeff").splitlines(), 1) if line.strip()
    ]
    if start != "{":
        return [
            Prompt(str(n), "", ({"role": "user", "content": line.strip()},)) for n, line in lines
        ]
    found = []
    for number, line in lines:
        where = f"{name}, line {number}"
        try:
            found.append(_prompt(json.loads(line), where, number))
        except ValueError as error:
            raise SourceError(f"prompts {where}: not valid JSON: {error}") from None
    return found


def _prompt(entry: Any, where: str, number: int) -> Prompt:
    """Read one entry; of several turns, those before the last need answers and are left out.

    A second turn answers a reply that no file holds, so only the first one is a prompt.
    """
    if isinstance(entry, str):
        entry = {"prompt": entry}
    if isinstance(entry, dict):
        messages = _messages(entry)
        if messages is not None:
            given = (entry.get(k) for k in ("id", "question_id", "prompt_id"))
            name = next((str(v) for v in given if v is not None), str(number))
            return Prompt(name, str(entry.get("category") or ""), messages)
    raise SourceError(
        f"prompts {where}: neither `turns`, `messages` nor `prompt` with texts",
        "give JSON lines of MT-Bench's or OpenAI's form, or plain text, a prompt on each line",
    )


def _messages(entry: dict[str, Any]) -> tuple[Message, ...] | None:
    turns, messages = entry.get("turns"), entry.get("messages")
    if isinstance(turns, list) and turns and isinstance(turns[0], str):
        return ({"role": "user", "content": turns[0]},)
    if messages is None and isinstance(turns, list):
        messages = turns
    if isinstance(messages, list) and messages:
        if not all(
            isinstance(m, dict)
            and isinstance(m.get("role"), str)
            and isinstance(m.get("content"), str)
            for m in messages
        ):
            return None
        users = [i for i, m in enumerate(messages) if m["role"] == "user"]
        if not users:
            return None
        # What comes after the last question is the reference answer.
        kept = messages[: users[-1] + 1]
        return tuple({"role": m["role"], "content": m["content"]} for m in kept)
    if isinstance(entry.get("prompt"), str):
        return ({"role": "user", "content": entry["prompt"]},)
    return None


def _interleaved(prompts: Iterable[Prompt]) -> list[Prompt]:
    """Return one prompt of each category in turn, so that the first ones span them all."""
    by_category: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_category.setdefault(prompt.category, []).append(prompt)
    queues = list(by_category.values())
    longest = max(map(len, queues), default=0)
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]


def token_ids(tokenizer: Any, prompts: Sequence[Prompt], plain: bool) -> list[list[int]]:
    """Return each prompt as token ids, through the tokenizer's chat template.

    Args:
        tokenizer: Of transformers.
        prompts: The prompts.
        plain: Leave the template out, as for base models: the contents alone.

    Raises:
        SourceError: There is no template.
    """
    if not plain and not tokenizer.chat_template:
        raise SourceError(
            "the target has no chat template", "give --plain to measure on texts without one"
        )
    out = []
    for prompt in prompts:
        if plain:
            text = "\n\n".join(m["content"] for m in prompt.messages)
            out.append(list(tokenizer(text)["input_ids"]))
            continue
        text = tokenizer.apply_chat_template(
            list(prompt.messages), tokenize=False, add_generation_prompt=True
        )
        out.append(list(tokenizer(text, add_special_tokens=False)["input_ids"]))
    return out
