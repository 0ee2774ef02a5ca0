"""Rows C of the faults that come as signals to the training process itself."""

from __future__ import annotations

import random
import signal
import time
from collections import deque
from types import FrameType

import pytest

from swift_loader import LoaderClosed
from swift_loader.pool import pool
from tests.datasets import Numbers
from tests.loaders import started
from tests.slow import slow
from tests.watching import until, workers


def close_by_signal_after(delay_s: float) -> float:
    """Has a handler close a loader that is iterated; gives back how long closing took."""
    took_s: list[float] = []

    def close(_number: int, _frame: FrameType | None) -> None:
        begun = time.monotonic()
        loader.close()
        took_s.append(time.monotonic() - begun)

    with started(Numbers, {"count": 1 << 40}, batch_size=2) as loader:
        before = signal.signal(signal.SIGALRM, close)
        signal.setitimer(signal.ITIMER_REAL, delay_s)
        try:
            with pytest.raises(LoaderClosed):
                deque(loader, maxlen=0)
        finally:
            signal.signal(signal.SIGALRM, before)
    return took_s[0]


@pytest.mark.parametrize("seed", [0, slow(1), slow(2)])
def test_c9_a_signal_handler_may_close_the_loader_at_any_moment(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pool, "_JOIN_TIMEOUT_S", 60.0)  # so long it would wait for itself
    chance = random.Random(seed)
    for _ in range(8):
        assert close_by_signal_after(chance.uniform(0.001, 0.05)) < 30  # to reach: 1
        until(lambda: not workers())
