"""Elsewhere than on Linux: the package imports, batches are made without workers, and workers are refused in words."""

from __future__ import annotations

import pytest

from tests.slow import slow
from tests.watching import run_warm

SCRIPT = """
import sys

# All that is no part of the package, and that needs what goes.
import asyncio, cloudpickle, concurrent.futures, ctypes, dill, getpass, json, loguru, multiprocessing, numpy.random
import platform, selectors, shutil, socket, subprocess, tempfile, torch, torch.distributed

from tests.lacking import take_away

take_away({system!r})

from swift_loader import ConfigError, SwiftLoader

with SwiftLoader.from_dataset(list(range(10)), 4, 1, 0, shuffle=False) as loader:
    loader.start(0)
    print([batch.tolist() for batch in loader])
    print('3 batches of 10 samples' in loader.report())
with SwiftLoader.from_dataset(list(range(10)), 4, 1, 2) as loader:
    try:
        loader.start(0)
    except ConfigError as error:
        print(error)
"""


@pytest.mark.parametrize("system", ["darwin", slow("win32")])
def test_batches_are_made_without_workers_and_workers_are_refused(tmp_path, system):
    batches, is_reported, refusal = run_warm(tmp_path, SCRIPT.format(system=system)).splitlines()
    assert batches == "[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]"
    assert is_reported == "True"
    assert f"need Linux (memory files, pidfds), and this is {system}" in refusal
    assert "worker_per_consumer=0" in refusal
