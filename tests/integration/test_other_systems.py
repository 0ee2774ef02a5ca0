"""Elsewhere than on Linux: the package imports, batches are made without workers, and workers are refused in words."""

from __future__ import annotations

from tests.watching import run_script

SCRIPT = """
import sys
import torch
import os

# What other systems lack, as far as it can be taken away here.
sys.modules["fcntl"] = None
del os.memfd_create, os.eventfd, os.pidfd_open
sys.platform = "darwin"

from swift_loader import ConfigError, SwiftLoader

with SwiftLoader.from_dataset(list(range(10)), 4, 1, 0, shuffle=False) as loader:
    loader.start(0)
    print([batch.tolist() for batch in loader])
with SwiftLoader.from_dataset(list(range(10)), 4, 1, 2) as loader:
    try:
        loader.start(0)
    except ConfigError as error:
        print(error)
"""


def test_batches_are_made_without_workers_and_workers_are_refused(tmp_path):
    batches, refusal = run_script(tmp_path, SCRIPT).splitlines()
    assert batches == "[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]"
    assert "need Linux" in refusal
    assert "worker_per_consumer=0" in refusal
