"""What huggingface_hub and the HTTP library below it raise, as one sentence each."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from eagleconv.errors import SourceError


@contextmanager
def hub_errors(text: str, repo: str, revision: str) -> Iterator[None]:
    """Turn what huggingface_hub raises into one sentence.

    Args:
        text: The repository as the user named it.
        repo: `org/name`.
        revision: The one asked for; may be empty.
    """
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        found = _sentence(error, text, repo, revision)
        if found is None:
            raise
        raise found from None


def is_transport(error: BaseException) -> bool:
    """Say whether the connection failed, and not what was asked over it."""
    # The HTTP library below huggingface_hub differs between its versions.
    return type(error).__module__.split(".")[0] in ("httpx", "httpx2", "requests")


def _sentence(error: Exception, text: str, repo: str, revision: str) -> SourceError | None:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return SourceError(
            f"{text}: access to {repo} is gated, and this account has not been granted it",
            "accept its terms on its page, then set HF_TOKEN or run: hf auth login",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return SourceError(
            f"{text}: no such directory, and the Hub has no repository {repo} that we may read",
            "check the name; for a private one set HF_TOKEN or run: hf auth login",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return SourceError(f"{text}: {repo} has no revision {revision}", "check it")
    if isinstance(error, errors.LocalEntryNotFoundError):
        # It hides what really happened: the Hub refused, broke or was not there.
        cause = error.__cause__
        if isinstance(cause, Exception) and not isinstance(cause, errors.OfflineModeIsEnabled):
            found = _sentence(cause, text, repo, revision)
            if found is not None:
                return found
        at = f" at revision {revision}" if revision else ""
        return SourceError(
            f"{text}: {repo}{at} is not complete in the cache, and the Hub was not reached",
            "run once without HF_HUB_OFFLINE and with a connection",
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return SourceError(f"{text}: HF_HUB_OFFLINE is set", "unset it to read the Hub")
    if isinstance(error, errors.HFValidationError):
        return SourceError(f"{text} is not a Hub id: {str(error).splitlines()[0]}")
    if isinstance(error, errors.HfHubHTTPError):
        return _of_status(text, getattr(error.response, "status_code", 0))
    if isinstance(error, OSError) and not is_transport(error):
        return SourceError(f"{text}: {(error.strerror or str(error)).lower()}")
    if is_transport(error):
        return _of_transport(text, type(error).__name__)
    return None


def _of_transport(text: str, kind: str) -> SourceError:
    endpoint = os.environ.get("HF_ENDPOINT") or "the Hub"
    if "Timeout" in kind:
        what = "did not answer in time"
    elif kind in ("ReadError", "WriteError", "RemoteProtocolError", "ChunkedEncodingError"):
        what = "broke the connection"
    else:
        what = "was not reached"
    return SourceError(
        f"{text}: {endpoint} {what}",
        "check the connection and HF_ENDPOINT; HF_HUB_OFFLINE=1 reads the cache",
    )


def _of_status(text: str, status: int) -> SourceError:
    if status == 429:
        return SourceError(
            f"{text}: the Hub limits the rate of requests (429)", "wait, or set HF_TOKEN"
        )
    if status == 401:
        return SourceError(f"{text}: the Hub does not know this token (401)", "check HF_TOKEN")
    if status == 403:
        return SourceError(f"{text}: the Hub denies access (403)", "check the token's permissions")
    if status >= 500:
        return SourceError(
            f"{text}: the Hub has a problem of its own ({status})", "try again later"
        )
    return SourceError(f"{text}: the Hub answered with status {status}", "check the name")
