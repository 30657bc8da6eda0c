"""One test for each trap of the producers: handled, asked about, or reported; never silent."""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagleconv.checkpoint.local import open_local
from eagleconv.conversion.plan import plan_layout
from eagleconv.drafter.declared import Declared
from eagleconv.drafter.facts import AuxLayers, Rope, TargetConfig
from eagleconv.drafter.items import OMIT, nested_ids
from eagleconv.drafter.layouts import LAYOUTS
from eagleconv.drafter.read import Drafter, read_drafter
from eagleconv.engines import ENGINES, answer, traits
from eagleconv.errors import ConversionError, EagleconvError, OpenQuestions, SourceError
from eagleconv.rules import BY_CODE
from tests.drafters import make_spec, make_tensors, write_drafter, write_safetensors

BY_NAME = {layout.name: layout for layout in LAYOUTS}


def made(tmp_path: Path, layout: str, config: dict[str, Any] | None = None, **facts: Any) -> Path:
    """Write a tiny drafter in a layout, with config keys changed (None removes one)."""
    directory = tmp_path / "drafter"
    write_drafter(directory, make_spec(**facts), BY_NAME[layout])
    path = directory / "config.json"
    written = json.loads(path.read_text())
    for key, value in (config or {}).items():
        written.pop(key, None) if value is None else written.update({key: value})
    path.write_text(json.dumps(written))
    return directory


def read(directory: Path, target: TargetConfig | None = None, **declared: Any) -> Drafter:
    return read_drafter(open_local(str(directory)), Declared(**declared), target)


def asked(drafter: Drafter) -> set[str]:
    return {q.fact for q in drafter.questions}


def names(drafter: Drafter) -> set[str]:
    return {BY_CODE[t.code].name for t in drafter.traps}


TARGET = TargetConfig("t", "llama", 12, 64, 160)


def test_1_norm_output_of_specforge_is_asked_about(tmp_path: Path) -> None:
    source = made(tmp_path, "specforge", {"norm_output": True})
    assert "feedback" in asked(read(source))
    head = read(source, norm_output_meaning="head").spec()
    served = read(source, norm_output_meaning="feedback").spec()
    assert (head.feedback, served.feedback) == ("pre_norm", "post_norm")


def test_1_absent_norm_output_is_eagle_3_for_everyone(tmp_path: Path) -> None:
    drafter = read(made(tmp_path, "specforge", {"norm_output": None}))
    assert (drafter.spec().feedback, asked(drafter)) == ("pre_norm", set())


@pytest.mark.parametrize(
    ("layout", "ids", "boundaries"),
    [
        ("specforge", [1, 5, 8], (2, 6, 9)),  # the default set, n = 12, as outputs
        ("torchspec", [1, 5, 8], (2, 6, 9)),
    ],
)
def test_2_nested_ids_are_outputs_of_layers(
    layout: str, ids: list[int], boundaries: tuple[int, ...], tmp_path: Path
) -> None:
    source = made(
        tmp_path,
        layout,
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}, "norm_output": None},
    )
    assert read(source).spec().aux.boundaries == boundaries


def test_2_kimi_exports_of_torchspec_are_boundaries(tmp_path: Path) -> None:
    aux = AuxLayers(3, (2, 6, 9), "explicit")
    source = made(tmp_path, "torchspec-vllm-kimi", block="mla", aux=aux)
    config = json.loads((source / "config.json").read_text())
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 6, 9]
    assert read(source).spec().aux.boundaries == (2, 6, 9)


def test_2_custom_ids_of_an_unsure_producer_are_asked_about(tmp_path: Path) -> None:
    nested = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 5, 8]}}
    source = made(tmp_path, "specforge", {**nested, "norm_output": None})
    assert asked(read(source)) == {"aux layers"}
    assert read(source, aux_layers="4,6,9").spec().aux.boundaries == (4, 6, 9)


def test_2_an_id_equal_to_the_layer_count_is_a_boundary(tmp_path: Path) -> None:
    nested = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [4, 8, 12]}}
    source = made(tmp_path, "modelopt-hf", nested, own_embedding=False)
    assert read(source, target=TARGET).spec().aux.boundaries == (4, 8, 12)


@pytest.mark.parametrize(
    ("ids", "target", "nested"),
    [
        ((2, 6, 9), "llama", [1, 5, 8]),
        ((2, 6, 9), "deepseek_v3", [1, 5, 8]),
        ((3, 6, 9), "deepseek_v3", [3, 6, 9]),
        ((1, 6, 9), "deepseek_v3", OMIT),
        ((4, 8, 12), "gpt_oss", [4, 8, 12]),
        ((0, 6, 9), "llama", OMIT),
    ],
)
def test_2_sglang_numbers_ids_by_target(ids: tuple[int, ...], target: str, nested: Any) -> None:
    spec = make_spec(aux=AuxLayers(3, ids, "explicit"))
    assert nested_ids(spec, target, 12) == nested


