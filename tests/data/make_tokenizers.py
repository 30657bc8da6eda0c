"""Make the small tokenizers of tests/data/tokenizers, with whatever version of the library runs it.

    python make_tokenizers.py train OUT          # with the oldest version: train them, save them
    python make_tokenizers.py save IN OUT        # with any later one: read them, save them again

One file holds what one version wrote, name -> tokenizer.json. The texts are of this file; the
seedless trainers are deterministic on them.
"""

import json
import sys
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    __version__,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

TEXT = ["the quick brown fox jumps over the lazy dog", "Ein Fuchs, schnell und braun; 12 345!"] * 4


def _trained(tool, trainer):
    tool.train_from_iterator(TEXT, trainer)
    return tool


def byte_level():
    tool = Tokenizer(models.BPE())
    tool.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tool.decoder = decoders.ByteLevel()
    tool.post_processor = processors.ByteLevel(trim_offsets=False)
    special = [AddedToken("<|end|>", lstrip=True), AddedToken("<|user|>")]
    return _trained(
        tool, trainers.BpeTrainer(vocab_size=90, special_tokens=special, show_progress=False)
    )


def split_and_bytes():
    tool = byte_level()
    pattern = Regex(r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+")
    tool.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tool.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing("<|user|> $A", special_tokens=[("<|user|>", 1)]),
        ]
    )
    return tool


def metaspace():
    tool = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tool.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tool.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", add_prefix_space=False)
    return _trained(
        tool,
        trainers.BpeTrainer(vocab_size=80, special_tokens=["<unk>", "<s>"], show_progress=False),
    )


def unigram():
    tool = Tokenizer(models.Unigram())
    tool.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.StripAccents()])
    tool.pre_tokenizer = pre_tokenizers.Metaspace()
    tool.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    return _trained(
        tool,
        trainers.UnigramTrainer(
            vocab_size=60, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
        ),
    )


def word_piece():
    tool = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tool.normalizer = normalizers.BertNormalizer()
    tool.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tool.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    special = ["[UNK]", "[CLS]", "[SEP]"]
    return _trained(
        tool, trainers.WordPieceTrainer(vocab_size=80, special_tokens=special, show_progress=False)
    )


def word_level():
    tool = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tool.normalizer = normalizers.Lowercase()
    tool.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation(),
            pre_tokenizers.Whitespace(),
        ]
    )
    tool.enable_padding()
    tool.enable_truncation(16)
    return _trained(tool, trainers.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False))


MAKERS = (byte_level, split_and_bytes, metaspace, unigram, word_piece, word_level)


def main():
    if sys.argv[1] == "train":
        found = {maker.__name__: maker() for maker in MAKERS}
    else:
        texts = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
        found = {}
        for name, text in texts.items():
            try:
                found[name] = Tokenizer.from_str(json.dumps(text))
            except Exception as error:  # 0.19 and later refuse what 0.13 wrote for add_prefix_space
                print(f"{__version__} cannot read {name}: {error}")
    texts = {name: json.loads(tool.to_str()) for name, tool in found.items()}
    Path(sys.argv[-1]).mkdir(exist_ok=True)
    path = Path(sys.argv[-1]) / f"{__version__}.json"
    path.write_text(json.dumps(texts, ensure_ascii=False) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
