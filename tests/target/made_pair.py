"""A made target with tokenizer and template, and a drafter for it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from eagleconv.drafter.layouts import LAYOUTS
from tests.drafters import make_spec, write_drafter
from tests.target import made

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "and",
    "thinks",
    "of",
    "other",
    "things",
    "than",
    "dogs",
]


#: Enough for the default taps.
LAYERS = 8


def arrays(seed: int = 0) -> made.Arrays:
    """Return the target's weights."""
    return made.arrays(seed, LAYERS)


@cache
def tokenizer_text(vocab: int = made.SIZES["vocab"]) -> str:
    """Return the trained tokenizer.json."""
    return json.dumps(tokenizer(vocab), ensure_ascii=False)


def tokenizer(vocab: int = made.SIZES["vocab"]) -> dict[str, Any]:
    """Return a byte-level BPE tokenizer.json of `vocab` ids, four of them added."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tool = Tokenizer(models.BPE())
    tool.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tool.decoder = decoders.ByteLevel()
    special = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=special,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    rng = np.random.default_rng(0)
    made_up = ["".join(rng.choice(list("abcdefghijklmno"), 6)) for _ in range(400)]
    tool.train_from_iterator([" ".join([*WORDS, *made_up])] * 3, trainer)
    found: dict[str, Any] = json.loads(tool.to_str())
    assert len(found["model"]["vocab"]) == vocab
    return found


def target(directory: Path, weights: made.Arrays | None = None, **options: Any) -> Path:
    """Write a target: weights, tokenizer.json, chat_template.jinja."""
    options.setdefault("num_hidden_layers", LAYERS)
    made.write(directory, arrays() if weights is None else weights, **options)
    (directory / "tokenizer.json").write_text(tokenizer_text(), encoding="utf-8")
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


def change(directory: Path, name: str, **changes: Any) -> None:
    """Change keys of a JSON file; None removes one."""
    path = directory / name
    text = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({k: v for k, v in text.items() if v is not None}), encoding="utf-8")


def drafter(directory: Path, embedding: bool = False, **facts: Any) -> Path:
    """Write a drafter for it, as SafeAILab does."""
    layout = next(found for found in LAYOUTS if found.name == "safeailab-eagle3")
    spec = make_spec(
        hidden_size=made.SIZES["hidden"],
        target_hidden_size=made.SIZES["hidden"],
        vocab_size=made.SIZES["vocab"],
        draft_vocab_size=96,
        own_embedding=embedding,
        feedback="pre_norm",
        residual="raw",
        **facts,
    )
    write_drafter(directory, spec, layout)
    return directory