def test_3_the_count_of_states_is_always_written(tmp_path: Path) -> None:
    aux = AuxLayers(4, (1, 3, 6, 8), "explicit")
    plan = plan_layout(read(made(tmp_path, "speculators-eagle3", aux=aux)))
    assert plan.config["num_aux_hidden_states"] == 4


def test_4_an_absent_norm_before_residual_is_asked_in_speculators_files(tmp_path: Path) -> None:
    source = made(tmp_path, "speculators-eagle3", {"norm_before_residual": None})
    assert asked(read(source)) == {"residual"}
    assert read(source, norm_before_residual=True).spec().residual == "normed"


def test_4_but_not_in_peagle_files_where_readers_agree(tmp_path: Path) -> None:
    source = made(
        tmp_path,
        "speculators-peagle",
        {"norm_before_residual": None},
        drafting="parallel",
        mask_token_id=5,
        num_layers=2,
    )
    assert read(source).spec().residual == "raw"


def test_4_modelopts_conversion_says_true_for_raw_heads(tmp_path: Path) -> None:
    source = made(tmp_path, "modelopt-speculators", residual="normed", own_embedding=False)
    assert "residual" in asked(read(source))


def test_5_sglang_loses_a_normed_residual() -> None:
    found = {e.name: answer(e, traits(make_spec(residual="normed"))).verdict for e in ENGINES}
    assert found["sglang"] == "silently wrong"
    assert found["vllm"] == "supported"


def test_6_files_of_speculators_convert_are_named(tmp_path: Path) -> None:
    source = made(tmp_path, "speculators-converted")
    drafter = read(source, aux_layers="default")
    assert "speculators-converted" in names(drafter)
    assert "aux layers" in asked(read(source))


def test_7_two_input_norms_at_once_are_refused(tmp_path: Path) -> None:
    drafter = read(made(tmp_path, "eagle-3.1", input_norm="both"), aux_layers="default")
    with pytest.raises(EagleconvError, match="fc_norm and input_norm at once"):
        plan_layout(drafter)


def test_8_megatron_exports_without_d2t_are_refused(tmp_path: Path) -> None:
    source = made(tmp_path, "modelopt-megatron", own_embedding=False)
    tensors = make_tensors(make_spec(own_embedding=False))
    stored = {n.replace("layers.0.", "midlayer."): t for n, t in tensors.items()}
    write_safetensors(
        source / "model.safetensors", {n: t for n, t in stored.items() if n not in ("d2t", "t2d")}
    )
    with pytest.raises(SourceError, match="without d2t"):
        read(source)


def test_8_the_double_norm_of_modelopt_is_reported(tmp_path: Path) -> None:
    source = made(tmp_path, "modelopt-hf", own_embedding=False)
    assert "modelopt-double-norm" in names(read(source, aux_layers="default"))


def test_8_injected_yarn_of_modelopt_is_reported_and_kept(tmp_path: Path) -> None:
    yarn = Rope(10000.0, {"rope_type": "yarn", "factor": 32.0})
    drafter = read(
        made(tmp_path, "modelopt-hf", own_embedding=False, rope=yarn), aux_layers="default"
    )
    assert "modelopt-injected-rope" in names(drafter)
    assert plan_layout(drafter).config["rope_scaling"]["factor"] == 32.0


def test_9_torchspecs_pruned_heads_are_reported(tmp_path: Path) -> None:
    source = made(tmp_path, "torchspec", {"_torchspec_version": "0.1"})
    assert "torchspec-pruned-head" in names(read(source))


@pytest.mark.parametrize("layout", ["safeailab-eagle3", "angelslim"])
def test_10_a_rope_base_the_trainer_ignored_is_asked_about(layout: str, tmp_path: Path) -> None:
    source = made(tmp_path, layout, rope=Rope(500000.0, None))
    assert asked(read(source)) == {"rope theta"}
    assert read(source, rope_theta=10000.0).spec().rope.theta == 10000.0


def test_10_an_absent_base_is_never_filled_from_the_target(tmp_path: Path) -> None:
    source = made(tmp_path, "safeailab-eagle3", {"rope_theta": None, "rope_parameters": None})
    drafter = read(source, target=TARGET)
    assert (drafter.spec().rope.theta, drafter.facts["rope"].origin) == (10000.0, "default")


