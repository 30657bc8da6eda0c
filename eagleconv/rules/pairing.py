"""Rules about the pair: does the drafter fit this target?"""

from collections.abc import Iterator

from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject
from eagleconv.rules.values import fresh_like, moments
from eagleconv.target.embedding import compare_embedding, compare_head


def _embedding(s: Subject) -> Iterator[Hit]:
    found = compare_embedding(s.drafter, s.target, s.deep) if s.target else None
    if found is None or found.equal:
        return
    rows = f"{found.differing} of {found.rows} rows differ"
    if found.examples:
        rows += f" (first {', '.join(map(str, found.examples))})"
    if found.unrelated:
        stored = s.checkpoint.tensors[found.tensor]
        fresh = fresh_like(moments(found.sample.ravel(), stored.shape)) != ""
        yield Hit(
            f"the drafter's embedding has nothing to do with the target's (cosine "
            f"{found.cosine:.3f}, {rows})"
            + (": it looks freshly initialised, exported by mistake" if fresh else ""),
            "leave it out, so that engines share the target's, if it was trained with the target's",
            tensor=found.tensor,
            severity="error" if fresh else None,
        )
    else:
        yield Hit(
            f"the drafter's embedding is not the target's: {rows}, largest difference "
            f"{found.largest:.3g}, cosine {found.cosine:.4f}",
            "SGLang and TensorRT-LLM use the target's instead; vLLM keeps this one",
            tensor=found.tensor,
        )


def _head(s: Subject) -> Iterator[Hit]:
    found = compare_head(s.drafter, s.target, s.deep) if s.target else None
    if found is not None and found.shifted:
        yield Hit(
            f"lm_head rows are the target's rows d2t[i], not i + d2t[i] ({found.matching} of "
            f"{found.rows} rows looked at): it was pruned with the offsets taken for ids",
            "prune again with ids i + d2t[i]",
            tensor=found.tensor,
        )


def _verifier(s: Subject) -> Iterator[Hit]:
    name = s.lookup("speculators_config.verifier.name_or_path")
    if not name:
        yield from ()
    elif s.target_name() and name.rstrip("/").split("/")[-1] != s.target_name().split("/")[-1]:
        yield Hit(
            f"the file names {name} as its target, not {s.target_name()}",
            "check that they are the same model: `eagleconv match`",
            key="speculators_config.verifier.name_or_path",
        )


def _tokenizer_size(s: Subject) -> Iterator[Hit]:
    ids, vocab = s.target_tokenizer_size(), s.value("vocab_size")
    if ids is not None and vocab is not None and ids > vocab:
        yield Hit(
            f"the target's tokenizer has {ids} ids, the drafter knows {vocab}",
            "give the target it was trained for",
            key="vocab_size",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        "ECP001",
        "target-of-other-shape",
        "error",
        "The target has the width and the vocabulary the drafter was made for.",
        "Engines compare neither before the first request; a wider vocabulary raises an index "
        "error, a smaller one reads wrong rows "
        "([sglang#23838](https://github.com/sgl-project/sglang/pull/23838)).",
        "a drafter for width 4096 beside a target of 5120",
        "Give the target it was trained for.",
        needs=("target",),
        unread=("every tensor",),
    ),
    Rule(
        "ECP002",
        "vocabulary-differs-by-padding",
        "warning",
        "The vocabularies differ by padding at most.",
        "Embeddings are padded to multiples of 64 to 512; with equal tokenizers the difference is "
        "harmless ([vllm#5203](https://github.com/vllm-project/vllm/issues/5203), "
        "[vllm#13849](https://github.com/vllm-project/vllm/pull/13849)).",
        "151936 and 152064 ids",
        "Compare the tokenizers: `eagleconv match`.",
        needs=("target",),
        unread=("every tensor",),
    ),
    Rule(
        "ECP003",
        "verifier-is-another",
        "warning",
        "The target named in a speculators file is the one given.",
        "`vllm serve <drafter>` serves the named one; a drafter on another target of the same shape "
        "accepts little, silently ([EAGLE#98](https://github.com/SafeAILab/EAGLE/issues/98)).",
        '`"verifier": {"name_or_path": "org/model-3.1"}`, `--target org/model-3.3`',
        "Check that they are the same model.",
        needs=("target",),
        check=_verifier,
    ),
    Rule(
        "ECP004",
        "tokenizer-larger-than-vocabulary",
        "error",
        "Every id of the target's tokenizer has a row in the drafter.",
        "Nothing in any engine compares tokenizers.",
        "a tokenizer with 152000 ids, `vocab_size: 151936`",
        "Give the target it was trained for.",
        needs=("target",),
        check=_tokenizer_size,
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECP005",
        "embedding-unlike-targets",
        "warning",
        "The drafter's own embedding is the target's.",
        "vLLM keeps an embedding that differs; SGLang and TensorRT-LLM replace it by the target's "
        "where the widths agree. A random one exported by mistake ruins vLLM alone "
        "([TorchSpec#38](https://github.com/lightseekorg/TorchSpec/issues/38)).",
        "`embed_tokens.weight` = N(0, 0.02) beside a trained target",
        "Leave it out if the drafter was trained with the target's embedding.",
        engine_severity={"sglang": "error"},
        needs=("target weights",),
        check=_embedding,
    ),
    Rule(
        "ECP006",
        "head-pruned-by-offsets",
        "error",
        "Rows of an lm_head frozen from the target are the target's rows i + d2t[i].",
        "TorchSpec's pruning takes rows d2t[i] (`tools/convert_to_hf.py:309`): the head scores "
        "other tokens than the map says.",
        "`lm_head[i]` equal to the target's row `d2t[i]`",
        "Prune again with ids i + d2t[i].",
        needs=("target weights",),
        check=_head,
    ),
)
