"""Lines of one pool may be of several engines, and one that dies comes back from its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from swift_loader.engines.local import LocalEngine
from swift_loader.pool.process import Site, Started
from swift_loader.wire.messages import Setup
from swift_loader.wire.recipe import Recipe
from tests.datasets import Random
from tests.loaders import started, stream
from tests.watching import plain, until


class Noted:
    """A local engine, and the names of the workers that it was asked for."""

    def __init__(self, recipe: Recipe, start_method: Any) -> None:
        self._engine = LocalEngine(recipe, start_method)
        self.asked: list[str] = []
        self.is_closed = False

    @property
    def sends_payload(self) -> bool:
        return self._engine.sends_payload

    def open(self) -> None:
        self._engine.open()

    def launch(self, name: str, setup: Setup, fds: tuple[int, ...]) -> Started:
        self.asked.append(name)
        return self._engine.launch(name, setup, fds)

    def will_need(self, libraries: Sequence[str]) -> None:
        self._engine.will_need(libraries)

    def abandon(self) -> None:
        self._engine.abandon()

    def close(self) -> None:
        self.is_closed = True
        self._engine.close()


@pytest.fixture
def engines(monkeypatch) -> list[Noted]:
    """Two of them serve a loader's workers, half of the lines each; there are some once it was started."""
    made: list[Noted] = []

    def sites_for(recipe: Recipe) -> list[Site]:
        made.extend((Noted(recipe, "forkserver"), Noted(recipe, "spawn")))
        return [Site(engine, recipe.config.worker_count // 2) for engine in made]

    monkeypatch.setattr("swift_loader.consumer.runtime.sites_for", sites_for)
    return made


def test_two_engines_make_one_stream(engines: list[Noted]):
    expected = stream(Random, {"count": 64}, worker_per_consumer=0)
    assert stream(Random, {"count": 64}, worker_per_consumer=2) == expected
    assert [engine.asked for engine in engines] == [["swift-worker-c0w0"], ["swift-worker-c0w1"]]
    assert all(engine.is_closed for engine in engines)


def test_a_worker_that_dies_comes_back_from_its_own_engine(engines: list[Noted]):
    expected = stream(Random, {"count": 64}, epochs=3, worker_per_consumer=0)
    with started(Random, {"count": 64}, worker_per_consumer=2) as loader:
        found = [plain(batch) for batch in loader]
        for number in (0, 1):
            before = loader.worker_pids
            os.kill(before[number], signal.SIGKILL)
            until(lambda: len(engines[number].asked) == 2, "another worker")  # noqa: B023 - it ends in this turn
            found += [plain(batch) for batch in loader]
            until(lambda: len(loader.worker_pids) == 2, "both workers")
    assert found == expected
    assert [engine.asked for engine in engines] == [["swift-worker-c0w0"] * 2, ["swift-worker-c0w1"] * 2]
