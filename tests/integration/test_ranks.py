"""Real ranks over gloo: they agree on the seed, tell what they disagree on, and wait for nobody."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from tests.gloo_ranks import free_port
from tests.slow import slow
from tests.warm import Script
from tests.watching import begin_warm

RANK = """
import json, os, sys, time, warnings
import torch.distributed as distributed
from swift_loader import RankMismatch, SwiftLoader
from tests.datasets import Numbers

rank, how = int(os.environ["RANK"]), sys.argv[1]
settings = json.loads(sys.argv[2])[rank]
told = {}
if settings is not None:
    distributed.init_process_group("gloo")
    loaders = settings.pop("loaders", 1)
    settings = {"batch_size": 4, "nb_consumer": 2, "worker_per_consumer": 1, **settings}
    if how == "other order of time" and rank == 0:
        time.sleep(0.5)
    begun = time.monotonic()
    try:
        for number in range(loaders):
            with SwiftLoader(Numbers, {"count": settings.pop("count", 40)}, **settings) as loader:
                if how == "by itself":
                    found = [n for batch in loader for n in batch.tolist()]
                else:
                    loader.start(rank)
                    found = [n for batch in loader for n in batch.tolist()]
                told[number] = found
                deadline = time.monotonic() + 30
                while how == "mismatch" and time.monotonic() < deadline:
                    for batch in loader:
                        time.sleep(0.01)
    except RankMismatch as error:
        told["mismatch"] = str(error)
        told["after"] = time.monotonic() - begun
    print(json.dumps(told), flush=True)
    if how != "one never starts":
        distributed.barrier()
        distributed.destroy_process_group()
"""


def run_ranks(folder, how: str, settings: list[dict | None], timeout_s: float = 150) -> list[dict]:
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    with ExitStack() as stack:
        ranks: list[Script] = []
        for rank in range(2):
            arguments = (how, json.dumps(settings))
            process = begin_warm(folder, RANK, *arguments, name=f"rank{rank}.py", RANK=str(rank), **env)
            ranks.append(stack.enter_context(process))
            stack.callback(process.kill)
        told = [process.communicate(timeout=timeout_s) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], told
    return [json.loads(out) if out else {} for out, _ in told]


@pytest.mark.parametrize("how", [slow("at once"), "other order of time", slow("by itself")])
def test_ranks_without_a_seed_agree_on_one(how: str, tmp_path):
    told = run_ranks(tmp_path, how, [{"loaders": 2}, {"loaders": 2}])
    first, second = ([rank[str(number)] for rank in told] for number in range(2))
    assert sorted(first[0] + first[1]) == list(range(40))
    assert sorted(second[0] + second[1]) == list(range(40))
    assert first != second


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        slow("seed", {"seed": 1}, {"seed": 2}),
        slow("batch_size", {"batch_size": 4}, {"batch_size": 5}),
        slow("nearby_shuffle", {"nearby_shuffle": 0}, {"nearby_shuffle": 8}),
        slow("shuffle", {"shuffle": True, "seed": 1}, {"shuffle": False, "seed": 1}),
        slow("len(dataset)", {"count": 40}, {"count": 44}),
        ("nb_consumer", {"seed": 1}, {"seed": 1, "nb_consumer": 3}),
    ],
)
def test_every_rank_hears_of_a_setting_that_differs(name: str, one: dict, other: dict, tmp_path):
    told = run_ranks(tmp_path, "mismatch", [one, other])
    for rank in told:
        assert f"{name} is " in rank["mismatch"]
        assert "must be set alike" in rank["mismatch"]
        assert rank["after"] < 20


@pytest.mark.slow
def test_ranks_without_workers_hear_of_it_too(tmp_path):
    without = {"worker_per_consumer": 0}
    told = run_ranks(tmp_path, "mismatch", [{"seed": 1, **without}, {"seed": 2, **without}])
    assert all("seed is " in rank["mismatch"] for rank in told)


def test_a_rank_that_never_starts_hangs_nobody(tmp_path):
    script_of_rank_1 = {"loaders": 0}
    told = run_ranks(tmp_path, "one never starts", [{}, script_of_rank_1])
    assert len(told[0]["0"]) == 20
