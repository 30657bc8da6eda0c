"""Findings that are known and accepted, in a file that a project commits."""

import hashlib
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from eagleconv.checkpoint.json_file import dump_json, load_object
from eagleconv.checkpoint.schema import load
from eagleconv.checkpoint.source import parse_hub_id
from eagleconv.errors import ConversionError, SourceError
from eagleconv.rules.finding import Finding, Location, Validated

_FORM = 1


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One accepted finding.

    Attributes:
        source: The checkpoint: a path relative to the file, or `hf://org/name` at any revision.
        code: Of the rule.
        engine: The engine it holds for, or empty.
        file: As in a finding's location.
        tensor: Likewise.
        key: Likewise.
        digest: SHA-256 of the message: another message is another finding.
        message: For people; it is not compared.
    """

    source: str
    code: str
    engine: str
    file: str
    tensor: str
    key: str
    digest: str
    message: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """All that is compared."""
        return (self.source, self.code, self.engine, self.file, self.tensor, self.key, self.digest)


def digest(message: str) -> str:
    """Return the digest of a finding's message."""
    return hashlib.sha256(message.encode("utf-8", "backslashreplace")).hexdigest()


def entry(result: Validated, finding: Finding, path: str) -> Entry:
    """Return the entry of a finding in the baseline at a path."""
    where = finding.location
    return Entry(
        _source(result.source, path),
        finding.code,
        finding.engine,
        where.file,
        where.tensor,
        where.key,
        digest(finding.message),
        finding.message,
    )


def _source(source: str, path: str) -> str:
    hub = None if os.path.lexists(source) else parse_hub_id(source)
    if hub is not None:
        return f"hf://{hub.repo}"
    home = os.path.dirname(os.path.realpath(path))
    return os.path.relpath(os.path.realpath(source), home).replace(os.sep, "/")


def read_baseline(path: str) -> tuple[Entry, ...]:
    """Read a baseline.

    Raises:
        SourceError: It cannot be read, or is none.
    """
    try:
        with open(path, "rb") as file:
            data = load_object(file.read(), path)
    except OSError as error:
        raise SourceError(
            f"the baseline {path} cannot be read: {error.strerror}",
            "make it with --write-baseline",
        ) from None
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    for misfit in Draft202012Validator(load("baseline")).iter_errors(data):
        place = misfit.json_path.removeprefix("$").removeprefix(".") or "the file"
        raise SourceError(
            f"{path} is no baseline of form {_FORM}: {place} does not fit {misfit.validator}",
            "make it again with --write-baseline",
        )
    return tuple(Entry(**e.pop("location"), **e) for e in data["findings"])


def write_baseline(path: str, results: Iterable[Validated]) -> int:
    """Write all findings as a baseline, in place of an older one.

    Returns:
        The number of entries.

    Raises:
        ConversionError: It cannot be written, or a file that is no baseline is in the way.
    """
    if os.path.lexists(path):
        try:
            read_baseline(path)
        except SourceError:
            raise ConversionError(
                f"{path} exists and is no baseline; nothing else is ever overwritten",
                "give another --write-baseline",
            ) from None
    entries = sorted({entry(r, f, path) for r in results for f in r.findings})
    data = {"schema_version": _FORM, "findings": [_plain(e) for e in entries]}
    # A link keeps pointing to the file it points to.
    path = os.path.realpath(path)
    work = f"{path}.eagleconv-{secrets.token_hex(8)}"
    try:
        with open(work, "xb") as file:
            file.write(dump_json(data))
            file.flush()
            os.fsync(file.fileno())
        os.replace(work, path)
    except OSError as error:
        raise ConversionError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        if os.path.lexists(work):
            os.unlink(work)
    return len(entries)


def _plain(e: Entry) -> dict[str, Any]:
    fields = asdict(e)
    location = asdict(Location(fields.pop("file"), fields.pop("tensor"), fields.pop("key")))
    return {
        "source": fields["source"],
        "code": fields["code"],
        "engine": fields["engine"],
        "location": location,
        "message": fields["message"],
        "digest": fields["digest"],
    }


def accept(result: Validated, entries: Sequence[Entry], path: str) -> Validated:
    """Mark the findings that a baseline knows as accepted."""
    known = {e.identity for e in entries}
    findings = tuple(
        replace(f, accepted=entry(result, f, path).identity in known) for f in result.findings
    )
    return replace(result, findings=findings)


def accept_all(result: Validated) -> Validated:
    """Mark every finding as accepted: they have just been written to a baseline."""
    return replace(result, findings=tuple(replace(f, accepted=True) for f in result.findings))


def stale(results: Iterable[Validated], entries: Sequence[Entry], path: str) -> tuple[Entry, ...]:
    """Return the entries that no longer occur, among those that this run could have found.

    An entry of a checkpoint, rule or engine that was not looked at says nothing.
    """
    found: set[tuple[str, ...]] = set()
    looked: dict[str, Validated] = {}
    for result in results:
        looked[_source(result.source, path)] = result
        found |= {entry(result, f, path).identity for f in result.findings}

    def gone(e: Entry) -> bool:
        result = looked.get(e.source)
        if result is None or e.code not in result.checks_run or e.identity in found:
            return False
        return not e.engine or e.engine in {f"{v.engine} {v.version}" for v in result.engines}

    return tuple(e for e in entries if gone(e))
