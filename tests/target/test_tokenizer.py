"""The same tokenizer however it is stored, and another one however little it differs."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from eagleconv.errors import SourceError
from eagleconv.target.compare_tokenizers import TokenDifference, compare_tokenizers
from eagleconv.target.files import GivenFiles
from eagleconv.target.tokenizer import TokenizerPrint, listed, print_from_json, read_tokenizer
from eagleconv.target.tokenizer_json import canonical
from tests.target import made_pair

DATA = Path(__file__).parents[1] / "data"
#: Version of the tokenizers library -> name -> what it wrote (data/make_tokenizers.py).
WRITTEN: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((DATA / "tokenizers").glob("*.json"))
}
OLDEST = WRITTEN["0.13.3"]


def of(files: Mapping[str, bytes | str | dict[str, Any]]) -> TokenizerPrint:
    """Read files that are given as bytes, text or JSON."""

    def get(name: str) -> bytes:
        content = files[name]
        if isinstance(content, bytes):
            return content
        return (content if isinstance(content, str) else json.dumps(content)).encode("utf-8")

    found = read_tokenizer(GivenFiles("org/target", files, get))
    assert found is not None
    return found


def parsed(text: dict[str, Any]) -> TokenizerPrint:
    return of({"tokenizer.json": text})


@pytest.fixture
def llama() -> dict[str, Any]:
    """A tokenizer in the form of Llama-3's."""
    return copy.deepcopy(OLDEST["split_and_bytes"])


@pytest.mark.parametrize("name", sorted(OLDEST))
def test_every_version_of_the_library_writes_the_same_tokenizer(name: str) -> None:
    prints = {v: parsed(texts[name]) for v, texts in WRITTEN.items() if name in texts}
    assert len(prints) >= 2
    assert len({p.digest for p in prints.values()}) == 1, prints.keys()


@pytest.mark.parametrize("name", sorted(set(OLDEST) - {"metaspace"}))
@pytest.mark.parametrize("pretty", [False, True])
def test_saving_it_again_changes_nothing(name: str, pretty: bool) -> None:
    again = Tokenizer.from_str(json.dumps(OLDEST[name])).to_str(pretty=pretty)
    assert of({"tokenizer.json": again}) == parsed(OLDEST[name])


def test_the_versions_do_differ_in_what_they_write() -> None:
    """Otherwise the test above would show nothing."""
    assert len({json.dumps(texts["split_and_bytes"]) for texts in WRITTEN.values()}) > 1
    assert len({json.dumps(texts["unigram"]) for texts in WRITTEN.values()}) > 1


def test_what_says_nothing_about_ids_is_left_out(llama: dict[str, Any]) -> None:
    before = parsed(llama)
    llama["padding"] = {"strategy": "BatchLongest", "pad_id": 0}
    llama["truncation"] = {"max_length": 16}
    llama["decoder"] = None
    llama["version"] = "2.0"
    del llama["model"]["dropout"]
    llama["model"]["continuing_subword_prefix"] = ""
    llama["added_tokens"].reverse()
    llama["pre_tokenizer"]["pretokenizers"][1].pop("trim_offsets")
    llama["post_processor"] = llama["post_processor"]["processors"][1]
    llama["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Sequence", "pretokenizers": [p]}
            for p in llama["pre_tokenizer"]["pretokenizers"]
        ],
    }
    llama["model"]["merges"] = [pair.split(" ") for pair in llama["model"]["merges"]]
    # The library does not read all of these; the ids of the probe text are no part of the digest.
    assert parsed(llama).digest == before.digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"type": "Metaspace", "replacement": "▁", "add_prefix_space": False, "str_rep": "▁"},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
        ),
        (
            {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        ),
        ({"type": "Sequence", "normalizers": [{"type": "NFC"}]}, {"type": "NFC"}),
        ({"type": "Sequence", "normalizers": []}, None),
        ({"type": "ByteLevel", "add_prefix_space": True}, {"type": "ByteLevel", "use_regex": True}),
    ],
)
def test_old_spellings_are_the_new_ones(old: Any, new: Any) -> None:
    assert canonical(old) == canonical(new)


def test_the_digest_of_a_list_is_of_all_of_it() -> None:
    """Bytes and blocks can collide; this cannot."""
    lists = (["a", "b"], ["a", "c"], ["ab"], ["a\n1:b"], ["", "a", "b"])
    assert len({listed(texts).digest for texts in lists}) == len(lists)


