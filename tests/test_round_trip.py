"""Every layout that can say a drafter says the same drafter: facts and bytes survive each pair.

A fact a layout leaves open is answered, truthfully; a fact it does not ask about must be in the file.
"""

import json
import struct
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from eagleconv.checkpoint.local import open_local
from eagleconv.drafter.declared import Declared
from eagleconv.drafter.facts import AuxLayers, DrafterSpec, Mla, Rope
from eagleconv.drafter.layouts import CANONICAL, LAYOUTS
from eagleconv.drafter.layouts.layout import Layout
from eagleconv.drafter.read import Drafter, read_drafter
from eagleconv.drafter.vocabulary import mask_of
from eagleconv.drafter.write import (
    flat_base,
    inexpressible,
    tensor_name,
    write_config,
    write_tensors,
)
from tests.drafters import make_spec, make_tensors, write_safetensors
from tests.test_upgrade_cli import ROOT

FIXTURES = sorted(p.parent for p in (ROOT / "fixtures").glob("valid/*/expect.json"))
Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]


def answers(spec: DrafterSpec, layout: Layout) -> dict[str, Callable[[Declared], Declared]]:
    """Return what a user who trained the drafter would answer, by question."""
    taps = spec.aux.boundaries
    explicit = spec.aux.rule == "explicit" and taps is not None
    head = ("norm_output", "norm_output_head") in layout.keys
    values: dict[str, dict[str, Any]] = {
        "feedback": {"norm_output_meaning": "head" if head else "feedback"},
        "residual": {"norm_before_residual": spec.residual == "normed"},
        "aux layers": {"aux_layers": ",".join(map(str, taps or ())) if explicit else "default"},
        "rope theta": {"rope_theta": spec.rope.theta},
        "rope scaling": {"rope_scaling": spec.rope.scaling or {}},
        "partial rotary factor": {"partial_rotary_factor": spec.rope.partial_rotary_factor},
        "mask token": {"mask_token_id": spec.mask_token_id},
        "attention window": {"attention_window": next((w for w in spec.window if w), 0)},
    }
    return {fact: lambda d, v=v: replace(d, **v) for fact, v in values.items()}  # type: ignore[misc]


def read_as(directory: Path, layout: Layout, spec: DrafterSpec) -> Drafter:
    """Read a directory, answering only what is asked."""
    drafter = read_drafter(open_local(str(directory)))
    declared = Declared()
    for question in drafter.questions:
        declared = answers(spec, layout)[question.fact](declared)
    return read_drafter(open_local(str(directory)), declared)


def write_source(directory: Path, spec: DrafterSpec, layout: Layout, tensors: Tensors) -> None:
    """Write canonical tensors in a layout."""
    stored = {
        tensor_name(n, layout, spec.num_layers): t
        for n, t in tensors.items()
        if n not in layout.omitted
    }
    if spec.vocabulary == "full" and "d2t" in layout.required:
        n = spec.vocab_size
        stored[tensor_name("d2t", layout, 1)] = ("I64", (n,), bytes(8 * n))
        stored[tensor_name("t2d", layout, 1)] = ("BOOL", (n,), b"\x01" * n)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(write_config(spec, layout, {}), indent=2))
    write_safetensors(directory / "model.safetensors", stored)


def rewrite(drafter: Drafter, layout: Layout, directory: Path) -> None:
    """Write a drafter that was read in another layout."""
    spec, c = drafter.spec(), drafter.checkpoint
    placed = write_tensors(drafter, spec, layout)
    stored: Tensors = {}
    for target, name in placed.stored.items():
        stored[target] = (c.tensors[name].dtype, c.tensors[name].shape, c.read(name))
    for target, tensor in placed.derived.items():
        stored[target] = (tensor.dtype, tensor.shape, tensor.data)
    directory.mkdir()
    config = write_config(spec, layout, flat_base(c.config))
    (directory / "config.json").write_text(json.dumps(config))
    write_safetensors(directory / "model.safetensors", stored)


