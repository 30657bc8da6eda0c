"""The levels of a match that need no weights of the target, one function each."""

from __future__ import annotations

from typing import Any

from eagleconv.drafter.accounting import MAX_PADDING
from eagleconv.drafter.aux_layers import default_boundaries
from eagleconv.drafter.facts import AuxLayers
from eagleconv.drafter.read import Drafter
from eagleconv.target.adapter import Adapter
from eagleconv.target.chat_template import TemplatePrint, compare_templates, read_templates
from eagleconv.target.compare_tokenizers import compare_tokenizers
from eagleconv.target.declared_names import declared_names
from eagleconv.target.embedding import compare_embedding, compare_head
from eagleconv.target.files import Files
from eagleconv.target.fingerprint import Fingerprint
from eagleconv.target.tokenizer import TokenizerPrint, read_tokenizer
from eagleconv.target.verdict import Level
from eagleconv.target.view import TargetView


def _value(drafter: Drafter, name: str) -> Any:
    fact = drafter.facts.get(name)
    return None if fact is None else fact.value


def shapes(drafter: Drafter, recorded: Fingerprint | None, target: Fingerprint) -> Level:
    """Compare width, layers and model type."""
    theirs = target.hidden_states
    width = _value(drafter, "target_hidden_size")
    out: list[str] = []
    if width is not None and width != theirs["hidden_size"]:
        out.append(
            f"the drafter is fed states of {width}, the target's have {theirs['hidden_size']}"
        )
    if recorded is not None:
        for key, what in (
            ("num_layers", "layers"),
            ("hidden_size", "width"),
            ("model_type", "model type"),
        ):
            ours = recorded.hidden_states[key]
            if ours != theirs[key]:
                out.append(f"recorded {what} {ours}, the target's {theirs[key]}")
    if out:
        return Level("shapes", "different", tuple(out))
    text = f"{theirs['model_type']}, {theirs['num_layers']} layers, width {theirs['hidden_size']}"
    if width is None and recorded is None:
        return Level("shapes", "unknown", ("the drafter's width could not be read",))
    return Level("shapes", "equal", (text,))


def taps(drafter: Drafter, target: Fingerprint) -> Level:
    """Say whether the tapped boundaries lie inside the target."""
    aux: AuxLayers | None = _value(drafter, "aux")
    layers = target.hidden_states["num_layers"]
    if aux is None:
        why = "the files leave open which layers are tapped"
        return Level("taps", "unknown", (why,))
    if aux.rule == "last":
        return Level("taps", "equal", ("the last hidden state alone is tapped",))
    boundaries = aux.boundaries
    if boundaries is None:
        boundaries = tuple(default_boundaries(layers))
        if list(boundaries) != sorted(set(boundaries)) or boundaries[0] < 0:
            text = f"{layers} layers are too few for the default taps (2, n//2, n-3)"
            return Level("taps", "different", (text,))
    text = f"boundaries {', '.join(map(str, boundaries))} of 0 to {layers}"
    if not 0 <= min(boundaries) <= max(boundaries) <= layers:
        return Level("taps", "different", (f"{text}: outside the target",))
    return Level("taps", "equal", (text,))


def vocabulary(drafter: Drafter, target: Fingerprint) -> Level:
    """Compare sizes; a difference by padding is harmless."""
    ours, theirs = _value(drafter, "vocab_size"), target.vocabulary["size"]
    if ours is None:
        return Level("vocabulary", "unknown", ("the drafter's vocabulary could not be read",))
    if ours == theirs:
        return Level("vocabulary", "equal", (f"{ours} ids",))
    text = f"the drafter knows {ours} ids, the target {theirs}"
    ids = target.tokenizer.largest_id + 1 if target.tokenizer else None
    if ids is not None and ids > ours:
        return Level("vocabulary", "different", (f"{text}, its tokenizer {ids}",))
    if ids is not None:
        return Level(
            "vocabulary", "harmless", (f"{text}; both hold the tokenizer's {ids}: padding",)
        )
    if abs(ours - theirs) > MAX_PADDING:
        return Level("vocabulary", "different", (f"{text}: more than padding",))
    return Level("vocabulary", "harmless", (f"{text}: padding, if their tokenizers are the same",))


def tokenizer(recorded: Fingerprint | None, beside: Files, target: Fingerprint) -> Level:
    """Compare the tokenizer that is recorded, or lies beside the drafter."""
    name, where = "tokenizer", "recorded"
    if target.tokenizer is None:
        why = target.missing.get(name, "the target has none")
        return Level(name, "unknown", (why,))
    ours: TokenizerPrint | None = recorded.tokenizer if recorded else None
    if ours is None:
        ours, where = read_tokenizer(beside), "beside the drafter"
    if ours is None:
        return Level(name, "unknown", ("the drafter records none, and none lies beside it",))
    if ours.digest == target.tokenizer.digest:
        return Level(name, "equal", (f"the same as {where}: {ours.count} ids",))
    found = compare_tokenizers(ours, target.tokenizer)
    harmful = any(difference.harmful for difference in found)
    sentences = tuple(difference.sentence for difference in found)
    if not harmful and all(d.part == "form" for d in found):
        return Level(name, "equal", sentences)
    return Level(name, "different" if harmful else "harmless", sentences)


