"""Rows C of the faults that come as signals to the training process itself."""

from __future__ import annotations

import random
import signal
import time
from types import FrameType

import pytest

from swift_loader import LoaderClosed
from tests.datasets import Numbers
from tests.loaders import started
from tests.watching import until, workers


@pytest.mark.parametrize("seed", range(3))
def test_a_signal_handler_may_close_the_loader_at_any_moment(seed: int):
    chance = random.Random(seed)
    for _ in range(8):
        with started(Numbers, {"count": 1 << 40}, batch_size=2) as loader:
            took_s: list[float] = []

            def close(_number: int, _frame: FrameType | None, loader=loader, took_s=took_s) -> None:
                begun = time.monotonic()
                loader.close()
                took_s.append(time.monotonic() - begun)

            before = signal.signal(signal.SIGALRM, close)
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.05))
                with pytest.raises(LoaderClosed):
                    for _batch in loader:
                        pass
            finally:
                signal.signal(signal.SIGALRM, before)
            assert took_s
            assert took_s[0] < 4  # to reach: 1 s; a lock held against itself would take 5
        until(lambda: not workers())
