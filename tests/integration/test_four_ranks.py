"""Jobs of four ranks, and of ranks that share a consumer: all hear of a difference, nobody waits, equal means equal."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gloo_ranks import run_ranks

#: Ranks start one after the other in the given order; each goes on taking batches until it hears of the difference.
MISMATCH = """
import json, os, sys, time
import torch.distributed as distributed
from swift_loader import RankMismatch, SwiftLoader
from tests.datasets import Numbers

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
distributed.init_process_group("gloo")
store = distributed.distributed_c10d._get_default_store()
rounds = []
for number, (order, odd, settings) in enumerate(json.loads(sys.argv[1])):
    settings = {"batch_size": 4, "seed": 1, "count": 80, **(settings if rank == odd else {})}
    place = order.index(rank)
    if place:
        store.wait([f"{number}/started/{order[place - 1]}"])
    begun, error = time.monotonic(), None
    count = settings.pop("count")
    with SwiftLoader(Numbers, {"count": count}, nb_consumer=world, worker_per_consumer=1, **settings) as loader:
        try:
            try:
                loader.start(rank)
            finally:
                store.set(f"{number}/started/{rank}", "yes")
            while time.monotonic() < begun + 20:
                for batch in loader:
                    pass
        except RankMismatch as found:
            error = str(found)
        heard = time.monotonic()
    rounds.append([begun, heard, error])
    distributed.barrier()
print(json.dumps(rounds))
distributed.destroy_process_group()
"""

#: The order of starting, the rank that was set otherwise, how; and the setting and its value there as they are named.
DIFFERENT: list[tuple[list[int], int, dict[str, Any], str, str]] = [
    ([0, 1, 2, 3], 3, {"batch_size": 5}, "batch_size", "5"),
    ([2, 0, 3, 1], 2, {"seed": 2}, "seed", "2"),
    ([3, 2, 1, 0], 1, {"count": 84}, "len(dataset)", "84"),
    ([1, 3, 0, 2], 0, {"drop_last": True}, "drop_last", "True"),
]


@pytest.mark.slow
def test_every_one_of_four_ranks_hears_of_a_setting_that_differs(tmp_path):
    told = run_ranks(tmp_path, MISMATCH, [row[:3] for row in DIFFERENT], world=4)
    for number, (_, odd, _, name, value) in enumerate(DIFFERENT):
        begun, heard, errors = zip(*(rank[number] for rank in told), strict=True)
        for error in errors:
            assert error is not None, errors
            assert error.startswith(f"{name} is ")
            assert f" {value} on rank {odd}" in error
        assert max(heard) - max(begun) < 20


NEVER_STARTED = """
import json, os, sys, threading
import torch.distributed as distributed
from swift_loader import SwiftLoader
from tests.datasets import Numbers

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
distributed.init_process_group("gloo")
with SwiftLoader(Numbers, {"count": 80}, 4, world, 1) as loader:
    found = []
    if rank % 2:
        loader.start(rank)
        found = [number for batch in loader for number in batch.tolist()]
threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("swift-")]
print(json.dumps([found, threads]))
distributed.barrier()
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_of_four_ranks_that_never_start_hang_nobody(tmp_path):
    told = run_ranks(tmp_path, NEVER_STARTED, world=4)
    assert [len(found) for found, _ in told] == [0, 20, 0, 20]
    assert not set(told[1][0]) & set(told[3][0])
    # A thread that still waits in torch's store for the others when the interpreter ends would abort the process.
    assert [threads for _, threads in told] == [[]] * 4


#: In each round a rank asks for the consumer that its place in the list says, and tells all that it was given.
SHARED = """
import json, os, sys
import torch.distributed as distributed
from swift_loader import ConfigError, SwiftLoader
from tests.datasets import Random

rank = int(os.environ["RANK"])
distributed.init_process_group("gloo")
rounds = []
for consumers, settings in json.loads(sys.argv[1]):
    with SwiftLoader(Random, {"count": 40}, 4, max(consumers) + 1, 1, **settings) as loader:
        try:
            loader.start(consumers[rank])
            batches = [batch for _ in range(2) for batch in loader]
            told = [{name: batch[name].tolist() for name in ("i", "drawn", "epoch", "step")} for batch in batches]
        except ConfigError as error:
            told = str(error)
    rounds.append(told)
print(json.dumps(rounds))
distributed.barrier()
distributed.destroy_process_group()
"""

#: Which consumer each rank is, and how the loader is set.
TENSOR_PARALLEL: list[tuple[list[int], dict[str, Any]]] = [
    ([0, 0, 1, 1], {"seed": 1}),
    ([0, 1, 0, 1], {"seed": 2, "shuffle": False}),
    ([0, 0, 0, 0], {}),  # one consumer: its ranks agree on a seed
    ([0, 0, 0, 0], {"shuffle": False}),
]


@pytest.mark.slow
def test_ranks_of_one_consumer_get_the_same_stream_random_numbers_included(tmp_path):
    two_consumers_without_a_seed = ([0, 0, 1, 1], {})
    told = run_ranks(tmp_path, SHARED, [*TENSOR_PARALLEL, two_consumers_without_a_seed], world=4)
    for number, (consumers, _) in enumerate(TENSOR_PARALLEL):
        check_that_streams_are_shared(consumers, [rank[number] for rank in told])
    errors = [rank[-1] for rank in told]
    assert all("the world has 4" in error and "Give seed=" in error for error in errors)


def test_two_ranks_of_one_consumer_agree_on_a_seed_and_get_the_same_stream(tmp_path):
    told = run_ranks(tmp_path, SHARED, [([0, 0], {}), ([0, 0], {})], world=2)
    check_that_streams_are_shared([0, 0], [first for first, _ in told])
    check_that_streams_are_shared([0, 0], [second for _, second in told])
    assert told[0][0] != told[0][1]  # each loader draws a seed of its own


def check_that_streams_are_shared(consumers: list[int], told: list[Any]) -> None:
    streams = {consumer: told[rank] for rank, consumer in enumerate(consumers)}
    assert told == [streams[consumer] for consumer in consumers]
    batches = [batch for stream in streams.values() for batch in stream]
    for epoch in range(2):
        indices = [index for batch in batches if batch["epoch"][0] == epoch for index in batch["i"]]
        assert sorted(indices) == list(range(40))
    drawn = [tuple(batch["drawn"][0]) for batch in batches]
    assert len(set(drawn)) == len(drawn) == 20  # two epochs of 40 samples in batches of 4
