"""A stop that comes while an output is renamed comes too late; before and after it is heard."""

import os
import signal
import threading

import pytest

from eagleconv.checkpoint.uninterrupted import uninterrupted


def test_dropped_inside_heard_outside() -> None:
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_handler_chosen_inside_stays() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with uninterrupted():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_are_left_alone() -> None:
    entered = []

    def work() -> None:
        with uninterrupted():
            entered.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered
