"""A writer that is killed and called again writes the same bytes as one that was not, and leaves nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow import slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("kills", "names"), [(5, "nameless"), slow(100, "nameless"), slow(100, "hidden")])
def test_it_writes_the_same_bytes_however_often_it_was_killed(tmp_path, kills, names):
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.killed_writers", str(tmp_path), str(kills), names],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    killed, sets, found = map(int, done.stdout.split())
    assert killed >= kills
    assert sets >= 1
    assert found >= kills // 5  # not all of them were killed before they had written anything
