"""Row D3 of the faults, and its neighbours: what memory is short of for a while is used again when it is there."""

from __future__ import annotations

import json

from tests import cgroups
from tests.watching import warm_python

IN_A_GROUP = """
import json, os, sys
from pathlib import Path
import torch
from tests import cgroups
from tests.large_datasets import Large
from tests.loaders import started

group = Path(sys.argv[1])
(group / "cgroup.procs").write_text(str(os.getpid()))
limit = cgroups.limit_file(group)
limit.write_text(str(8 << 30))
told = []
with started(Large, {"count": 240}, batch_size=4, memory_budget=400 << 20, start_method="fork", allow_fork=True,
             shuffle=False, data_queue_size=1, message_queue_size=1) as loader:
    kept = []
    def hold():  # all that there is
        try:
            for batch in iterator:
                kept.append(batch)
                if len(kept) == 20:
                    return
        except Exception as error:
            told.append(type(error).__name__)
    iterator = iter(loader)
    kept.append(next(iterator))
    usage = next(group / name for name in ("memory.usage_in_bytes", "memory.current") if (group / name).exists())
    limit.write_text(str(int(usage.read_text()) + (130 << 20)))
    hold()
    told.append(len(kept))
    limit.write_text(str(8 << 30))
    hold()
    told.append(len(kept))
    rows = [int(index) for batch in kept for index in batch["index"]]
    told.append(rows == list(range(80)))
    del kept
print(json.dumps(told))
"""


def test_d3_a_budget_that_was_lowered_rises_when_memory_is_there_again():
    with cgroups.memory_group("d3-again") as group:
        told = warm_python("-c", IN_A_GROUP, str(group))
    error, few, many, is_exact = json.loads(told)
    assert error == "NoRoom"
    assert few < 15
    assert many == 20
    assert is_exact
