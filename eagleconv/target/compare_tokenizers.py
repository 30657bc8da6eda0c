"""Where two tokenizers differ: the first id, merge or component, in a sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from eagleconv.target.tokenizer import BLOCK, Listed, TokenizerPrint
from eagleconv.target.tokenizer_json import FLAGS, GAP


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """One difference.

    Attributes:
        part: `form`, `vocabulary`, `merges`, `added_tokens`, or a component.
        harmful: Whether a text that both know can come out as other ids.
        sentence: What differs, its first place by name.
    """

    part: str
    harmful: bool
    sentence: str


def compare_tokenizers(ours: TokenizerPrint, theirs: TokenizerPrint) -> tuple[TokenDifference, ...]:
    """Compare a recorded tokenizer with a target's; empty where they are the same."""
    out = [*_vocabulary(ours, theirs), *_added(ours, theirs)]
    if ours.kind != theirs.kind:
        # Merges and components of two forms cannot be compared; the ids can.
        text = f"stored as {theirs.kind}, recorded as {ours.kind}: only the ids can be compared"
        return (*out, TokenDifference("form", False, text))
    if ours.merges is not None and theirs.merges is not None:
        out += _merges(ours.merges, theirs.merges)
    elif ours.merges is not theirs.merges:
        out.append(TokenDifference("merges", True, "one has merges, the other none"))
    probe = _probe(ours, theirs)
    for name in sorted({*ours.components, *theirs.components}):
        a, b = ours.components.get(name), theirs.components.get(name)
        if a != b:
            # What it adds around a text, chat templates write themselves.
            harmful = name != "post_processor"
            sentence = f"{name} {_change(a, b)}"
            out.append(TokenDifference(name, harmful, sentence + (probe if harmful else "")))
    return tuple(out)


def _first(ours: Listed, theirs: Listed) -> tuple[int, int, int] | None:
    """Return the first entry that differs, where its block ends, and how many are known to."""
    common = min(ours.count, theirs.count)
    differing = [i for i in range(common) if ours.each[i] != theirs.each[i]]
    if ours.texts is not None and theirs.texts is not None:
        differing = [i for i in range(common) if ours.texts[i] != theirs.texts[i]]
    first = (differing[0], differing[0] + 1, len(differing)) if differing else None
    for start in range(0, common - common % BLOCK, BLOCK):
        at = start // BLOCK * 4
        if ours.blocks[at : at + 4] != theirs.blocks[at : at + 4]:
            if first is None or first[0] >= start + BLOCK:
                return start, start + BLOCK, len(differing) + 1
            break
    if first is None and ours.count == theirs.count and ours.digest != theirs.digest:
        return common - common % BLOCK, common, 1
    return first


def _named(texts: Listed, index: int) -> str:
    if texts.texts is None:
        return "another token"
    text = texts.texts[index]
    if GAP in text:
        return "(" + ", ".join(json.dumps(t, ensure_ascii=False) for t in text.split(GAP)) + ")"
    return json.dumps(text, ensure_ascii=False) if text else "no token"


def _vocabulary(ours: TokenizerPrint, theirs: TokenizerPrint) -> list[TokenDifference]:
    a, b = ours.vocabulary, theirs.vocabulary
    out = []
    found = _first(a, b)
    if found is not None:
        first, end, count = found
        many = f"; {count} of {min(a.count, b.count)} ids differ" if count > 1 else ""
        if end - first > 1:
            text = f"an id of {first} to {end - 1} is another token than recorded"
        else:
            text = f"id {first} is {_named(b, first)}, recorded {_recorded(ours, first)}{many}"
        out.append(TokenDifference("vocabulary", True, text))
    if a.count != b.count:
        longer, fewer, whose = (
            (theirs, a.count, "not recorded")
            if b.count > a.count
            else (ours, b.count, "not there any more")
        )
        extra = longer.vocabulary.count - fewer
        added = {t.id for t in longer.added}
        unused = all(i in added for i in range(fewer, fewer + extra))
        what = "added tokens" if unused else "ids"
        text = f"{extra} {what} from id {fewer} on are {whose}"
        out.append(TokenDifference("vocabulary", not unused, text))
    return out


