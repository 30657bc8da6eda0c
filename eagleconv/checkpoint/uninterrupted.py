"""A moment in which a request to stop is too late: an output is renamed into place, or it is not."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)


def _drop(number: int, frame: Any) -> None:
    """Hear a signal and do nothing."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGTERM off while an output is renamed; one that comes then is dropped.

    Outside the main thread Python delivers no signals, and nothing has to be held.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}
    try:
        for number in STOPS:
            before[number] = signal.signal(number, _drop)
        yield
    finally:
        for stop, handler in before.items():
            # Whoever chose another handler in the meantime meant it.
            if signal.getsignal(stop) is _drop and handler is not None:
                signal.signal(stop, handler)