def test_10_a_saved_buffer_shows_the_base(tmp_path: Path) -> None:
    source = made(tmp_path, "safeailab-eagle3", own_embedding=False, rope=Rope(10000.0, None))
    tensors = {
        n.replace("layers.0.", "midlayer."): t
        for n, t in make_tensors(make_spec(own_embedding=False)).items()
    }
    for base, expected in ((10000.0, set()), (500000.0, {"rope theta"})):
        values = struct.pack("<16f", *(base ** (-i / 16) for i in range(16)))
        tensors["midlayer.self_attn.rotary_emb.inv_freq"] = ("F32", (16,), values)
        write_safetensors(source / "model.safetensors", tensors)
        drafter = read(source)
        assert asked(drafter) == expected
        assert list(drafter.dropped) == ["midlayer.self_attn.rotary_emb.inv_freq"]


def test_11_the_yarn_base_of_torchspecs_mla_is_asked_about(tmp_path: Path) -> None:
    yarn = Rope(50000.0, {"rope_type": "yarn", "factor": 64.0})
    source = made(tmp_path, "torchspec-mla", block="mla", rope=yarn)
    assert asked(read(source)) == {"rope theta"}
    plain = replace(yarn, scaling=None)
    other = made(tmp_path / "plain", "torchspec-mla", block="mla", rope=plain)
    assert asked(read(other)) == set()


def test_12_automodel_is_unwrapped_and_its_layers_counted(tmp_path: Path) -> None:
    source = made(tmp_path, "automodel", {"num_hidden_layers": 12, "model_type": "qwen3"})
    assert asked(read(source)) == {"aux layers"}
    drafter = read(source, aux_layers="default")
    assert drafter.spec().num_layers == 1
    plan = plan_layout(drafter)
    assert not any(name.startswith("model.") for name in plan.tensors)
    assert plan.config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert plan.config["num_hidden_layers"] == 1


def test_13_tied_embeddings_become_false(tmp_path: Path) -> None:
    drafter = read(made(tmp_path, "angelslim", {"tie_word_embeddings": True}))
    assert "tied-with-own-head" in names(drafter)
    assert plan_layout(drafter).config["tie_word_embeddings"] is False


def test_14_eagle_1_heads_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    one = ("F16", (2, 2), bytes(8))
    write_safetensors(
        tmp_path / "model.safetensors",
        {"fc.weight": one, "layers.0.self_attn.q_proj.weight": one, "embed_tokens.weight": one},
    )
    with pytest.raises(SourceError, match="EAGLE-1/2 head"):
        read(tmp_path)


def test_15_a_padded_target_vocabulary_is_reported_another_one_refused(tmp_path: Path) -> None:
    source = made(tmp_path, "specforge", {"norm_output": None})
    padded = read(source, target=replace(TARGET, vocab_size=192))
    assert "vocabulary-differs-by-padding" in names(padded)
    with pytest.raises(SourceError, match="target vocabulary of 160"):
        read(source, target=replace(TARGET, vocab_size=9999))


def test_16_peagle_keeps_its_norm_flags_flat(tmp_path: Path) -> None:
    source = made(
        tmp_path,
        "speculators-peagle",
        drafting="parallel",
        num_layers=2,
        mask_token_id=5,
        input_norm="per_aux",
        feedback="post_norm",
    )
    config = plan_layout(read(source)).config
    assert (config["fc_norm"], config["norm_output"], config["mask_token_id"]) == (True, True, 5)
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]


def test_17_a_missing_mask_token_is_asked_about(tmp_path: Path) -> None:
    source = made(
        tmp_path,
        "specforge-peagle",
        {"mask_token_id": None},
        drafting="parallel",
        num_layers=2,
        mask_token_id=5,
    )
    assert asked(read(source)) == {"mask token"}
    assert read(source, mask_token_id=9).spec().mask_token_id == 9


def test_20_identity_maps_at_full_vocabulary_are_dropped_with_proof(tmp_path: Path) -> None:
    drafter = read(made(tmp_path, "specforge", {"norm_output": None}, vocabulary="full"))
    assert set(drafter.dropped) == {"d2t", "t2d"}
    assert not {"d2t", "t2d"} & plan_layout(drafter).tensors.keys()


def test_unordered_ids_are_refused(tmp_path: Path) -> None:
    source = made(
        tmp_path,
        "speculators-eagle3",
        {"eagle_aux_hidden_state_layer_ids": [6, 2, 9]},
        aux=AuxLayers(3, (2, 6, 9), "explicit"),
    )
    with pytest.raises(ConversionError, match="not ascending"):
        read(source)


def test_all_questions_come_at_once(tmp_path: Path) -> None:
    source = made(
        tmp_path,
        "specforge",
        {
            "norm_output": True,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 5, 8]},
            "rope_parameters": {"rope_theta": 1e6},
            "rope_theta": 5e5,
        },
    )
    with pytest.raises(OpenQuestions) as caught:
        read(source).spec()
    assert len(caught.value.questions) == 3
