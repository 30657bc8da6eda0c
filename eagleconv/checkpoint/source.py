"""What a user may name as SOURCE: a directory, or a repository of the Hub."""

import os
import re
from dataclasses import dataclass

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.checkpoint.local import open_local
from eagleconv.errors import SourceError

_HUB_ID = re.compile(
    r"(?P<scheme>hf://)?(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*)(?:@(?P<revision>[^\s@]+))?"
)


@dataclass(frozen=True, slots=True)
class HubId:
    """A repository of the Hub.

    Attributes:
        repo: `org/name`.
        revision: Branch, tag or commit; empty for the default branch.
    """

    repo: str
    revision: str


def parse_hub_id(text: str) -> HubId | None:
    """Return the repository that `org/name[@rev]` or `hf://org/name[@rev]` names, else None."""
    match = _HUB_ID.fullmatch(text)
    if match is None or ".." in match["repo"] or "--" in match["repo"]:
        return None
    return HubId(match["repo"], match["revision"] or "")


def open_source(text: str, *, weights: bool) -> Checkpoint:
    """Open what the user named.

    Args:
        text: A path, `org/name[@rev]` or `hf://org/name[@rev]`; an existing path wins.
        weights: Whether the bytes of large tensors will be asked for. If not, only the headers of
            a remote checkpoint are read.

    Returns:
        The checkpoint.

    Raises:
        SourceError: It is neither, or cannot be read.
        MissingExtraError: The weights are a pickle and torch is not installed.
    """
    if os.path.lexists(text):
        return open_local(text)
    hub_id = parse_hub_id(text)
    if hub_id is None:
        raise SourceError(
            f"{text}: no such directory, and not a Hub id",
            "give a directory, org/name or hf://org/name@revision",
        )
    from eagleconv.checkpoint.hub import open_hub

    return open_hub(text, hub_id.repo, hub_id.revision, weights=weights)
