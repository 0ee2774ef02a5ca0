"""The trace is on disk however the script ends, follows the rules of its format, and is never a child's."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.trace_rules import breaches, lane, read
from tests.watching import begin_warm, until

SCRIPT = """
import os, signal, sys
from tests.datasets import Numbers
from tests.loaders import made
loader = made(Numbers, {"count": 64}, worker_per_consumer=int(sys.argv[2]), trace_file="trace.json")
loader.start(0)
for epoch in range(2):
    for step, batch in enumerate(loader):
        if (epoch, step) == (1, 3):
            if sys.argv[1] == "raises":
                raise RuntimeError("the script's own")
            if sys.argv[1] == "killed":
                os.kill(os.getpid(), signal.SIGTERM)
            if sys.argv[1] == "forks":
                if os.fork() == 0:
                    sys.exit()  # by way of Python's own end
                os.wait()
                assert not os.path.exists("trace.json")
                os._exit(0)
    if sys.argv[1] == "forks":
        os.unlink("trace.json")
"""


def end_of(folder: Path, how: str, workers: int) -> int:
    with begin_warm(folder, SCRIPT, how, str(workers)) as script:
        _, told = script.communicate(timeout=60)
        assert "Error" not in told or how == "raises"
        return script.returncode


def steps_in(folder: Path, workers: int) -> int:
    events = read((folder / "trace.json").read_text())
    assert breaches(events) == []
    assert any(lane(events, f"swift-worker-c0w{number}") for number in range(max(1, workers)))
    assert sum(bool(lane(events, f"swift-telecom-c0w{number}")) for number in range(workers)) == workers
    return len([one for one in lane(events, "consumer") if one["name"] == "transfer to device"])


def test_it_is_whole_where_the_script_ends_without_closing_or_by_an_error(tmp_path: Path):
    assert end_of(tmp_path, "ends", 2) == 0
    assert steps_in(tmp_path, 2) == 16
    assert end_of(tmp_path, "raises", 0) == 1
    assert steps_in(tmp_path, 0) == 8 + 4


def test_it_has_the_epochs_before_where_the_script_is_killed(tmp_path: Path):
    assert end_of(tmp_path, "killed", 0) == -signal.SIGTERM
    assert steps_in(tmp_path, 0) == 8


def test_a_forked_child_that_ends_writes_none(tmp_path: Path):
    assert end_of(tmp_path, "forks", 0) == 0
    until(lambda: not (tmp_path / "trace.json").exists())
