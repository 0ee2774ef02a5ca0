"""Where files may not grow (``ulimit -f``), what workers share cannot be had: it is told with the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow import slow
from tests.watching import run_warm

SCRIPT = """
import resource, sys
import numpy as np
from swift_loader import SwiftLoader, SwiftLoaderError
from tests.datasets import Pictures

limit, given = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
settings = {"batch_size": 4, "nb_consumer": 1, "worker_per_consumer": 1, "start_method": "forkserver"}
rows = np.zeros((8, 20_000))
with SwiftLoader.from_dataset(rows, **settings) if given else SwiftLoader(Pictures, {}, **settings) as loader:
    try:
        loader.start(0)
    except SwiftLoaderError as error:
        print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize(
    ("what", "limit", "given", "told"),
    [
        slow("the shared page", 8_192, 0, "WorkerStartFailed: what workers share with this process lies in files in"),
        ("the dataset", 100_000, 1, "WorkerStartFailed: what workers share with this process lies in files in"),
        ("a batch", 100_000, 0, "NoRoom: no memory for a batch of 262,208 bytes: File too large"),
    ],
)
def test_d17_files_that_may_not_grow_are_told_with_the_limit(
    what: str, limit: int, given: int, told: str, tmp_path: Path
):
    out = run_warm(tmp_path, SCRIPT, str(limit), str(given))
    assert out.startswith(told), what
    assert f"may have at most {limit:,} bytes (ulimit -f)" in out
