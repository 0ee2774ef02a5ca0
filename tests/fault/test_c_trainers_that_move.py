"""Rows A1 and C15 of the faults together: a replacement starts where the trainer was, wherever that has gone since."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.fault.unhurried import Where
from tests.loaders import started
from tests.watching import until, workers


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_c24_a_replacement_is_where_the_first_workers_were(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("home", "out"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setattr(sys, "path", [*sys.path, "modules"])
    settings = {"worker_per_consumer": 1, "start_method": method, "data_queue_size": 1, "message_queue_size": 1}
    with started(Where, {"count": 400}, **settings) as loader:
        iterator = iter(loader)
        first = next(iterator)
        assert set(first["folder"]) == {str(tmp_path / "home")}
        os.chdir(tmp_path / "out")
        (tmp_path / "out").rmdir()  # it is removed under the trainer
        (victim,) = workers()
        victim.kill()
        found = list(iterator)
        until(lambda: [one.pid for one in workers()] not in ([], [victim.pid]))
        assert all(batch == first for batch in found)
        assert len(found) == 49
    assert first["path"][0] == [str(tmp_path / "home" / "modules")] * 8 or first["path"] == [["modules"]] * 8
