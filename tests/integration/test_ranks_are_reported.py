"""One rank can tell how much every rank starved, without the others taking part; who is not there is missing."""

from __future__ import annotations

from pathlib import Path

from tests.gloo_ranks import run_ranks

RANK = """
import json, os, time
import torch.distributed as distributed
from swift_loader import SwiftLoader
from tests.datasets import Slow

rank = int(os.environ["RANK"])
distributed.init_process_group("gloo")
told = {}
kwargs = {"count": 96, "seconds": 0.001 + 0.004 * rank}
with SwiftLoader(Slow, kwargs, 4, 2, 1, seed=1) as loader:
    loader.start(rank)
    told["before"] = loader.report(all_ranks=True, timeout_s=0.1)
    distributed.barrier()
    for epoch in range(6):  # more epochs than are kept in the store
        for batch in loader:
            time.sleep(0.005)
    if rank == 0:
        told["whole"] = loader.report(all_ranks=True)
    distributed.barrier()
    if rank == 0:  # the other one has left: it never comes to this epoch's end
        for batch in loader:
            pass
        begun = time.monotonic()
        told["one is missing"] = loader.report(all_ranks=True, timeout_s=0.2)
        told["took"] = time.monotonic() - begun
    distributed.barrier()
print(json.dumps(told), flush=True)
distributed.destroy_process_group()
"""


def test_one_rank_tells_what_every_rank_waited_for(tmp_path: Path):
    first, second = run_ranks(tmp_path, RANK, world=2)
    for told in (first, second):
        assert "no batch was handed out" in told["before"]
        assert "No consumer has told of an epoch." in told["before"]
    rows = {line.split()[0]: line.split() for line in first["whole"].splitlines() if line.startswith("       ")}
    assert rows["0"][1:3] == ["5", "12"]
    assert rows["1"][1:3] == ["5", "12"]
    waited = [int(row[row.index("%") - 1].split(".")[0]) for row in (rows["0"], rows["1"])]
    assert waited[0] < waited[1]
    assert "Consumer 1 waited most" in first["whole"]
    assert "       1 missing" in first["one is missing"]
    assert "Nothing was heard of 1." in first["one is missing"]
    assert first["took"] < 10
    assert max(len(line) for line in first["whole"].splitlines()) <= 80