def values(drafter: Drafter) -> dict[str, bytes]:
    """Return the bytes of every tensor by canonical name."""
    c = drafter.checkpoint
    # t2d says nothing that d2t does not say, and some layouts leave it out.
    found = {
        k: c.read(n) for k, n in drafter.tensors.items() if n not in drafter.dropped and k != "t2d"
    }
    return found | {k: t.data for k, t in drafter.derived.items() if k != "t2d"}


def expressible(spec: DrafterSpec, layout: Layout) -> bool:
    return spec.block in layout.architectures and not inexpressible(spec, layout)


def tensors_of(
    spec: DrafterSpec, seed: int = 0, shuffle: Callable[[list[int]], None] | None = None
) -> Tensors:
    """Return canonical tensors, with the biases, map and scales the facts ask for."""
    out = make_tensors(spec, seed)
    biased = [("self_attn.o_proj", spec.output_bias)]
    biased += [(f"mlp.{m}_proj", spec.mlp_bias) for m in ("gate", "up", "down")]
    for i in range(spec.num_layers):
        for module in (f"layers.{i}.{m}" for m, there in biased if there):
            dtype, shape, data = out[f"{module}.weight"]
            width = len(data) // (shape[0] * shape[1])
            out[f"{module}.bias"] = (dtype, shape[:1], data[: width * shape[0]])
    if spec.vocabulary == "reduced" and shuffle is not None:
        ids = list(range(spec.vocab_size))
        shuffle(ids)
        ids = ids[: spec.draft_vocab_size]
        offsets = struct.pack(f"<{len(ids)}q", *(t - i for i, t in enumerate(ids)))
        out["d2t"] = ("I64", (len(ids),), offsets)
        out["t2d"] = ("BOOL", (spec.vocab_size,), mask_of(ids, spec.vocab_size))
    if spec.quantization is not None:
        for name in [n for n in out if n.endswith("_proj.weight")]:
            shape = out[name][1]
            out[name] = ("F8_E4M3", shape, b"\x38" * (shape[0] * shape[1]))
            out[name.replace("weight", "weight_scale")] = ("F32", (), b"\x00\x00\x80\x3f")
    return out