def _recorded(ours: TokenizerPrint, index: int) -> str:
    """Return what the id is in a recorded print, as far as it is known."""
    added = next((t.content for t in ours.added if t.id == index), None)
    return json.dumps(added, ensure_ascii=False) if added else _named(ours.vocabulary, index)


def _added(ours: TokenizerPrint, theirs: TokenizerPrint) -> list[TokenDifference]:
    """Compare flags; contents are in the vocabulary."""
    b = {t.id: t for t in theirs.added}
    common = min(ours.count, theirs.count)
    out = []
    for token in ours.added:
        twin = b.pop(token.id, None)
        if twin is None:
            if token.id < common:
                text = f"{json.dumps(token.content, ensure_ascii=False)} (id {token.id}) is no added token"
                out.append(TokenDifference("added_tokens", True, text))
        elif twin.flags != token.flags and twin.content == token.content:
            changed = {*token.flags} ^ {*twin.flags}
            names = [name for name, letter in FLAGS.items() if letter in changed]
            text = (
                f"added token {json.dumps(token.content, ensure_ascii=False)} (id {token.id}) "
                f"differs in {', '.join(names) or 'its kind'}"
            )
            # `special` alone moves no id of a text: it says what decoding leaves out.
            out.append(TokenDifference("added_tokens", changed != {FLAGS["special"]}, text))
    for token in b.values():
        if token.id < common:
            text = f"{json.dumps(token.content, ensure_ascii=False)} (id {token.id}) became an added token"
            out.append(TokenDifference("added_tokens", True, text))
    harmful = [d for d in out if d.harmful]
    chosen = (harmful or out)[:3]
    if len(out) > len(chosen):
        more = f"{len(out) - len(chosen)} more added tokens differ"
        chosen.append(TokenDifference("added_tokens", bool(harmful), more))
    return chosen


def _merges(a: Listed, b: Listed) -> list[TokenDifference]:
    found = _first(a, b)
    if found is None and a.count == b.count:
        return []
    if found is None:
        text = f"{b.count} merges, recorded {a.count}"
        return [TokenDifference("merges", True, text)]
    first, end, count = found
    if end - first > 1:
        text = f"a merge of {first} to {end - 1} is another than recorded"
    else:
        old = "another one" if a.texts is None else _named(a, first)
        text = f"merge {first} is {_named(b, first)}, recorded {old}"
        if count > 1:
            text += f"; {count} of {min(a.count, b.count)} merges differ"
    return [TokenDifference("merges", True, text)]


def _probe(ours: TokenizerPrint, theirs: TokenizerPrint) -> str:
    if ours.probe is None or theirs.probe is None:
        return ""
    if ours.probe == theirs.probe:
        return "; the probe text has the same ids"
    pairs = zip(ours.probe, theirs.probe, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if at is None:
        return f"; the probe text has {len(theirs.probe)} ids, recorded {len(ours.probe)}"
    return f"; token {at} of the probe text is id {theirs.probe[at]}, recorded {ours.probe[at]}"


def _change(a: Any, b: Any) -> str:
    """Say how a component changed: the keys, where it is still of the same kind."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        place = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
        return f"part {place + 1} ({b[place].get('type')}) {_change(a[place], b[place])}"
    if isinstance(a, dict) and isinstance(b, dict) and a.get("type") == b.get("type"):
        keys = sorted(k for k in {*a, *b} if a.get(k) != b.get(k))
        return "; ".join(f"has {k} {_short(b.get(k))}, recorded {_short(a.get(k))}" for k in keys)
    return f"is {_short(b)}, recorded {_short(a)}"


def _short(component: Any) -> str:
    text = "none" if component is None else json.dumps(component, ensure_ascii=False)
    return text if len(text) <= 90 else text[:87] + "..."
