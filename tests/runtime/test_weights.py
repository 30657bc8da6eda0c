"""From a checkpoint's bytes to torch tensors."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from eagleconv.checkpoint.local import open_local  # noqa: E402
from eagleconv.checkpoint.values import as_numbers  # noqa: E402
from eagleconv.drafter.declared import Declared  # noqa: E402
from eagleconv.drafter.layouts import CANONICAL  # noqa: E402
from eagleconv.drafter.read import Drafter, read_drafter  # noqa: E402
from eagleconv.errors import ConversionError, UsageError  # noqa: E402
from eagleconv.runtime.reference import ReferenceDrafter  # noqa: E402
from eagleconv.runtime.weights import load_weights  # noqa: E402
from tests.drafters import make_spec, write_drafter  # noqa: E402

FIXTURES = Path(__file__).parents[2] / "fixtures" / "valid"
DECLARED = Declared(
    norm_output_meaning="feedback",
    norm_before_residual=True,
    aux_layers="2,4,5",
    rope_theta=10000.0,
    rope_scaling={},
    attention_window=0,
)


def read(path: Path) -> Drafter:
    return read_drafter(open_local(str(path)), DECLARED)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("into", ["float32", "float64"])
def test_every_tensor_has_its_values(dtype: str, into: str, tmp_path: Path) -> None:
    spec = make_spec(dtype=dtype)
    tensors = write_drafter(tmp_path / "drafter", spec, CANONICAL)
    drafter = read(tmp_path / "drafter")
    weights = load_weights(drafter, getattr(torch, into))
    assert {*weights} == {*tensors} - {"t2d"}
    for name, (kind, shape, data) in tensors.items():
        if name == "t2d":
            continue
        assert weights[name].shape == shape
        assert weights[name].dtype == (torch.int64 if name == "d2t" else getattr(torch, into))
        assert np.array_equal(weights[name].double().numpy().ravel(), as_numbers(data, kind))


def small_fixtures() -> list[Path]:
    """Every valid fixture that is whole and not quantised."""
    return [p.parent for p in sorted(FIXTURES.glob("*/expect.json")) if "fp8" not in p.parent.name]


@pytest.mark.parametrize("path", small_fixtures(), ids=lambda p: p.name)
def test_every_valid_fixture_makes_a_step(path: Path) -> None:
    expect = json.loads((path / "expect.json").read_text())
    flags = expect["upgrade"]["flags"]
    said = dict(zip(flags[::2], flags[1::2], strict=True))
    names = {key: key.removeprefix("--").replace("-", "_") for key in said}
    numbers = {"--rope-theta": float, "--attention-window": int, "--mask-token-id": int}
    values = {names[k]: numbers.get(k, str)(v) for k, v in said.items()}
    if "norm_before_residual" in values:
        values["norm_before_residual"] = values["norm_before_residual"] == "true"
    drafter = read_drafter(open_local(str(path)), Declared(**values))
    spec = drafter.spec()
    lent = torch.ones(spec.vocab_size, spec.hidden_size)
    weights = load_weights(drafter, torch.float64, embedding=lent, lm_head=lent)
    reference = ReferenceDrafter(spec, weights)
    aux = torch.ones(4, max(spec.aux.count, 1) * spec.target_hidden_size)
    out = reference.step(torch.arange(4), reference.fuse(aux), torch.arange(4))
    assert out.logits.shape == (4, spec.draft_vocab_size)
    assert out.feedback.shape == (4, spec.hidden_size)
    assert out.logits.isfinite().all()
    targets = reference.target_ids(torch.arange(spec.draft_vocab_size))
    assert len(targets.unique()) == spec.draft_vocab_size
    assert 0 <= targets.min() <= targets.max() < spec.vocab_size


def test_absolute_ids_become_offsets() -> None:
    drafter = read(FIXTURES / "d2t-absolute")
    weights = load_weights(drafter, embedding=torch.ones(64, 16))
    stored = drafter.checkpoint.read(drafter.tensors["d2t"])
    absolute = as_numbers(stored, drafter.checkpoint.tensors[drafter.tensors["d2t"]].dtype)
    reference = ReferenceDrafter(drafter.spec(), weights)
    assert reference.target_ids(torch.arange(len(absolute))).tolist() == absolute.tolist()


def test_borrowed_matrices_are_the_targets(tmp_path: Path) -> None:
    spec = make_spec(vocabulary="full", own_embedding=False, own_head=False)
    write_drafter(tmp_path / "drafter", spec, CANONICAL)
    drafter = read(tmp_path / "drafter")
    draw = torch.Generator().manual_seed(0)
    embedding = torch.randn(192, 64, generator=draw)  # padded: the drafter knows 160
    head = torch.randn(192, 64, generator=draw)
    with pytest.raises(ConversionError, match=r"has no embed_tokens.weight and uses its target's"):
        load_weights(drafter, lm_head=head)
    with pytest.raises(ConversionError, match=r"has no lm_head.weight and uses its target's"):
        load_weights(drafter, embedding=embedding)
    with pytest.raises(ConversionError, match=r"is \[192, 48\], expected \[160, 64\]"):
        load_weights(drafter, embedding=embedding[:, :48], lm_head=head)
    with pytest.raises(ConversionError, match=r"is \[100, 64\], expected \[160, 64\]"):
        load_weights(drafter, embedding=embedding, lm_head=head[:100])
    weights = load_weights(drafter, embedding=embedding, lm_head=head)
    assert weights["embed_tokens.weight"].equal(embedding)
    assert weights["lm_head.weight"].equal(head[:160])


def test_own_matrices_are_kept(tmp_path: Path) -> None:
    write_drafter(tmp_path / "drafter", make_spec(), CANONICAL)
    drafter = read(tmp_path / "drafter")
    lent = torch.zeros(160, 64)
    weights = load_weights(drafter, embedding=lent, lm_head=lent)
    assert weights["embed_tokens.weight"].any()
    assert weights["lm_head.weight"].shape == (48, 64)


def test_a_quantised_drafter_is_refused() -> None:
    drafter = read(FIXTURES / "modelopt-fp8")
    with pytest.raises(
        ConversionError, match="quantised drafter is not supported by the reference"
    ):
        load_weights(drafter)


def test_other_dtypes_are_refused(tmp_path: Path) -> None:
    write_drafter(tmp_path / "drafter", make_spec(), CANONICAL)
    with pytest.raises(UsageError, match=r"not in torch.int8"):
        load_weights(read(tmp_path / "drafter"), torch.int8)


def test_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from eagleconv.errors import MissingExtraError\n"
        "try: import eagleconv.runtime.reference\n"
        "except MissingExtraError as e: print(e.message, e.hint, e.exit_code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "computing with a drafter needs torch pip install 'eagleconv[run]' 5\n"
