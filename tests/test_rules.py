"""Every rule fires on a drafter with its fault and on no sound one, and says when it did not look."""

import ast
import json
import re
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eagleconv
from eagleconv.checkpoint.local import open_local
from eagleconv.drafter.config_facts import SECTIONS
from eagleconv.rules import BY_CODE, RULES
from eagleconv.rules.engine import _CODE_OF
from eagleconv.rules.finding import Validated
from eagleconv.rules.rule import Rule
from eagleconv.rules.validate import _NEEDS, QUESTION_RULES
from eagleconv.rules.values import fresh_like, summarise
from fixtures import changes, weights
from fixtures.changes import Tensors
from fixtures.targets import TARGETS, tokenizer
from tests.test_bug_census import ALL, expect
from tests.test_fixtures import FIXTURES
from tests.test_upgrade_cli import ROOT

CODE = re.compile(r"EC[A-Z]\d{3}")
VLLM, SGLANG = ["vllm==0.32"], ["sglang"]
TINY = str(FIXTURES / "targets" / "tiny")
EAGLE = "eagle_config"


# A drafter for each rule that no fixture breaks.


def constant(name: str, value: float, count: int | None = None) -> changes.Change:
    """Store one value everywhere in a tensor, or in its first `count` places."""

    def change(tensors: Tensors) -> None:
        dtype, shape, data = tensors[name]
        size = {"BF16": 2, "F16": 2, "F32": 4}[dtype]
        pattern = struct.pack("<f", value)[2:] if dtype == "BF16" else struct.pack("<e", value)
        count_ = len(data) // size if count is None else count
        tensors[name] = (dtype, shape, pattern * count_ + data[count_ * size :])

    return changes.editing(change)


def both_spellings(tensors: Tensors) -> None:
    tensors["midlayer.mlp.up_proj.weight"] = tensors["layers.0.mlp.up_proj.weight"]


def a_hole(tensors: Tensors) -> None:
    for name in [n for n in tensors if n.startswith("layers.1.")]:
        tensors[name.replace("layers.1.", "layers.2.")] = tensors.pop(name)


def pruned_by_offsets(tensors: Tensors) -> None:
    """Take the target's rows d2t[i] for lm_head, as TorchSpec's tool does."""
    dtype, (vocab, wide), body = _target_rows()
    offsets = struct.unpack(f"<{len(tensors['d2t'][2]) // 8}q", tensors["d2t"][2])
    rows = b"".join(body[i * wide * 2 : (i + 1) * wide * 2] for i in offsets)
    assert max(offsets) < vocab
    tensors["lm_head.weight"] = (dtype, (len(offsets), wide), rows)


def _target_rows() -> weights.Tensor:
    from fixtures.targets import tensors

    return tensors(TARGETS["single"])["lm_head.weight"]


def target(config: Mapping[str, Any], tokens: int = 0) -> Callable[[Path], str]:
    """Make a target of its own beside the drafter."""

    def make(folder: Path) -> str:
        (folder / "target").mkdir()
        base = TARGETS["small"].config
        (folder / "target" / "config.json").write_text(json.dumps({**base, **config}))
        if tokens:
            (folder / "target" / "tokenizer.json").write_text(json.dumps(tokenizer(tokens, None)))
        return str(folder / "target")

    return make