VARIANTS: dict[str, dict[str, Any]] = {
    "eagle3": {},
    "no embedding": {"own_embedding": False},
    "full vocabulary": {"vocabulary": "full"},
    "3.1": {"input_norm": "per_aux", "feedback": "post_norm"},
    "fc_norm, pre-norm feedback": {"input_norm": "per_aux"},
    "3.1 of speculators": {
        "input_norm": "concat",
        "feedback": "post_norm",
        "residual": "normed",
        "num_layers": 2,
    },
    "qwen3": {"block": "qwen3", "residual": "normed"},
    "mla": {"block": "mla"},
    "mla without a rank for q": {"block": "mla", "mla": Mla(None, 32, 16, 16, 16)},
    "mla, explicit taps": {"block": "mla", "aux": AuxLayers(3, (3, 5, 8), "explicit")},
    "parallel": {"drafting": "parallel", "num_layers": 2, "mask_token_id": 7},
    "parallel 3.1": {
        "drafting": "parallel",
        "mask_token_id": 7,
        "input_norm": "per_aux",
        "feedback": "post_norm",
    },
    "explicit taps": {"aux": AuxLayers(3, (2, 5, 8), "explicit")},
    "four taps": {"aux": AuxLayers(4, (1, 3, 6, 8), "explicit")},
    "the embedding tapped": {"aux": AuxLayers(3, (0, 5, 8), "explicit")},
    "one state": {"aux": AuxLayers(0, None, "last"), "own_embedding": False},
    "window": {"window": (128,)},
    "window of one layer": {"num_layers": 2, "window": (None, 128)},
    "window of qwen3": {"block": "qwen3", "window": (128,)},
    "yarn": {"rope": Rope(50000.0, {"rope_type": "yarn", "factor": 4.0})},
    "partial rotation": {"rope": Rope(50000.0, None, 0.5)},
    "borrowed head": {"vocabulary": "full", "own_head": False},
    "biases": {"attention_bias": True},
    "every bias": {"attention_bias": True, "output_bias": True, "mlp_bias": True},
    "narrower than its target": {
        "hidden_size": 32,
        "num_attention_heads": 1,
        "target_hidden_size": 64,
    },
    "quantised": {"own_embedding": False, "quantization": {"quant_method": "modelopt"}},
    "float16": {"dtype": "float16"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_pair_that_can_say_it(variant: str, tmp_path: Path) -> None:
    spec = make_spec(**VARIANTS[variant])
    tensors = tensors_of(spec)
    carried = {k: t[2] for k, t in tensors.items() if k != "t2d"}
    able = [layout for layout in LAYOUTS if expressible(spec, layout)]
    assert able, "no layout says this variant"
    for first in able:
        write_source(tmp_path / first.name, spec, first, tensors)
        drafter = read_as(tmp_path / first.name, first, spec)
        assert first.name in drafter.layout_names
        assert drafter.spec() == spec, first.name
        assert values(drafter) == carried
    for first, second in permutations(able, 2):
        there = tmp_path / f"{first.name}-{second.name}"
        rewrite(read_as(tmp_path / first.name, first, spec), second, there)
        again = read_as(there, second, spec)
        # The canonical layout keeps keys engines read, and they still name their producer.
        assert second.name in again.layout_names or second is CANONICAL
        assert again.spec() == spec, (first.name, second.name)
        assert values(again) == carried


def declared_by(flags: list[str]) -> Declared:
    """Return what command-line flags declare."""
    words = dict(zip(flags[::2], flags[1::2], strict=True))
    kinds: dict[str, Callable[[str], Any]] = {
        "--norm-before-residual": lambda text: text == "true",
        "--rope-theta": float,
        "--mask-token-id": int,
        "--attention-window": int,
    }
    return Declared(**{k[2:].replace("-", "_"): kinds.get(k, str)(v) for k, v in words.items()})


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda p: p.name)
def test_every_fixture_in_every_layout_that_can_say_it(fixture: Path, tmp_path: Path) -> None:
    flags = json.loads((fixture / "expect.json").read_text())["upgrade"]["flags"]
    drafter = read_drafter(open_local(str(fixture)), declared_by(flags))
    spec, carried = drafter.spec(), values(drafter)
    able = [layout for layout in LAYOUTS if expressible(spec, layout)]
    assert CANONICAL in able
    for layout in able:
        there = tmp_path / layout.name
        rewrite(drafter, layout, there)
        again = read_as(there, layout, spec)
        assert layout.name in again.layout_names or layout is CANONICAL
        assert again.spec() == spec, layout.name
        assert values(again) == carried


def some(draw: st.DrawFn, *options: Any) -> Any:
    return draw(st.sampled_from(options))


@st.composite
def taps(draw: st.DrawFn, custom: bool, count: int | None) -> AuxLayers:
    """Draw tapped states: their number, and explicit boundaries or the default rule."""
    if not custom or (count in (None, 3) and draw(st.booleans())):
        return AuxLayers(3, None, "default")
    count = count or some(draw, 3, 1, 2, 4, 5)
    drawn = draw(st.sets(st.integers(0, 40), min_size=count, max_size=count))
    return AuxLayers(count, tuple(sorted(drawn)), "explicit")


@st.composite
def drafters(draw: st.DrawFn) -> tuple[DrafterSpec, Layout, Layout]:
    """Draw two layouts and a drafter both can say: sizes, taps, vocabulary, norms, biases, dtype."""
    first, second = some(draw, *LAYOUTS), some(draw, *LAYOUTS)
    limits = [first.expressible, second.expressible]

    def among(fact: str, *values: Any) -> Any:
        """Draw a value both layouts have."""
        allowed = [v for v in values if all(v in e.facts.get(fact, values) for e in limits)]
        assume(allowed)
        return draw(st.sampled_from(allowed))

    def may(limit: str) -> bool:
        return all(getattr(e, limit) for e in limits) and draw(st.booleans())

    def least(limit: str, otherwise: int | None) -> int | None:
        given = [n for e in limits if (n := getattr(e, limit)) is not None]
        return min(given, default=otherwise)

    blocks = {
        b for b in ("llama", "qwen3", "mla") if all(b in x.architectures for x in (first, second))
    }
    block = among("block", *sorted(blocks))
    layers = draw(st.integers(1, least("max_layers", 3) or 3))
    heads, vocabulary = some(draw, 1, 2, 4), draw(st.integers(20, 200))
    parallel = among("drafting", "chain", "parallel") == "parallel"
    borrowed, full = may("borrowed_head"), draw(st.booleans())
    window = some(draw, 64, 2048) if block != "mla" and may("window") else None
    hidden = 8 * heads
    wider = 8 if not any(e.equal_widths for e in limits) and draw(st.booleans()) else 0
    embeddings = {e.own_embedding for e in limits} - {None}
    assume(len(embeddings) < 2)
    scaling = {"rope_type": "linear", "factor": 2.0} if may("scaling") else None
    biases = all(e.biases for e in limits)
    spec = make_spec(
        block=block,
        drafting="parallel" if parallel else "chain",
        mask_token_id=draw(st.integers(0, vocabulary - 1)) if parallel else None,
        input_norm=among("input_norm", "none", "concat", "per_aux"),
        feedback=among("feedback", "pre_norm", "post_norm"),
        residual=among("residual", "raw", "normed"),
        aux=draw(taps(all(e.ids == "explicit" for e in limits), least("aux_count", None))),
        num_layers=layers,
        hidden_size=hidden,
        target_hidden_size=hidden + wider,
        intermediate_size=draw(st.integers(1, 40)),
        num_attention_heads=heads,
        num_key_value_heads=some(draw, 1, heads),
        head_dim=some(draw, 4, 8),
        mla=Mla(some(draw, None, 6), 8, 4, 4, 6) if block == "mla" else None,
        vocab_size=vocabulary,
        draft_vocab_size=draw(st.integers(1, vocabulary - 1)),
        vocabulary="full" if full else "reduced",
        own_embedding=embeddings.pop() if embeddings else bool(wider) or draw(st.booleans()),
        own_head=not (full and borrowed),
        dtype=some(draw, "float32", "float16", "bfloat16"),
        rope=Rope(float(some(draw, 10000, 500000)), scaling, some(draw, 1.0, 1.0, 0.5)),
        rms_norm_eps=some(draw, 1e-5, 1e-6),
        max_position_embeddings=some(draw, 256, 131072),
        attention_bias=biases and block != "mla" and draw(st.booleans()),
        output_bias=biases and draw(st.booleans()),
        mlp_bias=biases and draw(st.booleans()),
        window=(window,) * layers,
    )
    assume(expressible(spec, first) and expressible(spec, second))
    return spec, first, second


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(drawn=drafters(), seed=st.integers(0, 1000), pick=st.randoms(use_true_random=False))
def test_any_drafter_survives_any_pair(
    drawn: tuple[DrafterSpec, Layout, Layout], seed: int, pick: Any
) -> None:
    spec, first, second = drawn
    event(f"{first.name} to {second.name}")
    tensors = tensors_of(spec, seed, pick.choice([None, pick.shuffle]))
    carried = {k: t[2] for k, t in tensors.items() if k != "t2d"}
    with tempfile.TemporaryDirectory() as folder:
        here, there = Path(folder) / "a", Path(folder) / "b"
        write_source(here, spec, first, tensors)
        drafter = read_as(here, first, spec)
        assert drafter.spec() == spec
        assert values(drafter) == carried
        rewrite(drafter, second, there)
        again = read_as(there, second, spec)
        assert again.spec() == spec
        assert values(again) == carried