Change = Callable[[dict[str, Any]], Any]


def swap_ids(text: dict[str, Any]) -> None:
    vocab = text["model"]["vocab"]
    names = {i: token for token, i in vocab.items()}
    vocab |= {names[50]: 51, names[51]: 50}


def flag(name: str) -> Change:
    def change(text: dict[str, Any]) -> None:
        token = text["added_tokens"][0]
        token[name] = not token[name]

    return change


CHANGES: dict[str, tuple[Change, str, bool]] = {
    "two ids swapped": (swap_ids, "id 50 is", True),
    "a token renamed": (lambda t: t["model"]["vocab"].update({"zz": t["model"]["vocab"].pop("e")}), '"zz"', True),
    "a token gone": (lambda t: t["model"]["vocab"].pop(max(t["model"]["vocab"], key=t["model"]["vocab"].get)), "not there any more", True),
    "merges swapped": (lambda t: t["model"]["merges"].insert(3, t["model"]["merges"].pop(4)), "merge 3 is", True),
    "a merge gone": (lambda t: t["model"]["merges"].pop(), "merges, recorded", True),
    "an added token renamed": (lambda t: t["added_tokens"][1].update(content="<|bot|>"), '"<|bot|>"', True),
    "an added token gone": (lambda t: t["added_tokens"].pop(1), "is no added token", True),
    "lstrip": (flag("lstrip"), "differs in lstrip", True),
    "rstrip": (flag("rstrip"), "differs in rstrip", True),
    "single_word": (flag("single_word"), "differs in single_word", True),
    "normalized": (flag("normalized"), "differs in normalized", True),
    "special": (flag("special"), "differs in special", False),
    "lower case": (lambda t: t.update(normalizer={"type": "Lowercase"}), "Lowercase", True),
    "another pattern": (lambda t: t["pre_tokenizer"]["pretokenizers"][0].update(pattern={"Regex": r"\w+"}), r"\\w+", True),
    "a prefix space": (lambda t: t["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True), "add_prefix_space", True),
    "byte fallback": (lambda t: t["model"].update(byte_fallback=True), "byte_fallback", True),
    "ignored merges": (lambda t: t["model"].update(ignore_merges=True), "ignore_merges", True),
    "no begin token": (lambda t: t.update(post_processor=None), "post_processor is none", False),
    "a token added": (
        lambda t: t["added_tokens"].append(t["added_tokens"][0] | {"id": 90, "content": "<|pad|>"}),
        "1 added tokens from id 90 on are not recorded",
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_any_change_shows(llama: dict[str, Any], name: str, stored: bool) -> None:
    change, sentence, harmful = CHANGES[name]
    before = parsed(llama)
    if stored:
        before = print_from_json(json.loads(json.dumps(before.as_json())))
    change(llama)
    after = parsed(llama)
    assert before.digest != after.digest
    found = compare_tokenizers(before, after)
    assert any(sentence in d.sentence for d in found), found
    assert any(d.harmful for d in found) == harmful, found


def test_the_first_token_that_differs_is_named_on_both_sides(llama: dict[str, Any]) -> None:
    before = parsed(llama)
    swap_ids(llama)
    (found,) = compare_tokenizers(before, parsed(llama))
    texts = before.vocabulary.texts
    assert texts is not None
    old, new = (json.dumps(texts[i], ensure_ascii=False) for i in (50, 51))
    assert found == TokenDifference(
        "vocabulary", True, f"id 50 is {new}, recorded {old}; 2 of 90 ids differ"
    )


def test_a_change_that_its_byte_hides_shows_in_its_block(llama: dict[str, Any]) -> None:
    """One byte is kept of each id; one in 256 changes has the same one."""
    before = print_from_json(parsed(made_pair.tokenizer()).as_json())
    text = made_pair.tokenizer()
    vocab, names = text["model"]["vocab"], {i: t for t, i in text["model"]["vocab"].items()}
    number = 300
    for attempt in range(5000):
        changed = json.loads(json.dumps(text))
        changed["model"]["vocab"].pop(names[number])
        changed["model"]["vocab"][f"zzz{attempt}"] = number
        after = parsed(changed)
        if after.vocabulary.each == before.vocabulary.each:
            break
    assert len(vocab) == 640
    assert after.digest != before.digest
    found = next(d for d in compare_tokenizers(before, after) if d.part == "vocabulary")
    assert found.harmful
    assert found.sentence == "an id of 256 to 511 is another token than recorded"


def test_a_lower_casing_normaliser_names_where_the_probe_parts(llama: dict[str, Any]) -> None:
    before = parsed(llama)
    llama["normalizer"] = {"type": "Lowercase"}
    (found,) = compare_tokenizers(before, parsed(llama))
    assert found.sentence.startswith('normalizer is {"type": "Lowercase"}, recorded none; token ')


def test_json_and_back(llama: dict[str, Any]) -> None:
    before = parsed(llama)
    again = print_from_json(json.loads(json.dumps(before.as_json())))
    assert again == before
    assert again.digest == before.digest
    assert compare_tokenizers(again, before) == ()


def test_it_stays_small() -> None:
    """A vocabulary of 128k ids and as many merges."""
    ids = {f"token{i}": i for i in range(128000)}
    merges = [[f"a{i}", f"b{i}"] for i in range(128000)]
    text = {"model": {"type": "BPE", "vocab": ids, "merges": merges}, "added_tokens": []}
    assert len(json.dumps(parsed(text).as_json())) < 400_000


@st.composite
def vocabularies(draw: st.DrawFn) -> dict[str, int]:
    tokens = draw(st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=20, unique=True))
    return {token: i for i, token in enumerate(tokens)}


def shuffled(value: Any, rng: random.Random) -> Any:
    """Return JSON with the keys of every object in another order."""
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {k: shuffled(value[k], rng) for k in keys}
    return [shuffled(v, rng) for v in value] if isinstance(value, list) else value


@given(st.sampled_from(sorted(OLDEST)), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_the_order_of_keys_never_changes_the_digest(name: str, rng: random.Random) -> None:
    assert parsed(shuffled(OLDEST[name], rng)).digest == parsed(OLDEST[name]).digest


@given(vocabularies(), st.data())
@settings(deadline=None, max_examples=60)
def test_changing_an_entry_always_changes_the_digest(
    vocabulary: dict[str, int], data: st.DataObject
) -> None:
    text = {"model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}}
    before = parsed(text).digest
    token = data.draw(st.sampled_from(sorted(vocabulary)))
    new = data.draw(st.text(min_size=1, max_size=6).filter(lambda t: t not in vocabulary))
    changed = {new if t == token else t: i for t, i in vocabulary.items()}
    assert parsed({"model": {"type": "WordLevel", "vocab": changed}}).digest != before
    other = data.draw(st.sampled_from(sorted(vocabulary)))
    swapped = vocabulary | {token: vocabulary[other], other: vocabulary[token]}
    same = (
        parsed({"model": {"type": "WordLevel", "vocab": swapped, "unk_token": "?"}}).digest
        == before
    )
    assert same == (token == other)


@st.composite
def broken(draw: st.DrawFn) -> Any:
    """A tokenizer.json with one value replaced by another kind of value."""
    text: Any = copy.deepcopy(OLDEST[draw(st.sampled_from(sorted(OLDEST)))])
    at, key = text, None
    for _ in range(draw(st.integers(1, 4))):
        keys = (
            list(at)
            if isinstance(at, dict)
            else list(range(len(at)))
            if isinstance(at, list)
            else []
        )
        if not keys:
            break
        parent, key = at, draw(st.sampled_from(keys))
        at = at[key]
    parent[key] = draw(
        st.sampled_from([None, 0, -1, 1.5, True, "", "x y", [], {}, [1], {"type": "?"}, [["a"]]])
    )
    return text


@given(broken())
@settings(deadline=None, max_examples=300)
def test_a_broken_file_is_one_sentence(text: Any) -> None:
    said = None
    try:
        parsed(text)
    except SourceError as error:
        said = error
    assert said is None or ("tokenizer.json" in said.message and said.hint)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"tokenizer.json": "{"}, "not valid JSON"),
        ({"tokenizer.json": "{}"}, "no tokenizer of a known form"),
        ({"tokenizer.model": b"\xff\xff\xff"}, "no tokenizer of a known form"),
        ({"tokenizer.model": b""}, "no pieces"),
        ({"tekken.json": "{}"}, "no tokenizer of a known form"),
        ({"vocab.json": '{"a": "b"}'}, "no tokenizer of a known form"),
    ],
)
def test_broken_files(files: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        of(files)


def test_no_tokenizer_is_none() -> None:
    assert read_tokenizer(GivenFiles("x", {"config.json": 1}, lambda _: b"")) is None


def test_sentencepiece_as_its_own_library_reads_it() -> None:
    """What sentencepiece 0.2 says of its own file (data/make_sentencepiece.py)."""
    data = (DATA / "sentencepiece/sentencepiece.model").read_bytes()
    said = json.loads((DATA / "sentencepiece/sentencepiece.json").read_text(encoding="utf-8"))
    found = of({"tokenizer.model": data})
    assert found.kind == "sentencepiece"
    assert found.vocabulary.texts == said["pieces"]
    assert found.merges is not None
    assert found.merges.texts is not None
    assert [float(s) for s in found.merges.texts] == pytest.approx(said["scores"], rel=1e-6)
    assert [t.id for t in found.added if t.flags == "c"] == said["control"]
    assert [t.id for t in found.added if t.flags == "u"] == said["unknown"]
    assert found.components["model"] == {
        "type": "sentencepiece",
        "model_type": 2,
        "byte_fallback": True,
    }
    assert found.components["normalizer"]["add_dummy_prefix"] is False


def test_a_changed_piece_of_sentencepiece_is_named() -> None:
    data = (DATA / "sentencepiece/sentencepiece.model").read_bytes()
    before = of({"tokenizer.model": data})
    after = of({"tokenizer.model": data.replace(b"<|user|>", b"<|usex|>")})
    (found,) = compare_tokenizers(before, after)
    assert '"<|usex|>"' in found.sentence
    assert found.harmful


def test_tiktoken(tmp_path: Path) -> None:
    tokens = [bytes([i]) for i in range(256)] + [b"th", b"the"]
    lines = "".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens))
    config = {"added_tokens_decoder": {"258": {"content": "<|end|>", "special": True}}}
    before = of({"qwen.tiktoken": lines, "tokenizer_config.json": config})
    assert (before.kind, before.count, before.largest_id) == ("tiktoken", 259, 258)
    assert [(t.id, t.content) for t in before.added] == [(258, "<|end|>")]
    swapped = lines.replace(" 256\n", " x\n").replace(" 257\n", " 256\n").replace(" x\n", " 257\n")
    reordered = "".join(sorted(lines.splitlines(keepends=True)))
    assert of({"qwen.tiktoken": reordered, "tokenizer_config.json": config}) == before
    (found,) = compare_tokenizers(
        before, of({"tokenizer.model": swapped, "tokenizer_config.json": config})
    )
    assert found.sentence.startswith('id 256 is "the", recorded "th"')


