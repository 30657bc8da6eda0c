"""Make tests/data/sentencepiece/sentencepiece.model, and what sentencepiece itself says of it.

python make_sentencepiece.py OUT    # with the package sentencepiece 0.2
"""

import json
import sys
from pathlib import Path

import sentencepiece as sp

TEXT = ["the quick brown fox jumps over the lazy dog", "Ein Fuchs, schnell und braun; 12 345!"]


def main():
    out = Path(sys.argv[1])
    sp.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 4),
        model_prefix=str(out / "sentencepiece"),
        model_type="bpe",
        vocab_size=320,
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        user_defined_symbols=["<|user|>"],
        hard_vocab_limit=False,
    )
    (out / "sentencepiece.vocab").unlink()
    tool = sp.SentencePieceProcessor(str(out / "sentencepiece.model"))
    each = range(tool.get_piece_size())
    said = {
        "version": sp.__version__,
        "pieces": [tool.id_to_piece(i) for i in each],
        "scores": [tool.get_score(i) for i in each],
        "control": [i for i in each if tool.is_control(i)],
        "unknown": [i for i in each if tool.is_unknown(i)],
    }
    text = json.dumps(said, ensure_ascii=False)
    (out / "sentencepiece.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
