"""What was measured is on disk however a training script ends, but for the last second of one that is killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.slow import slow
from tests.watching import begin_warm, until

SCRIPT = """
import os, sys, time
from swift_loader import SwiftLoader
from tests.datasets import Numbers

loader = SwiftLoader(Numbers, {"count": 40}, 4, 1, 1, seed=1, benchmark_file=sys.argv[1])
loader.start(0)
taken = 0
for epoch in range(2):
    for batch in loader:
        taken += 1
        if taken == 13:
            break
print("taken", flush=True)
if sys.argv[2] == "exit":
    sys.exit(3)
if sys.argv[2] == "wait":
    time.sleep(60)
"""


def _lines(path: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("ending", "status"), [("forgotten", 0), slow("exit", 3)])
def test_a_script_that_ends_by_itself_loses_nothing(ending: str, status: int, tmp_path: Path):
    path = tmp_path / "benchmark.jsonl"
    with begin_warm(tmp_path, SCRIPT, str(path), ending) as script:
        script.communicate(timeout=60)
    assert script.returncode == status
    assert _lines(path) == ["batch"] * 10 + ["epoch"] + ["batch"] * 3


def test_a_script_that_is_killed_has_lost_no_more_than_a_second(tmp_path: Path):
    path = tmp_path / "benchmark.jsonl"
    with begin_warm(tmp_path, SCRIPT, str(path), "wait") as script:
        assert script.readline() == "taken\n"
        until(lambda: len(_lines(path)) == 14, "the last line")  # though no batch follows
        script.send_signal(signal.SIGTERM)
        script.communicate(timeout=60)
    assert script.returncode == -signal.SIGTERM
    assert _lines(path) == ["batch"] * 10 + ["epoch"] + ["batch"] * 3
