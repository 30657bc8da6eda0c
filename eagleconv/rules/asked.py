"""Engines as a user names them."""

from eagleconv.engines import ENGINES
from eagleconv.engines.engine import Engine
from eagleconv.errors import UsageError


def find_engine(text: str) -> tuple[Engine, str]:
    """Return the engine and version that `vllm==0.32` or `sglang` means.

    Raises:
        UsageError: No such engine, or no version.
    """
    name, _, version = text.partition("==")
    found = next((e for e in ENGINES if e.name == name.strip().lower()), None)
    if found is None:
        raise UsageError(
            f"--engine {text}: no such engine", f"known are {', '.join(e.name for e in ENGINES)}"
        )
    return found, version.strip() or found.version
