"""Where a finding is, as an editor, a code host or a person can follow it."""

import os
import re
from dataclasses import dataclass
from functools import lru_cache

from eagleconv.checkpoint.source import parse_hub_id
from eagleconv.rules.finding import Finding, Validated

_CONFIG = "config.json"
#: Larger files are no configs; a line in them helps nobody.
_MAX_TEXT = 4 << 20
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\],:\n]')


@dataclass(frozen=True, slots=True)
class Place:
    """A file, and a line of it.

    Attributes:
        path: With `/`; relative to the root of the job (`GITHUB_WORKSPACE`) or else to the current
            directory, absolute where it is outside; `org/name/file` for a repository of the Hub.
        line: Counted from 1; 0 where it is about the whole file, or the file is not text.
    """

    path: str
    line: int

    @property
    def words(self) -> str:
        """As compilers write it."""
        return f"{self.path}:{self.line}" if self.line else self.path


def place_of(result: Validated, finding: Finding) -> Place:
    """Return where a finding is; its checkpoint's config.json where it is about no file."""
    name = finding.location.file or _CONFIG
    if not os.path.lexists(result.source):
        hub = parse_hub_id(result.source)
        return Place(f"{hub.repo if hub else result.source}/{name}", 0)
    path = os.path.join(result.source, name)
    inner = os.path.join(result.source, "model", name)
    if not os.path.exists(path) and os.path.exists(inner):
        path = inner  # a training output, whose model/ was read
    key = finding.location.key
    line = _line(os.path.realpath(path), key) if key and name.endswith(".json") else 0
    return Place(_shown(path), line)


def _shown(path: str) -> str:
    here = os.path.realpath(os.curdir)
    root = os.path.realpath(os.environ.get("GITHUB_WORKSPACE") or here)
    if os.path.relpath(here, root).startswith(".."):
        root = here  # a job's root that has nothing to do with where we stand
    found = os.path.relpath(os.path.realpath(path), root)
    if found.startswith(".." + os.sep):
        found = os.path.abspath(path)
    return found.replace(os.sep, "/")


def _line(path: str, key: str) -> int:
    """Return the line of a dotted key, or of the object that lacks it; 0 where there is neither."""
    lines = _lines(path)
    while key:
        if key in lines:
            return lines[key]
        key = key.rpartition(".")[0]
    return 0


@lru_cache(maxsize=64)
def _lines(path: str) -> dict[str, int]:
    try:
        if os.path.getsize(path) > _MAX_TEXT:
            return {}
        with open(path, encoding="utf-8") as file:
            return key_lines(file.read())
    except (OSError, UnicodeDecodeError):
        return {}


def key_lines(text: str) -> dict[str, int]:
    """Return the line of every key of a JSON text, by its dotted path; lists have no part in it."""
    lines: dict[str, int] = {}
    containers: list[str] = []  # the key of each open object and list, empty where it has none
    key = string = ""
    line = at = 1
    for token in _TOKEN.findall(text):
        if token == "\n":
            line += 1
        elif token[0] == '"':
            string, at = token[1:-1], line
        elif token == ":":
            key = string
            lines.setdefault(".".join(filter(None, (*containers, key))), at)
        elif token in "{[":
            containers.append(key)
            key = ""
        elif token in "}]" and containers:
            key = containers.pop()
    return lines
