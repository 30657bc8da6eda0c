"""The configuration file of validation, and which settings hold for which checkpoint."""

import json
import os
import sys
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

from eagleconv.checkpoint.schema import load
from eagleconv.errors import UsageError
from eagleconv.rules.outcome import FailOn

OWN_FILE = ".eagleconv.toml"
SHARED_FILE = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that may differ from checkpoint to checkpoint; None where not given.

    Attributes:
        target: Directory, config.json or Hub id of the target.
        engine: Engines to ask, as `vllm==0.32.0`.
        context_length: The context length it will be served with.
        deep: Whether weights are read too.
        select: Rules to run.
        ignore: Rules to leave out.
        fail_on: The least severity that fails.
    """

    target: str | None = None
    engine: tuple[str, ...] | None = None
    context_length: int | None = None
    deep: bool | None = None
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    fail_on: FailOn | None = None

    def over(self, other: "Settings") -> "Settings":
        """Return these settings, and the other's where nothing is given here."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(other, **{k: v for k, v in given.items() if v is not None})


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration file; all empty where there is none.

    Attributes:
        path: Of the file.
        settings: For all checkpoints.
        checkpoints: Globs, and the settings for the checkpoints that fit; later ones win.
        baseline: Path of a baseline file.
        format: Of the report.
        passed_over: A pyproject.toml beside the file that has settings too, which do not count.
    """

    path: str = ""
    settings: Settings = Settings()
    checkpoints: tuple[tuple[str, Settings], ...] = ()
    baseline: str | None = None
    format: str | None = None
    passed_over: str = ""

    def settings_for(self, source: str, given: Settings) -> Settings:
        """Return the settings of one checkpoint: the command line's, its own, everybody's."""
        found = self.settings
        for glob, own in self.checkpoints:
            if fnmatchcase(self._name(source), glob):
                found = own.over(found)
        return given.over(found)

    def _name(self, source: str) -> str:
        """Return what globs are held against: a path relative to the file, or the Hub id."""
        if not os.path.lexists(source):
            return source
        home = os.path.dirname(os.path.realpath(self.path))
        return os.path.relpath(os.path.realpath(source), home).replace(os.sep, "/")


def find_configuration(directory: str = ".") -> Configuration:
    """Read the nearest configuration: of the directory, or of the first one above that has any.

    Raises:
        UsageError: It cannot be read, or has an unknown key or a value of the wrong type.
    """
    folder = os.path.abspath(directory)
    while True:
        own, shared = (os.path.join(folder, name) for name in (OWN_FILE, SHARED_FILE))
        table = _read(shared).get("tool", {}).get("eagleconv") if os.path.isfile(shared) else None
        if os.path.isfile(own):
            passed_over = "" if table is None else _shown(shared)
            return replace(_configuration(_read(own), own, ""), passed_over=passed_over)
        if table is not None:
            return _configuration(table, shared, "tool.eagleconv")
        if os.path.dirname(folder) == folder:
            return Configuration()
        folder = os.path.dirname(folder)


def _shown(path: str) -> str:
    """Return a path as a person in the current directory would write it."""
    near = os.path.relpath(path)
    return path if near.startswith(os.path.join("..", "..", "..")) else near


def _read(path: str) -> dict[str, Any]:
    # Python has it since 3.11; tomli is the same parser.
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        with open(path, "rb") as file:
            found: dict[str, Any] = toml.load(file)
    except OSError as error:
        raise UsageError(f"{_shown(path)} cannot be read: {error.strerror}") from None
    except ValueError as error:  # toml.TOMLDecodeError, and bytes that are no UTF-8
        raise UsageError(f"{_shown(path)} is no TOML: {error}", "repair it") from None
    return found


def _configuration(table: Any, path: str, prefix: str) -> Configuration:
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    for error in Draft202012Validator(load("settings")).iter_errors(table):
        raise _misfit(error, _shown(path), prefix)
    home = os.path.dirname(path)
    baseline = table.get("baseline")
    return Configuration(
        path=path,
        settings=_settings(table, home),
        checkpoints=tuple((c["path"], _settings(c, home)) for c in table.get("checkpoint", ())),
        baseline=None if baseline is None else _near(os.path.join(home, baseline)),
        format=table.get("format"),
    )


def _settings(table: dict[str, Any], home: str) -> Settings:
    found: dict[str, Any] = {}
    for field in fields(Settings):
        value = table.get(field.name.replace("_", "-"))
        found[field.name] = tuple(value) if isinstance(value, list) else value
    target = found["target"]
    # A Hub id looks like a path: it is one where there is such a file beside the configuration.
    if target is not None and os.path.lexists(os.path.join(home, target)):
        found["target"] = _near(os.path.join(home, target))
    return Settings(**found)


def _near(path: str) -> str:
    return os.path.relpath(path)


def _misfit(error: Any, path: str, prefix: str) -> UsageError:
    """Say in one sentence what is wrong with a configuration."""
    place = prefix
    for part in error.absolute_path:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    where = f"{path}: {place}" if place else path
    if error.validator == "additionalProperties":
        known = error.schema["properties"]
        wrong = next(key for key in error.instance if key not in known)
        near = get_close_matches(wrong, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        return UsageError(f"{where} has no key {wrong!r}", hint)
    if error.validator == "required":
        return UsageError(f"{where} has no path", "say which checkpoints it is for")
    shown = json.dumps(error.instance, default=str)
    if error.validator == "type":
        return UsageError(f"{where} is {shown}, expected {_WORDS[error.validator_value]}")
    if error.validator == "enum":
        return UsageError(f"{where} is {shown}, expected {' or '.join(error.validator_value)}")
    return UsageError(f"{where} is {shown}, which is too small")


_WORDS = {
    "string": "a string",
    "array": "a list",
    "object": "a table",
    "integer": "an integer",
    "boolean": "true or false",
}
