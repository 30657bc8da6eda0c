"""The engines, in the order in which they are shown."""

from eagleconv.engines.engine import Answer, Engine, answer, traits
from eagleconv.engines.sglang import SGLANG
from eagleconv.engines.tensorrt_llm import TENSORRT_LLM
from eagleconv.engines.vllm import VLLM

ENGINES: tuple[Engine, ...] = (VLLM, SGLANG, TENSORRT_LLM)

__all__ = ["ENGINES", "Answer", "Engine", "answer", "traits"]
