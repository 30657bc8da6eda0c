"""Every layout that can say a drafter says the same drafter: facts and bytes survive each pair."""

import json
import tempfile
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagleconv.checkpoint.local import open_local
from eagleconv.drafter.declared import Declared
from eagleconv.drafter.facts import AuxLayers, DrafterSpec, Rope
from eagleconv.drafter.layouts import CANONICAL, LAYOUTS
from eagleconv.drafter.layouts.layout import Layout
from eagleconv.drafter.read import Drafter, read_drafter
from eagleconv.drafter.write import flat_base, inexpressible, write_config, write_tensors
from tests.drafters import make_spec, write_drafter, write_safetensors


def declared_for(spec: DrafterSpec) -> Declared:
    """Answer every question a layout may leave open, truthfully."""
    return Declared(
        norm_output_meaning=None,
        norm_before_residual=spec.residual == "normed",
        aux_layers=(
            "default"
            if spec.aux.rule == "default"
            else None
            if spec.aux.boundaries is None
            else ",".join(map(str, spec.aux.boundaries))
        ),
        rope_theta=spec.rope.theta,
        rope_scaling=spec.rope.scaling or {},
        partial_rotary_factor=spec.rope.partial_rotary_factor,
        mask_token_id=spec.mask_token_id,
        attention_window=next((w for w in spec.window if w), 0),
    )


def read_as(directory: Path, layout: Layout, spec: DrafterSpec) -> Drafter:
    """Read a directory; norm_output has the meaning its writer gave it."""
    declared = declared_for(spec)
    if "norm_output" in json.loads((directory / "config.json").read_text()):
        head = ("norm_output", "norm_output_head") in layout.keys
        declared = replace(declared, norm_output_meaning="head" if head else "feedback")
    return read_drafter(open_local(str(directory)), declared)


def rewrite(drafter: Drafter, layout: Layout, directory: Path) -> None:
    """Write a drafter that was read in another layout."""
    spec, c = drafter.spec(), drafter.checkpoint
    placed = write_tensors(drafter, spec, layout)
    stored: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for target, name in placed.stored.items():
        stored[target] = (c.tensors[name].dtype, c.tensors[name].shape, c.read(name))
    for target, tensor in placed.derived.items():
        stored[target] = (tensor.dtype, tensor.shape, tensor.data)
    directory.mkdir()
    config = write_config(spec, layout, flat_base(c.config))
    (directory / "config.json").write_text(json.dumps(config))
    write_safetensors(directory / "model.safetensors", stored)


def values(drafter: Drafter) -> dict[str, bytes]:
    """Return the bytes of every carried tensor by canonical name."""
    c = drafter.checkpoint
    # t2d says nothing that d2t does not say, and some layouts leave it out.
    return {
        k: c.read(n) for k, n in drafter.tensors.items() if n not in drafter.dropped and k != "t2d"
    }


def expressible(spec: DrafterSpec, layout: Layout) -> bool:
    return spec.block in layout.architectures and not inexpressible(spec, layout)


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
    "parallel": {"drafting": "parallel", "num_layers": 2, "mask_token_id": 7},
    "explicit taps": {"aux": AuxLayers(3, (2, 5, 8), "explicit")},
    "four taps": {"aux": AuxLayers(4, (1, 3, 6, 8), "explicit")},
    "window": {"window": (128,)},
    "yarn": {"rope": Rope(50000.0, {"rope_type": "yarn", "factor": 4.0})},
    "borrowed head": {"vocabulary": "full", "own_head": False},
    "biases": {"attention_bias": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_pair_that_can_say_it(variant: str, tmp_path: Path) -> None:
    spec = make_spec(**VARIANTS[variant])
    able = [layout for layout in LAYOUTS if expressible(spec, layout)]
    assert able, "no layout says this variant"
    for first in able:
        here = tmp_path / first.name
        tensors = write_drafter(here, spec, first)
        drafter = read_as(here, first, spec)
        assert first.name in drafter.layout_names
        assert drafter.spec() == spec, first.name
        carried = {k: t[2] for k, t in tensors.items() if k != "t2d"}
        assert values(drafter) == carried
    for first, second in permutations(able, 2):
        there = tmp_path / f"{first.name}-{second.name}"
        drafter = read_as(tmp_path / first.name, first, spec)
        rewrite(drafter, second, there)
        again = read_as(there, second, spec)
        # The canonical layout keeps keys engines read, and they still name their producer.
        assert second.name in again.layout_names or second is CANONICAL
        assert again.spec() == spec, (first.name, second.name)
        assert values(again) == values(drafter)


@st.composite
def specs(draw: st.DrawFn) -> DrafterSpec:
    """Draw sizes, layer counts, taps, vocabularies, norms and dtypes."""
    layers = draw(st.integers(1, 3))
    heads = draw(st.sampled_from([1, 2, 4]))
    count = draw(st.sampled_from([3, 3, 2, 5]))
    explicit = count != 3 or draw(st.booleans())
    taps = tuple(sorted(draw(st.sets(st.integers(0, 40), min_size=count, max_size=count))))
    full = draw(st.booleans())
    vocabulary = draw(st.integers(20, 200))
    return make_spec(
        block=draw(st.sampled_from(["llama", "qwen3"])),
        input_norm=draw(st.sampled_from(["none", "concat", "per_aux"])),
        feedback=draw(st.sampled_from(["pre_norm", "post_norm"])),
        residual=draw(st.sampled_from(["raw", "normed"])),
        aux=AuxLayers(count, taps, "explicit") if explicit else AuxLayers(3, None, "default"),
        num_layers=layers,
        hidden_size=8 * heads,
        target_hidden_size=8 * heads,
        intermediate_size=draw(st.integers(1, 40)),
        num_attention_heads=heads,
        num_key_value_heads=draw(st.sampled_from([1, heads])),
        head_dim=draw(st.sampled_from([4, 8])),
        vocab_size=vocabulary,
        draft_vocab_size=draw(st.integers(1, vocabulary - 1)),
        vocabulary="full" if full else "reduced",
        own_embedding=draw(st.booleans()),
        dtype=draw(st.sampled_from(["float32", "float16", "bfloat16"])),
        rope=Rope(float(draw(st.sampled_from([10000, 500000]))), None),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=specs(), seed=st.integers(0, 1000), pick=st.randoms(use_true_random=False))
def test_any_drafter_survives_any_pair(spec: DrafterSpec, seed: int, pick: Any) -> None:
    able = [layout for layout in LAYOUTS if expressible(spec, layout)]
    first, second = pick.choice(able), pick.choice(able)
    with tempfile.TemporaryDirectory() as folder:
        here, there = Path(folder) / "a", Path(folder) / "b"
        write_drafter(here, spec, first, seed)
        drafter = read_as(here, first, spec)
        assert drafter.spec() == spec
        rewrite(drafter, second, there)
        again = read_as(there, second, spec)
        assert again.spec() == spec
        assert values(again) == values(drafter)