def test_tekken() -> None:
    vocab = [
        {"rank": i, "token_bytes": base64.b64encode(bytes([i])).decode(), "token_str": None}
        for i in range(256)
    ]
    text = {
        "config": {"pattern": r"\w+", "default_vocab_size": 200, "default_num_special_tokens": 10},
        "vocab": vocab,
        "special_tokens": [{"rank": 1, "token_str": "<s>"}],
    }
    before = of({"tekken.json": text})
    assert (before.kind, before.count) == ("tekken", 200)
    texts = before.vocabulary.texts
    assert texts is not None
    assert (texts[1], texts[10 + 65]) == ("<s>", "A")
    text["config"]["pattern"] = r"\w"  # type: ignore[index]
    (found,) = compare_tokenizers(before, of({"tekken.json": text}))
    assert (found.part, found.harmful) == ("model", True)


def test_vocabulary_and_merges() -> None:
    model = OLDEST["byte_level"]["model"]
    files: dict[str, Any] = {
        "vocab.json": model["vocab"],
        "merges.txt": "#version: 0.2\n" + "\n".join(model["merges"]) + "\n",
        "added_tokens.json": {"<|x|>": 90},
    }
    before = of(files)
    whole = parsed(OLDEST["byte_level"])
    assert before.merges is not None
    assert whole.merges is not None
    assert before.merges.digest == whole.merges.digest
    assert before.count == whole.count + 1
    # Two forms of the same ids differ in their form alone.
    del files["added_tokens.json"]
    (found,) = (d for d in compare_tokenizers(of(files), whole) if d.part == "form")
    assert not found.harmful
