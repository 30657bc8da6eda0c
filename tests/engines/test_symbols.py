"""Engine facts against the engines' own files: what a fact names occurs, what it misses does not.

vLLM's files are those of this environment; SGLang's wheel is downloaded once, without what it
depends on, and only read.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from eagleconv.engines import ENGINES, Engine, EngineFact, EngineNote
from eagleconv.engines.engine import Fallback, in_versions
from tests.engines.target import cache_directory

#: Text of a file of the engine's package; None where there is no such file.
Read = Callable[[str], str | None]
Claim = EngineFact | EngineNote | Fallback

CASES = [
    pytest.param(engine, claim, id=f"{engine.name}-{claim.file}-{number}")
    for engine in ENGINES
    if engine.verified
    for number, claim in enumerate((*engine.facts, *engine.notes, *engine.fallbacks))
]


def sglang_wheel(version: str) -> Path:
    """Return SGLang's wheel, from the cache or the package index.

    It is asked for by platform, so that any Python and any machine gets the same file.
    """
    directory = cache_directory() / f"sglang-{version}"
    if not [*directory.glob("*.whl")]:
        platform = ["--platform", "manylinux_2_34_x86_64", "--python-version", "3.11"]
        call = ["download", "-qq", "--no-deps", "--only-binary", ":all:", *platform]
        subprocess.run(
            [sys.executable, "-m", "pip", *call, "-d", str(directory), f"sglang=={version}"],
            check=True,
        )
    (wheel,) = directory.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def files() -> dict[str, Read]:
    """Return, for every engine, how to read a file of its package."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    vllm = Path(spec.origin).parent
    pinned = next(e.version for e in ENGINES if e.name == "sglang")
    wheel = zipfile.ZipFile(sglang_wheel(pinned))
    held = {*wheel.namelist()}

    def of_vllm(name: str) -> str | None:
        path = vllm / name
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def of_sglang(name: str) -> str | None:
        return wheel.read(f"sglang/{name}").decode() if f"sglang/{name}" in held else None

    return {"vllm": of_vllm, "sglang": of_sglang}


def test_the_versions_that_are_read_are_those_the_facts_are_pinned_to() -> None:
    vllm = next(e for e in ENGINES if e.name == "vllm")
    assert importlib.metadata.version(vllm.package) == vllm.version


@pytest.mark.parametrize(("engine", "claim"), CASES)
def test_a_fact_holds_in_the_file_it_names(
    engine: Engine, claim: Claim, files: dict[str, Read]
) -> None:
    holds = in_versions(claim.versions, engine.version)
    text = files[engine.name](claim.file)
    if holds:
        assert text is not None, f"{engine.name} {engine.version} has no file {claim.file}"
        assert claim.symbol or claim.absent_symbol, "it says what to look for"
    if text is None:
        return  # Of versions that are gone, and the file is too.
    if claim.symbol:
        assert (claim.symbol in text) == holds
    if claim.absent_symbol:
        assert (claim.absent_symbol in text) != holds
