"""How each engine reads a directory, by name; engines not listed are judged by their facts alone."""

from collections.abc import Mapping

from eagleconv.engines.loading import Loading
from eagleconv.engines.sglang_loading import SGLANG_LOADING
from eagleconv.engines.vllm_loading import VLLM_LOADING

LOADINGS: Mapping[str, Loading] = {x.engine: x for x in (VLLM_LOADING, SGLANG_LOADING)}