def template(recorded: Fingerprint | None, beside: Files, target: Fingerprint) -> Level:
    """Compare the templates that are recorded, or lie beside the drafter."""
    name, where = "chat template", "recorded"
    theirs = target.chat_template
    ours: TemplatePrint | None = recorded.chat_template if recorded else None
    if ours is None:
        ours, where = read_templates(beside), "beside the drafter"
    if ours is None or theirs is None:
        if recorded is not None and target.missing.get("chat_template") is None and ours != theirs:
            have = "the drafter's target had one, this one has none" if ours else "it is new"
            return Level(name, "harmless", (have,))
        why = "the target has none" if theirs is None else "the drafter records none"
        return Level(name, "unknown", (target.missing.get("chat_template", why),))
    if ours.digest == theirs.digest:
        return Level(name, "equal", (f"the same as {where}",))
    hint = "acceptance is lower on prompts of another form: measure it"
    return Level(name, "harmless", (*compare_templates(ours, theirs), hint))


def positions(recorded: Fingerprint | None, target: Fingerprint) -> Level:
    """Compare the longest context and rope."""
    name = "positions"
    if recorded is None:
        return Level(name, "unknown", ("the drafter records none of its target's",))
    ours, theirs = recorded.positions, target.positions
    if ours == theirs:
        return Level(name, "equal", ("longest context and rope are the recorded ones",))
    out = []
    if ours["max_position_embeddings"] != theirs["max_position_embeddings"]:
        out.append(
            f"longest context {theirs['max_position_embeddings']}, recorded "
            f"{ours['max_position_embeddings']}"
        )
    bases = (ours["rope"].get("rope_theta"), theirs["rope"].get("rope_theta"))
    if None not in bases and bases[0] != bases[1]:
        out.append(f"rope base {bases[1]:g}, recorded {bases[0]:g}: every state is another")
        return Level(name, "different", tuple(out))
    if ours["rope"] != theirs["rope"]:
        keys = sorted(
            k
            for k in {*ours["rope"], *theirs["rope"]}
            if ours["rope"].get(k) != theirs["rope"].get(k)
        )
        out.append(f"rope differs in {', '.join(keys)}")
    return Level(name, "harmless", tuple(out))


def shown(drafter: Drafter, view: TargetView | None) -> list[Level]:
    """Return what the drafter's own copies of target tensors show."""
    if view is None or view.weights is None or view.weights.form != "safetensors":
        return []
    levels = []
    found = compare_embedding(drafter, view)
    if found is not None:
        name, rows = "embedding", f"{found.rows} rows of the drafter's embedding"
        if found.equal:
            levels.append(Level(name, "equal", (f"{rows} are the target's",)))
        elif found.unrelated:
            text = f"{rows} have nothing to do with the target's (cosine {found.cosine:.3f})"
            levels.append(Level(name, "different", (text,)))
        else:
            text = (
                f"{found.differing} of {rows} differ from the target's (largest difference "
                f"{found.largest:.3g}, cosine {found.cosine:.4f}): trained along, or the target was "
                "tuned since"
            )
            levels.append(Level(name, "harmless", (text,)))
    head = compare_head(drafter, view)
    if head is not None and head.matching and not head.shifted:
        share = f"{head.matching} of {head.rows} rows of lm_head are the target's"
        whole = head.matching == head.rows
        levels.append(Level("head", "equal" if whole else "harmless", (share,)))
    return levels


def names(
    drafter: Drafter, recorded: Fingerprint | None, target: Fingerprint, view: TargetView | None
) -> Level:
    """Compare the names that the files give the target, and its commit."""
    name = "names"
    declared = declared_names(drafter.checkpoint)
    theirs = view.facts.name if view else target.source
    last = theirs.rstrip("/").split("/")[-1].split("@")[0].lower()
    out, alike, evidence = [], True, False
    for where, said in declared:
        same = said.rstrip("/").split("/")[-1].lower() == last
        alike = alike and same
        out.append(f"{where} names {said}" + ("" if same else f", the target is {theirs}"))
    if recorded is not None and recorded.revision and target.revision:
        same = (recorded.source.split("@")[0], recorded.revision) == (
            target.source.split("@")[0],
            target.revision,
        )
        evidence = same
        out.append(
            f"commit {target.revision[:12]} is the recorded one"
            if same
            else f"commit {target.revision[:12]}, recorded {recorded.revision[:12]}"
        )
    if not out:
        return Level(name, "unknown", ("the drafter names no target",))
    if evidence:
        return Level(name, "equal", tuple(out), evidence=True)
    # A directory may have any name.
    certain = alike and bool(declared)
    known = bool(target.revision) and not alike
    return Level(name, "equal" if certain else "harmless" if known else "unknown", tuple(out))


def adapters(adapters: tuple[Adapter, ...], recorded: Fingerprint | None) -> Level:
    """Name adapters; one that changes something changes every state."""
    name = "adapter"
    sentences = tuple(adapter.sentence() for adapter in adapters)
    if all(adapter.changes_nothing for adapter in adapters):
        return Level(name, "equal", sentences)
    text = "the states differ from those of the target alone"
    if recorded is None or recorded.weights is None:
        return Level(name, "harmless", (*sentences, text))
    return Level(name, "different", (*sentences, text))
