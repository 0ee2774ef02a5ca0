"""Row C6 of the faults: SIGTERM to the whole group, as a batch system sends it; the trainer goes on and saves.

A hundred times: ``-m soak``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fault.soaked import Soak
from tests.gloo_ranks import run_ranks
from tests.slow import slow
from tests.watching import told_by, warm_python

TRAINERS = """
import json, os, random, signal, sys, tempfile, time
from functools import partial
from pathlib import Path
import torch
from swift_loader import SwiftLoader
from tests.datasets import Slow
from tests.fault import orphans

MORE = 8  # batches that are still taken after the signal

def train(method, result, folder):
    os.setpgid(0, 0)
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(len(taken)))
    taken = []
    (folder / "begins").touch()
    with SwiftLoader(Slow, {"count": 1 << 20, "seconds": 0.002}, 4, 1, 2, shuffle=False, start_method=method,
                     data_queue_size=2, message_queue_size=1) as loader:
        loader.start(0)
        for batch in loader:
            taken.append(batch.tolist())
            if told and len(taken) >= told[0] + MORE:
                break
        torch.save({"loader": loader.state_dict(), "taken": taken, "told": told[0]}, result)
    sys.exit(0)

def terminated(number, chance):
    method, after_s = orphans.METHODS[number % 3], chance.uniform(0, 0.6)
    handle, result = tempfile.mkstemp(prefix="orphans-")
    os.close(handle)
    terminate = lambda pid: os.killpg(pid, signal.SIGTERM)
    seconds, code = orphans.outlived(partial(train, method, result), 1, terminate, after_s)
    kept = torch.load(result, weights_only=True)
    os.unlink(result)
    flat = [index for batch in kept["taken"] for index in batch]
    return {"method": method, "after_s": after_s, "code": code, "seconds": seconds, "step": kept["loader"]["step"],
            "taken": len(kept["taken"]), "more": len(kept["taken"]) - kept["told"],
            "exact": flat == list(range(len(flat)))}

if __name__ == "__main__":
    orphans.be_nursery()
    chance = random.Random(int(sys.argv[1]))
    for number in range(int(sys.argv[2])):
        print(json.dumps(terminated(number, chance)), flush=True)
"""


def trainers(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """What became of trainers whose group was terminated, one by one."""
    return told_by("-c", TRAINERS, str(seed), str(count))


def has_its_checkpoint(one: dict[str, Any]) -> bool:
    """It took the batches that it still wanted, in order, and its state says so."""
    return bool(one["code"] == 0 and one["exact"] and one["more"] == 8 and one["step"] == one["taken"])


@pytest.mark.parametrize("count", [2, slow(6)])
def test_c6_a_terminated_group_still_gets_its_batches_and_its_checkpoint(count: int):
    said = warm_python("-c", TRAINERS, "1", str(count))
    told = list(map(json.loads, said.splitlines()))
    assert len(told) == count
    assert not [one for one in told if not has_its_checkpoint(one)]


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_c6_soak_checkpoints():
    soak = Soak("checkpoints", "SIGTERM to the trainer's whole group: checkpoints kept, with 8 batches more", seed=2)
    told = []
    for one in trainers(soak.seed, 100):
        told.append(one)
        soak.progress(f"{len(told)} groups terminated")
    kept = sum(map(has_its_checkpoint, told))
    soak.keep(groups=len(told), checkpoints_kept=kept)
    assert kept == len(told) == 100


RANK = """
import json, os, signal
import torch.distributed as dist
from swift_loader import SwiftLoader
from tests.datasets import Numbers

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
os.setpgid(0, 0)
dist.init_process_group("gloo")
rank = dist.get_rank()
taken = []
with SwiftLoader(Numbers, {"count": 400}, 4, 2, 2, shuffle=False, data_queue_size=1, message_queue_size=1) as loader:
    loader.start(rank)
    for step, batch in enumerate(loader):
        taken += batch.tolist()
        if step == 3:
            os.killpg(0, signal.SIGTERM)
        if step == 20:
            break
    state = loader.state_dict()
dist.barrier()
dist.destroy_process_group()
print(json.dumps([bool(told), state["step"], taken]))
"""


def test_c6_the_groups_of_two_ranks_are_terminated_and_go_on(tmp_path):
    told = run_ranks(tmp_path, RANK, world=2)
    assert [one[:2] for one in told] == [[True, 21], [True, 21]]
    assert [one[2] for one in told] == [list(range(84)), list(range(200, 284))]
