"""Sizes that do not divide: real ranks with a collective at each step never wait for one that has no step left."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.gloo_ranks import run_ranks
from tests.slow import slow

#: Every rank goes through all cases in one life. At each step all add up what step they believe they are at, and at
#: the epoch's end they say so in the same way: a rank with fewer steps would be heard at once, and not hang.
IN_STEP = """
import json, os, sys, warnings
from datetime import timedelta
import torch
import torch.distributed as distributed
from swift_loader import SwiftLoader
from tests.datasets import Numbers

warnings.simplefilter("ignore", UserWarning)  # of ranks that repeat a sample, or differ in steps
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
distributed.init_process_group("gloo", timeout=timedelta(seconds=70))

def are_in_step(at):
    told = torch.tensor([at, 1])
    distributed.all_reduce(told)
    return told.tolist() == [world * at, world]

def epoch_of(loader):
    indices, real = [], []
    for step, batch in enumerate(loader):
        if not are_in_step(step):
            return None
        indices.append(batch.tolist())
        real.append(loader.last_batch_mask.tolist())
    return [indices, real] if are_in_step(-1) else None

told = []
for count, settings in json.loads(sys.argv[1]):
    with SwiftLoader(Numbers, {"count": count}, nb_consumer=world, worker_per_consumer=1, **settings) as loader:
        loader.start(rank)
        told.append([len(loader), [epoch_of(loader) for _ in range(2)]])
print(json.dumps(told))
distributed.barrier()
distributed.destroy_process_group()
"""

Case = tuple[int, dict[str, Any]]

AWKWARD: list[Case] = [
    (101, {"batch_size": 8, "shuffle": True, "even": "balance"}),
    (101, {"batch_size": 8, "shuffle": True, "even": "pad"}),
    (101, {"batch_size": 8, "shuffle": True, "even": "drop"}),
    (101, {"batch_size": 8, "shuffle": False, "even": "balance"}),
    (101, {"batch_size": 8, "shuffle": False, "even": "pad"}),
    (101, {"batch_size": 8, "shuffle": False, "even": "drop"}),
    (101, {"batch_size": 8, "shuffle": True, "elastic": True}),
    (101, {"batch_size": 8, "shuffle": False, "even": "pad", "drop_last": True}),
    (5, {"batch_size": 1, "shuffle": True}),
    (3, {"batch_size": 4, "shuffle": False, "even": "balance"}),
    (1, {"batch_size": 4, "shuffle": True, "elastic": True, "even": "pad"}),
    (1, {"batch_size": 1, "shuffle": True}),
]


#: With 4 ranks the last takes 3 steps and the others 4: so that it is seen that the ranks do tell.
UNEVEN: Case = (101, {"batch_size": 8, "shuffle": False, "even": "none"})


@pytest.mark.parametrize("world", [slow(2), pytest.param(4, marks=pytest.mark.soak)])
def test_ranks_with_a_collective_at_each_step_take_the_same_steps(world: int, tmp_path):
    cases = [(count, {"seed": 1, **settings}) for count, settings in [*AWKWARD, UNEVEN]]
    told = run_ranks(tmp_path, IN_STEP, cases, world=world)
    if world == 4:
        assert [length for *_, (length, _) in told] == [4, 4, 4, 3]
        assert all(first_epoch is None for *_, (_, (first_epoch, _)) in told)
    for number, (count, settings) in enumerate(AWKWARD):
        of_ranks = [rank[number] for rank in told]
        lengths = {length for length, _ in of_ranks}
        assert len(lengths) == 1, (count, settings)
        for epoch in range(2):
            epochs = [epochs[epoch] for _, epochs in of_ranks]
            assert None not in epochs, f"{count} samples, {settings}: the ranks came out of step"
            assert {len(indices) for indices, _ in epochs} == lengths
            check_what_was_seen(count, settings, epochs)


def check_what_was_seen(count: int, settings: dict[str, Any], epochs: list[Any]) -> None:
    seen = Counter(
        index
        for indices, masks in epochs
        for batch, mask in zip(indices, masks, strict=True)
        for index, is_real in zip(batch, mask, strict=True)
        if is_real
    )
    assert set(seen.values()) == {1}
    if settings.get("even") == "drop" or settings.get("drop_last"):
        assert set(seen) < set(range(count))
    else:
        assert set(seen) == set(range(count))


#: Ranks with unequal steps train and count under torch's Join: those that are done answer for the others' collectives.
JOINED = """
import hashlib, json, os, sys, warnings
from datetime import timedelta
import torch
import torch.distributed as distributed
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from swift_loader import SwiftLoader
from tests.datasets import Records

torch.set_num_threads(1)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
distributed.init_process_group("gloo", timeout=timedelta(seconds=70))
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(5, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
steps, seen = [], []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loader = SwiftLoader(Records, {"count": 101}, 10, world, 1, shuffle=False, even="none")
    loader.start(rank)
with loader:
    for epoch in range(2):
        steps.append(0)
        with Join([model]):
            for batch in loader:
                optimizer.zero_grad()
                (model(batch["x"]).squeeze(1) - batch["i"].float()).square().mean().backward()
                optimizer.step()
                steps[-1] += 1
                seen += batch["i"].tolist()
weights = b"".join(tensor.numpy().tobytes() for tensor in model.module.state_dict().values())
told = [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
print(json.dumps([steps, seen, hashlib.sha256(weights).hexdigest(), told]))
distributed.barrier()
distributed.destroy_process_group()
"""


def test_under_join_ranks_with_unequal_steps_train_on_every_sample_once(tmp_path):
    told = run_ranks(tmp_path, JOINED, world=2)
    assert [steps for steps, *_ in told] == [[6, 6], [5, 5]]
    assert Counter(index for _, seen, *_ in told for index in seen) == dict.fromkeys(range(101), 2)
    assert len({digest for _, _, digest, _ in told}) == 1
    assert all("from 5 to 6 batches" in warning and "Join" in warning for *_, (warning,) in told)
