"""The engines, in the order in which they are shown."""

from difflib import get_close_matches

from packaging.version import InvalidVersion, Version

from eagleconv.engines.atom import ATOM
from eagleconv.engines.edge_llm import EDGE_LLM
from eagleconv.engines.engine import Answer, Engine, EngineFact, EngineNote, answer, traits
from eagleconv.engines.llama_cpp import LLAMA_CPP
from eagleconv.engines.lmdeploy import LMDEPLOY
from eagleconv.engines.mlx_vlm import MLX_VLM
from eagleconv.engines.openvino import OPENVINO
from eagleconv.engines.sglang import SGLANG
from eagleconv.engines.tensorrt_llm import TENSORRT_LLM
from eagleconv.engines.vllm import VLLM
from eagleconv.errors import UsageError

ENGINES: tuple[Engine, ...] = (
    VLLM,
    SGLANG,
    TENSORRT_LLM,
    EDGE_LLM,
    LLAMA_CPP,
    OPENVINO,
    MLX_VLM,
    LMDEPLOY,
    ATOM,
)

__all__ = [
    "ENGINES",
    "Answer",
    "Engine",
    "EngineFact",
    "EngineNote",
    "answer",
    "find_engine",
    "traits",
]


#: Other names that people give them.
ALIASES = {
    "tensorrt-llm": "trtllm",
    "tensorrt_llm": "trtllm",
    "trt-llm": "trtllm",
    "tensorrt-edge-llm": "edge-llm",
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "mlx": "mlx-vlm",
    "sgl": "sglang",
}


def find_engine(text: str) -> tuple[Engine, str]:
    """Return the engine and the version that `vllm`, `vllm==0.32` or `sglang` means.

    A version has at least three numbers in what is returned: 0.21 means 0.21.0.

    Raises:
        UsageError: No such engine, or not a version.
    """
    name, equals, asked = (part.strip() for part in text.partition("=="))
    if not equals and any(sign in text for sign in "<>=~!"):
        raise UsageError(
            f"{text!r} is no version of an engine; facts are told for one version, not for a range",
            "give a version with ==, such as vllm==0.32.0",
        )
    wanted = ALIASES.get(name.lower(), name.lower())
    found = next((e for e in ENGINES if e.name == wanted), None)
    if found is None:
        names = [e.name for e in ENGINES]
        near = get_close_matches(wanted, [*names, *ALIASES], 1)
        hint = f"known are {', '.join(names)}"
        if near:
            hint = f"{ALIASES.get(near[0], near[0])}? {hint}"
        raise UsageError(f"no engine is called {name!r}", hint)
    if not equals:
        return found, found.version
    try:
        version = Version(asked)
    except InvalidVersion:
        raise UsageError(
            f"{text!r}: {asked!r} is no version", f"give one such as {found.name}==1.2.3"
        ) from None
    release = ".".join(map(str, version.release))
    padded = release + ".0" * (3 - len(version.release))
    return found, str(version).replace(release, padded, 1)
