"""Scripts that upload pictures and train on them, on a folder and on a real S3 server, as a user would call them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.s3_server import S3Server


def run(url: list[str], root: Path, **environment: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(root), "SWIFT_LOADER_FETCHER_LINGER_S": "0.3", **environment}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "examples/stores/run.py", *url],
        cwd=root, env=env, capture_output=True, text=True, check=False, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def look_at(told: str) -> None:
    assert re.search(r"400 pictures in \d+ shards", told)
    shares = [int(share) for share in re.findall(r"400 pictures, (\d+)% right", told)]
    assert len(shares) == 3
    assert max(shares) > 50  # a quarter is chance
    assert "rank 0: 13 steps, rank 1: 13 steps; 400 pictures, 400 of them different" in told


@pytest.mark.slow
def test_they_run_on_a_folder(project_root: Path) -> None:
    look_at(run([], project_root))


@pytest.mark.slow
def test_they_run_on_a_real_server(project_root: Path, s3_server: S3Server) -> None:
    pytest.importorskip("obstore")
    keys = {"AWS_ACCESS_KEY_ID": s3_server.access_key, "AWS_SECRET_ACCESS_KEY": s3_server.secret_key}
    told = run([s3_server.endpoint], project_root, **keys)
    look_at(told)
    assert re.search(r"\d+ requests for \d", told)