#: Code -> fixture, keys changed in its config.json (None removes one), change of its files, flags.
BROKEN: dict[str, tuple[str, dict[str, Any], changes.Change | None, dict[str, Any]]] = {
    "ECC006": ("torchspec", {"norm_output": "false"}, None, {}),
    "ECC007": ("torchspec", {"num_attention_heads": None, "head_dim": None}, None, {}),
    "ECC009": ("specforge", {EAGLE: {"norm_output": True}}, None, {}),
    "ECC014": ("modelopt", {EAGLE: {"use_aux_hidden_state": False}}, None, {}),
    "ECC016": (
        "torchspec-full",
        {"tie_word_embeddings": True},
        changes.without("lm_head.weight"),
        {},
    ),
    "ECC017": ("specforge", {"my_trainer_version": 3}, None, {}),
    "ECC021": ("flat-qwen3", {"architectures": ["LlamaForCausalLMEagle3"]}, None, {}),
    "ECT003": (
        "specforge",
        {},
        changes.adding("midlayer.mlp.down_proj.weight", ("BF16", (64, 63), bytes(64 * 63 * 2))),
        {},
    ),
    "ECT005": (
        "speculators-31",
        {},
        changes.adding("fc_norm.3.weight", ("BF16", (64,), bytes(128))),
        {},
    ),
    "ECT006": ("borrowed-head", {}, changes.editing(both_spellings), {}),
    "ECT007": ("speculators-layers", {}, changes.editing(a_hole), {}),
    "ECT008": ("own-width", {}, changes.without("embed_tokens.weight"), {}),
    "ECT011": ("specforge", {}, constant("norm.weight", float("nan"), 1), {}),
    "ECT012": ("specforge", {}, constant("norm.weight", 0.0), {}),
    "ECT013": ("specforge", {}, constant("lm_head.weight", 0.5), {"deep": True}),
    "ECT014": ("specforge", {}, constant("norm.weight", 1.0), {}),
    "ECV003": (
        "torchspec",
        {},
        changes.both(changes.without("t2d"), changes.vocabulary([1, 1, *range(2, 48)], 192),
                     changes.without("t2d")),
        {},
    ),
    "ECV006": (
        "torchspec",
        {},
        changes.both(changes.adding("d2t", ("I64", (48,), bytes(384))), changes.without("t2d")),
        {},
    ),
    "ECV007": ("specforge", {"vocab_size": 200}, None, {}),
    "ECV008": ("torchspec", {}, changes.without("lm_head.weight"), {}),
    "ECV010": ("specforge-full", {}, changes.set_d2t(7, 3), {}),
    "ECV011": ("specforge", {}, changes.adding("d2t", ("F32", (48,), bytes(192))), {}),
    "ECV015": ("speculators-peagle", {"mask_token_id": 192}, None, {}),
    "ECR005": ("short-positions", {}, None, {"target": str(FIXTURES / "targets" / "long")}),
    "ECR007": (
        "torchspec-llama3",
        {
            "rope_scaling": {
                "type": "llama3",
                "factor": 2.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 512,
            }
        },
        None,
        {},
    ),
    "ECQ001": ("specforge", {"quantization_config": {"quant_method": "fp8"}}, None, {}),
    "ECQ005": (
        "short-positions",
        {},
        constant("norm.weight", 70000.0, 1),
        {"target": target({"dtype": "float16"})},
    ),
    "ECE002": ("specforge", {"target_hidden_size": ...}, None, {"engines": VLLM}),
    "ECE005": ("specforge", {"fc_norm": True}, None, {"engines": VLLM}),
    "ECE007": ("torchspec-mla-full", {}, None, {"engines": VLLM}),
    "ECP003": (
        "speculators",
        {"speculators_config": {"verifier": {"name_or_path": "org/model-3.1"}}},
        None,
        {"target": TINY},
    ),
    "ECP004": ("short-positions", {}, None, {"target": target({}, 65)}),
    "ECP006": (
        "torchspec",
        {},
        changes.editing(pruned_by_offsets),
        {"target": str(FIXTURES / "targets" / "single")},
    ),
}  # fmt: skip


def broken(code: str, tmp_path: Path) -> Validated:
    """Validate the drafter of one row of `BROKEN`."""
    fixture, config, change, flags = BROKEN[code]
    source = tmp_path / "eagle3-source"
    shutil.copytree(
        FIXTURES / "valid" / fixture, source, ignore=shutil.ignore_patterns("expect.json")
    )
    path = source / "config.json"
    written = json.loads(path.read_text())
    for key, value in config.items():
        if value is None:
            written.pop(key)
        else:
            written[key] = None if value is ... else value
    path.write_text(json.dumps(written))
    if change is not None:
        change(source)
    made = {k: v(tmp_path) if callable(v) else v for k, v in flags.items()}
    return eagleconv.validate(str(source), **made)


def found_by(result: Validated) -> set[str]:
    return {finding.code for finding in result.findings}


