"""Is this the drafter of this target? Level by level: what is recorded or shown against what is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.checkpoint.manifest import hash_file, read_records
from eagleconv.drafter.accounting import MAX_PADDING
from eagleconv.drafter.aux_layers import default_boundaries
from eagleconv.drafter.facts import AuxLayers
from eagleconv.drafter.read import Drafter
from eagleconv.target.adapter import Adapter
from eagleconv.target.chat_template import TemplatePrint, compare_templates, read_templates
from eagleconv.target.compare_tokenizers import compare_tokenizers
from eagleconv.target.declared_names import declared_names
from eagleconv.target.embedding import compare_embedding, compare_head
from eagleconv.target.files import Files, files_of
from eagleconv.target.fingerprint import Fingerprint, parse_fingerprint
from eagleconv.target.same_weights import compare_weights
from eagleconv.target.tokenizer import TokenizerPrint, read_tokenizer
from eagleconv.target.verdict import Level, Verdict
from eagleconv.target.view import TargetView

Overall = Literal["match", "compatible", "mismatch", "unknown"]


@dataclass(frozen=True, slots=True)
class Matched:
    """What was found.

    Attributes:
        drafter: Its source as the user named it, and `drafter_revision` its commit, if any.
        layouts: Every layout the drafter can be.
        variant: The drafter's variant in words.
        target: The target's source; of a fingerprint file, what that was taken from.
        target_revision: Its commit, or empty.
        levels: One by one.
    """

    drafter: str
    drafter_revision: str
    layouts: tuple[str, ...]
    variant: str
    target: str
    target_revision: str
    levels: tuple[Level, ...]

    @property
    def verdict(self) -> Overall:
        """Return the answer of design section 3."""
        verdicts = {level.verdict for level in self.levels}
        if "different" in verdicts:
            return "mismatch"
        if not verdicts - {"unknown"}:
            return "unknown"
        evident = any(level.evidence and level.verdict == "equal" for level in self.levels)
        return "match" if evident and "harmless" not in verdicts else "compatible"

    @property
    def open(self) -> tuple[str, ...]:
        """Return what keeps it from being a `match`, a sentence each, with what would settle it."""
        if self.verdict != "compatible":
            return ()
        out = [
            f"{level.name} differs harmlessly"
            for level in self.levels
            if level.verdict == "harmless"
        ]
        if not any(level.evidence and level.verdict == "equal" for level in self.levels):
            out.append(
                "nothing identifies the target's weights; `eagleconv upgrade --target`, run where "
                "the drafter's own target is at hand, records them"
            )
        return tuple(out)


def recorded_fingerprint(checkpoint: Checkpoint) -> Fingerprint | None:
    """Return the fingerprint that a drafter's eagleconv.json records, if there is one.

    Raises:
        SourceError: It is broken.
    """
    text = (checkpoint.manifest or {}).get("target")
    if not isinstance(text, dict):
        return None
    return parse_fingerprint(text, f"{checkpoint.source}: target in eagleconv.json")


def foreign_weights(checkpoint: Checkpoint) -> str:
    """Say why the weights are not those that eagleconv.json was written for; empty: they are.

    What it records of a target holds for the very weights it was written beside: all bytes of a
    directory are hashed; of a repository, the sha256 that the Hub tells is taken.
    """
    if checkpoint.manifest is None:
        return ""
    records = read_records(checkpoint.manifest)
    for name in checkpoint.weight_files:
        record = records.get(name)
        if record is None:
            return f"{name} is not in it"
        if checkpoint.root:
            found = hash_file(os.path.join(checkpoint.root, name), name).sha256
        elif name in checkpoint.digests:
            found = checkpoint.digests[name]
        elif name.endswith(".json"):
            continue  # an index: it says where tensors lie, and holds none
        else:
            return f"the Hub does not tell what {name} hashes to"
        if found != record.sha256:
            return f"{name} has other bytes than it records"
    return ""


def compare(
    drafter: Drafter,
    target: Fingerprint,
    view: TargetView | None,
    adapters: tuple[Adapter, ...] = (),
) -> Matched:
    """Compare a drafter with a target.

    Args:
        drafter: Read with contradictions collected.
        target: What the target is, without its weights where `view` is given.
        view: The target itself, or None where only its fingerprint is known.
        adapters: Served together with the target.

    Raises:
        SourceError: A file that is there cannot be read.
    """
    checkpoint = drafter.checkpoint
    recorded = recorded_fingerprint(checkpoint)
    doubt = foreign_weights(checkpoint) if recorded is not None else ""
    if doubt:
        recorded = None
    beside = files_of(checkpoint)
    levels = [
        _shapes(drafter, recorded, target),
        _taps(drafter, target),
        _tokenizer(recorded, beside, target),
    ]
    levels.append(_vocabulary(drafter, target, levels[-1].verdict))
    levels += [
        _template(recorded, beside, target),
        _positions(recorded, target),
        Level(
            "weights", "unknown", (f"what eagleconv.json records is not of this drafter: {doubt}",)
        )
        if doubt
        else compare_weights(recorded, target, view),
        *_shown(drafter, view),
        _names(drafter, recorded, target, view),
    ]
    if adapters:
        levels.append(_adapters(adapters, recorded))
    return Matched(
        checkpoint.source,
        checkpoint.revision,
        drafter.layout_names,
        drafter.variant,
        target.source if view is None else view.facts.name,
        target.revision,
        tuple(levels),
    )


def _value(drafter: Drafter, name: str) -> Any:
    fact = drafter.facts.get(name)
    return None if fact is None else fact.value


def _shapes(drafter: Drafter, recorded: Fingerprint | None, target: Fingerprint) -> Level:
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


def _taps(drafter: Drafter, target: Fingerprint) -> Level:
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


def _vocabulary(drafter: Drafter, target: Fingerprint, tokenizers: Verdict) -> Level:
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


def _tokenizer(recorded: Fingerprint | None, beside: Files, target: Fingerprint) -> Level:
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


def _template(recorded: Fingerprint | None, beside: Files, target: Fingerprint) -> Level:
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


def _positions(recorded: Fingerprint | None, target: Fingerprint) -> Level:
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


def _shown(drafter: Drafter, view: TargetView | None) -> list[Level]:
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


def _names(
    drafter: Drafter, recorded: Fingerprint | None, target: Fingerprint, view: TargetView | None
) -> Level:
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


def _adapters(adapters: tuple[Adapter, ...], recorded: Fingerprint | None) -> Level:
    name = "adapter"
    sentences = tuple(adapter.sentence() for adapter in adapters)
    if all(adapter.changes_nothing for adapter in adapters):
        return Level(name, "equal", sentences)
    text = "the states differ from those of the target alone"
    if recorded is None or recorded.weights is None:
        return Level(name, "harmless", (*sentences, text))
    return Level(name, "different", (*sentences, text))
