"""Row C4 of the faults, and its neighbours: whoever catches a Ctrl-C, or an error that took no batch, goes
on with the batch that was to come.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from swift_loader import NoRoom
from swift_loader.pool.pool import Pool
from tests.datasets import Noted, Numbers, Pictures
from tests.loaders import started
from tests.watching import flat, until

ALONE = {"shuffle": False, "worker_per_consumer": 1, "data_queue_size": 1, "message_queue_size": 1}


@contextmanager
def interrupted_in_wait() -> Iterator[None]:
    """Sends a Ctrl-C as soon as this thread waits for a batch."""
    here = threading.main_thread().ident
    assert here == threading.get_ident()

    def waits() -> bool:
        names = {frame.f_code.co_qualname for frame, _ in traceback.walk_stack(sys._current_frames()[here])}
        return {"Pool.take", "Exchange.take"} <= names

    def interrupt() -> None:
        until(waits, "the wait")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_c4_a_ctrl_c_that_is_caught_takes_no_batch_and_ends_no_epoch(tmp_path: Path):
    with started(Noted, {"folder": str(tmp_path), "count": 32, "gate_at": 8}, **ALONE) as loader:
        iterator = iter(loader)
        found = next(iterator).tolist()
        with interrupted_in_wait(), pytest.raises(KeyboardInterrupt):
            next(iterator)
        (tmp_path / "open").touch()
        assert loader.state_dict()["step"] == 1
        assert found + flat(iterator) == list(range(32))
        assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (1, 0)
        assert flat(loader) == list(range(32))


def test_c4_a_ctrl_c_that_comes_with_the_batch_does_not_take_it_along():
    """Where the batch is out of the pool's hands, and not in ours."""

    def interrupt(frame: Any, event: str, got: Any) -> None:
        if event == "return" and frame.f_code is Pool.take.__code__ and got is not None:
            sys.setprofile(None)
            raise KeyboardInterrupt

    with started(Numbers, {"count": 32}, shuffle=False) as loader:
        iterator = iter(loader)
        found = next(iterator).tolist()
        sys.setprofile(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                next(iterator)
        finally:
            sys.setprofile(None)
        assert loader.state_dict()["step"] == 1
        assert found + flat(iterator) == list(range(32))
        assert flat(loader) == list(range(32))


class Interrupts(Numbers):
    """A Ctrl-C comes while sample 13 is fetched, once."""

    times = 1

    def __getitem__(self, index: int) -> Any:
        if index == 13 and self.times:
            self.times = 0
            signal.raise_signal(signal.SIGINT)
        return index


def test_c4_without_workers_the_batch_that_was_interrupted_is_made_again():
    with started(Interrupts, {"count": 32}, shuffle=False, worker_per_consumer=0) as loader:
        iterator = iter(loader)
        found = next(iterator).tolist()
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert found + flat(iterator) == list(range(32))


def test_d6_want_of_memory_that_is_mended_takes_no_batch():
    kept: list[Any] = []
    with started(Pictures, {"count": 400}, memory_budget=8 << 20, shuffle=False, data_queue_size=2) as loader:
        iterator = iter(loader)
        with pytest.raises(NoRoom, match="no memory for the next batch"):
            kept.extend(iterator)  # what came before the error stays in the list
        labels = [batch[1] for batch in kept]
        kept.clear()
        labels += [batch[1] for batch in iterator]
        assert flat(labels) == list(range(400))


def test_c22_a_warning_that_is_an_error_takes_no_batch(tmp_path: Path):
    settings = {**ALONE, "timeout_s": 1.0}
    with started(Noted, {"folder": str(tmp_path), "count": 32, "gate_at": 8}, **settings) as loader:
        iterator = iter(loader)
        found = next(iterator).tolist()
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            with pytest.raises(RuntimeWarning, match="has made no progress"):
                next(iterator)
        (tmp_path / "open").touch()
        assert found + flat(iterator) == list(range(32))