@pytest.fixture(scope="module", name="pool")
def results_of_everything(tmp_path_factory: pytest.TempPathFactory) -> list[Validated]:
    """Every fixture as its expect.json validates it, and every row of `BROKEN`."""
    out = []
    for fixture in ALL:
        source = tmp_path_factory.mktemp("pool") / "eagle3-source"
        shutil.copytree(fixture, source, ignore=shutil.ignore_patterns("expect.json"))
        flags = expect(fixture)["validate"]["flags"]
        if "target" in flags:
            flags["target"] = str(ROOT / flags["target"])
        out.append(eagleconv.validate(str(source), **flags))
    plain = str(FIXTURES / "valid" / "specforge")
    out.append(eagleconv.validate(plain, context_length=1024))
    out.append(eagleconv.validate(plain, engines=("vllm==99.0",)))
    return out + [broken(code, tmp_path_factory.mktemp(code)) for code in BROKEN]


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_drafter_is_found(code: str, tmp_path: Path) -> None:
    result = broken(code, tmp_path)
    assert not result.unreadable
    assert code in found_by(result)


@pytest.mark.parametrize(
    ("version", "said"), [("0.9.0", "0.9.1"), ("0.9.1", ""), ("0.32", ""), ("99.1", "0.33.0")]
)
def test_a_version_outside_of_what_was_read_is_said(version: str, said: str) -> None:
    source = str(FIXTURES / "valid" / "specforge")
    result = eagleconv.validate(source, engines=(f"vllm=={version}",))
    found = [f.message for f in result.findings if f.code == "ECE009"]
    assert bool(found) == bool(said)
    assert all(f"the facts are those of {said}" in message for message in found)


@pytest.mark.parametrize("name", ["tensorrt-llm", "TensorRT_LLM", "trtllm"])
def test_engines_have_other_names(name: str) -> None:
    result = eagleconv.validate(str(FIXTURES / "valid" / "specforge"), engines=(name,))
    assert result.engines[0].engine == "trtllm"


def test_the_method_guessed_from_a_path(tmp_path: Path) -> None:
    source = FIXTURES / "valid" / "specforge"
    for name, wanted in (("my-drafter", True), ("my-eagle3", False)):
        shutil.copytree(source, tmp_path / name)
        result = eagleconv.validate(str(tmp_path / name), engines=VLLM)
        assert ("ECF005" in found_by(result)) == wanted


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_every_rule_fires_somewhere_and_is_silent_elsewhere(
    rule: Rule, pool: list[Validated]
) -> None:
    if rule.code != "ECF005":
        assert any(rule.code in found_by(result) for result in pool)
    assert any(rule.code in r.checks_run and rule.code not in found_by(r) for r in pool)


# Codes.


def codes_in(folder: Path) -> set[str]:
    """Return the codes in the string literals of a folder's modules."""
    trees = [ast.parse(path.read_text()) for path in folder.rglob("*.py")]
    nodes = (node for tree in trees for node in ast.walk(tree))
    texts = (n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return {text for text in texts if CODE.fullmatch(text)}


def test_codes_and_names_are_unique_and_well_formed() -> None:
    assert len({rule.code for rule in RULES}) == len(RULES) == len(BY_CODE)
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert CODE.fullmatch(rule.code)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.name)


def test_every_code_in_use_is_a_rule_and_every_rule_is_in_use() -> None:
    reader = codes_in(ROOT / "eagleconv" / "drafter") | set(QUESTION_RULES.values())
    judged = set(_CODE_OF.values())
    assert reader | judged | codes_in(ROOT / "eagleconv" / "rules") == set(BY_CODE)
    for rule in RULES:
        assert (rule.check is not None) or rule.code in reader
        assert rule.check is None or rule.code not in reader
    assert judged <= {rule.code for rule in RULES if rule.needs == ("engine",)}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_a_page_is_complete(rule: Rule) -> None:
    for part in (rule.what, rule.why, rule.example, rule.fix):
        assert len(part) > 5
        assert part == part.strip()
    assert rule.what.endswith(".")
    assert rule.why.endswith(".")
    assert set(rule.needs) <= set(_NEEDS)
    assert set(rule.unread) <= {section.name for section in SECTIONS}
    assert set(rule.engine_severity) <= {"vllm", "sglang", "trtllm"}


# Skipped is not passed.


def test_a_rule_without_what_it_needs_is_skipped_with_a_reason() -> None:
    result = eagleconv.validate(str(FIXTURES / "valid" / "specforge"))
    skipped = {s.code: s.reason for s in result.skipped}
    assert set(skipped) == {rule.code for rule in RULES if rule.needs}
    assert not set(skipped) & set(result.checks_run)
    assert set(skipped) | set(result.checks_run) == set(BY_CODE)
    for rule in RULES:
        if rule.needs:
            assert skipped[rule.code] == _NEEDS[rule.needs[0]]


