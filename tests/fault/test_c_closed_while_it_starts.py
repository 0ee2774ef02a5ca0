"""Row C9 of the faults, and its neighbours: a loader that a thread or a signal handler closes in its start()."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swift_loader import LoaderClosed, SwiftLoader
from swift_loader.consumer.runtime import Runtime
from tests.datasets import Numbers, calls
from tests.fault.unhurried import BuiltLate
from tests.loaders import made
from tests.watching import descendants, until


def _closed_from_a_thread(loader: SwiftLoader, when: Callable[[], Any], folder: Path) -> threading.Thread:
    def close() -> None:
        until(when)
        loader.close()
        (folder / "open").touch()

    thread = threading.Thread(target=close)
    thread.start()
    return thread


def _closed_by_a_signal(loader: SwiftLoader, when: Callable[[], Any], folder: Path) -> threading.Thread:
    """The handler runs on the main thread, in the middle of start()."""

    def close(*_: object) -> None:
        loader.close()
        (folder / "open").touch()

    def send() -> None:
        until(when)
        os.kill(os.getpid(), signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, close)
    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("closed", [_closed_from_a_thread, _closed_by_a_signal])
@pytest.mark.parametrize("shared", [True, False])
def test_c9_closed_while_the_dataset_is_built_start_says_so_and_leaves_nothing(
    closed: Callable[..., threading.Thread], tmp_path: Path, *, shared: bool
):
    before = signal.getsignal(signal.SIGUSR1)
    loader = made(BuiltLate, {"folder": str(tmp_path)}, share_dataset=shared)
    thread = closed(loader, lambda: calls(tmp_path, "init"), tmp_path)
    try:
        with pytest.raises(LoaderClosed):
            loader.start(0)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
        loader.close()
    until(lambda: not descendants(), "the end of the fork server and of all workers")


def test_c9_closed_before_there_is_anything_to_close_start_says_so(monkeypatch: pytest.MonkeyPatch):
    class ClosedMeanwhile(Runtime):
        """Another thread closes the loader as soon as this is made."""

        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            loader.close()

    loader = made(Numbers)
    monkeypatch.setattr("swift_loader.loader.Runtime", ClosedMeanwhile)
    with pytest.raises(LoaderClosed):
        loader.start(0)
    assert not descendants()
