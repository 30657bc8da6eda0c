"""Hold an output against its manifest: form by schema, files by digest, tensors by name."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eagleconv.checkpoint.json_file import load_object
from eagleconv.checkpoint.local import MANIFEST, open_local
from eagleconv.checkpoint.manifest import verify_files
from eagleconv.checkpoint.schema import load
from eagleconv.errors import SourceError

_FORM = 1


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of `verify`.

    Attributes:
        problems: One sentence each; empty where everything is as recorded.
        files: Files checked.
        tensors: Tensors accounted for.
    """

    problems: tuple[str, ...]
    files: int
    tensors: int


def verify(directory: str) -> Verified:
    """Check a directory that eagleconv wrote.

    The manifest is held against its schema first, then the files against the manifest, then the
    tensors in them; a problem of one kind keeps the next from being looked for.

    Raises:
        SourceError: It has no eagleconv.json, or cannot be read.
    """
    path = os.path.join(directory, MANIFEST)
    try:
        with open(path, "rb") as file:
            manifest = load_object(file.read(), path)
    except FileNotFoundError:
        raise SourceError(
            f"{directory} has no {MANIFEST}: nothing to verify it against",
            "verify what eagleconv wrote, or inspect other checkpoints",
        ) from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from None
    count = 0
    problems = form_problems(manifest) or verify_files(directory, manifest)
    if not problems:
        recorded = manifest["tensors"]
        checkpoint = open_local(directory)
        try:
            count = len(checkpoint.tensors)
            for name in checkpoint.tensors:
                if name not in recorded:
                    problems.append(f"tensor {name} is not accounted for in {MANIFEST}")
            for name in recorded:
                if name not in checkpoint.tensors:
                    problems.append(f"tensor {name} is recorded, but not there")
        finally:
            checkpoint.close()
    files = manifest.get("files")
    return Verified(tuple(problems), len(files) if isinstance(files, dict) else 0, count)


def form_problems(manifest: Mapping[str, Any]) -> list[str]:
    """Return one sentence for every place where a manifest does not fit its schema."""
    version = manifest.get("schema_version")
    if type(version) is int and version != _FORM:
        return [f"{MANIFEST} has form {version}, and this eagleconv knows form {_FORM} only"]
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    errors = Draft202012Validator(load("eagleconv")).iter_errors(manifest)
    return [_sentence(e) for e in sorted(errors, key=lambda e: (str(e.json_path), e.message))]


def _sentence(error: Any) -> str:
    """Say in one sentence where a manifest does not fit, and what was expected there."""
    place = error.json_path.removeprefix("$").removeprefix(".")
    where = f"{MANIFEST}: {place}" if place else MANIFEST
    expected = error.validator_value
    if error.validator == "required":
        missing = next(key for key in expected if error.message.startswith(repr(key)))
        return f"{where} has no {missing}"
    value = json.dumps(error.instance)
    shown = value if len(value) <= 60 else value[:57] + "..."
    if error.validator == "type":
        words = " or ".join([expected] if isinstance(expected, str) else expected)
        return f"{where} is {shown}, expected {words}"
    if error.validator in ("const", "enum"):
        allowed = [expected] if error.validator == "const" else expected
        return f"{where} is {shown}, expected {' or '.join(map(json.dumps, allowed))}"
    if error.validator == "minProperties":
        return f"{where} is empty"
    return f"{where} is {shown}, which does not fit {error.validator} {json.dumps(expected)}"