@pytest.mark.parametrize(
    ("need", "flags"),
    [
        ("target", {"target": TINY}),
        ("target weights", {"target": str(FIXTURES / "targets" / "single")}),
        ("engine", {"engines": VLLM}),
        ("deep", {"deep": True}),
        ("context length", {"context_length": 1024}),
    ],
)
def test_a_rule_with_what_it_needs_runs(need: str, flags: dict[str, Any]) -> None:
    result = eagleconv.validate(str(FIXTURES / "valid" / "specforge"), **flags)
    for rule in RULES:
        if rule.needs == (need,):
            assert rule.code in result.checks_run, rule.code


def test_a_target_without_weights_says_so() -> None:
    result = eagleconv.validate(str(FIXTURES / "valid" / "specforge"), target=TINY)
    reasons = {s.code: s.reason for s in result.skipped}
    assert "holds no weights" in reasons["ECP005"]
    assert "holds no weights" in reasons["ECP006"]


def test_a_rule_whose_facts_could_not_be_read_is_skipped_not_passed(tmp_path: Path) -> None:
    result = broken("ECV011", tmp_path)
    reasons = {s.code: s.reason for s in result.skipped}
    for code in ("ECV001", "ECV002", "ECV010", "ECT002", "ECT005"):
        assert "could not be read" in reasons[code], code
        assert code not in result.checks_run
    assert "ECV011" in result.checks_run


def test_a_rule_is_skipped_or_run_never_both(pool: list[Validated]) -> None:
    for result in pool:
        if not result.unreadable:
            run, skipped = set(result.checks_run), {s.code for s in result.skipped}
            assert run | skipped == set(BY_CODE)
            assert not run & skipped
            assert found_by(result) <= run


# Freshly initialised matrices (measured on 260 matrices of real models: no false alarm).


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("shape", [(64, 64), (192, 576), (1024, 256)], ids=str)
@pytest.mark.parametrize(
    ("draw", "said", "like"),
    [
        ("normal 0.02", None, "transformers"),
        ("normal 0.006", 0.006, "transformers"),
        ("normal 1", None, "torch.nn.Embedding"),
        ("linear", None, "torch.nn.Linear"),
        ("xavier uniform", None, "Xavier"),
        ("xavier normal", None, "Xavier"),
        ("normal 0.037", None, ""),
        ("laplace", None, ""),
        ("student", None, ""),
        ("mean", None, ""),
    ],
)
def test_initialisers_are_told_from_trained_matrices(
    draw: str, said: float | None, like: str, shape: tuple[int, int], dtype: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    xavier = (2 / sum(shape)) ** 0.5
    bound = {"linear": shape[1] ** -0.5, "xavier uniform": xavier * 3**0.5}.get(draw, 0.0)
    values = {
        "laplace": lambda: rng.laplace(0, 0.02 / 2**0.5, shape),
        "student": lambda: rng.standard_t(8, shape) * 0.02 * 0.75**0.5,
        "mean": lambda: rng.normal(0.01, 0.02, shape),
        "xavier normal": lambda: rng.normal(0, xavier, shape),
    }.get(draw, lambda: rng.uniform(-bound, bound, shape))()
    if draw.startswith("normal"):
        values = rng.normal(0, float(draw.split()[1]), shape)
    weights.write(
        tmp_path / "model.safetensors", {"w": (dtype, shape, weights.floats(values, dtype))}, {}
    )
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    checkpoint = open_local(str(tmp_path))
    summary = summarise(checkpoint, checkpoint.tensors["w"])
    checkpoint.close()
    assert summary is not None
    found = fresh_like(summary, said)
    assert found.startswith(like) if like else found == ""


def test_a_width_that_the_config_names_is_looked_for(tmp_path: Path) -> None:
    source = tmp_path / "eagle3-source"
    shutil.copytree(FIXTURES / "valid" / "specforge", source)
    path = source / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"initializer_range": 0.006}))
    changes.fresh("midlayer.mlp.gate_proj.weight", 0.006)(source)
    result = eagleconv.validate(str(source), deep=True)
    tensors = {f.location.tensor for f in result.findings if f.code == "ECT015"}
    assert "midlayer.mlp.gate_proj.weight" in tensors
    assert "midlayer.mlp.up_proj.weight" not in tensors
