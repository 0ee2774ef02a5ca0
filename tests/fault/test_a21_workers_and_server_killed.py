"""Row A21 of the faults, and its neighbours: deaths that nobody can explain are held against no sample."""

from __future__ import annotations

from pathlib import Path

from tests.datasets import Noted, calls
from tests.loaders import started
from tests.watching import flat, is_gone, until, workers


def test_a21_workers_that_are_killed_with_their_server_make_no_sample_guilty(tmp_path: Path):
    """Whoever kills the server takes along the only one who could tell how its workers have ended."""
    settings = {"shuffle": False, "worker_per_consumer": 1, "max_attempts": 1, "data_queue_size": 1}
    with started(Noted, {"folder": str(tmp_path), "count": 32, "gate_at": 13}, **settings) as loader:
        iterator = iter(loader)
        found = next(iterator).tolist()
        killed: list[int] = []
        for _ in range(3):
            (call,) = until(
                lambda: [one for one in calls(tmp_path, "get") if one.index == 13 and one.pid not in killed]
            )
            (worker,) = workers()
            server = worker.parent()
            assert server is not None
            server.kill()
            until(lambda gone=server: is_gone(gone))
            worker.kill()
            killed.append(call.pid)
        (tmp_path / "open").touch()
        assert found + flat(iterator) == list(range(32))
