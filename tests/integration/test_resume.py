"""A loader stops anywhere and goes on there: the same batches, bit for bit, none lost and none twice."""

from __future__ import annotations

import json
import pickle
import random
import warnings
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest
import torch

from swift_loader import ConfigError, SwiftLoader, SwiftLoaderError
from tests.datasets import Numbers, Random, Slow
from tests.loaders import made, started, stream
from tests.slow import slow, slow_but
from tests.watching import begin_warm, flat, plain, run_warm

COUNT, STEPS = 100, 13


def taken(loader: SwiftLoader, count: int) -> list:
    """That many batches, over as many epochs as it takes; the loader is left as if the process had died."""
    found: list = []
    while len(found) < count:
        for batch in loader:
            found.append(plain(batch))
            if len(found) == count:
                break
    return found


def resumed(state: dict, epochs: int, **settings) -> list:
    with made(Random, {"count": COUNT}, **settings) as loader:
        loader.load_state_dict(pickle.loads(pickle.dumps(state)))
        loader.start(0)
        return [plain(batch) for _ in range(epochs) for batch in loader]


DONE = (0, 1, 5, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS, 2 * STEPS + 7)
WORKERS = ((2, 2), (1, 3), (2, 0), (0, 2))
#: Steps within an epoch and at its end, and the numbers of workers in turns.
IN_TURN = list(zip((0, 5, STEPS, STEPS + 1), WORKERS, strict=True))


@pytest.fixture(scope="module")
def whole() -> list:
    return stream(Random, {"count": COUNT}, epochs=4, random_per="batch", data_queue_size=4)


@pytest.mark.parametrize(("done", "workers"), slow_but(product(DONE, WORKERS), IN_TURN.__contains__))
def test_it_goes_on_at_any_step_with_any_number_of_workers(done: int, workers: tuple[int, int], whole: list):
    settings = {"random_per": "batch", "data_queue_size": 4}
    before, after = workers
    with started(Random, {"count": COUNT}, worker_per_consumer=before, **settings) as loader:
        assert taken(loader, done) == whole[:done]
        state = loader.state_dict()
    assert len(pickle.dumps(state)) <= 1024
    rest = resumed(state, 4 - done // STEPS, worker_per_consumer=after, **settings)
    assert rest == whole[done:]


def test_it_goes_on_without_the_order_of_steps_too():
    kwargs = {"count": 60, "seconds": 0.003, "every": 7}
    settings = {"in_order": False, "batch_size": 2, "worker_per_consumer": 4}
    chance = random.Random(5)
    for after in ({"in_order": False}, {"in_order": True}, {"worker_per_consumer": 0}):
        with started(Slow, kwargs, **settings) as loader:
            first = [number for _, batch in zip(range(chance.randrange(5, 25)), loader, strict=False)
                     for number in batch.tolist()]  # fmt: skip
            state = loader.state_dict()
        with made(Slow, kwargs, **{**settings, **after}) as loader:
            loader.load_state_dict(state)
            loader.start(0)
            rest = flat(loader)
            assert sorted(first + rest) == list(range(60))
            assert sorted(flat(loader)) == list(range(60))


def test_a_running_loader_can_be_sent_back():
    with started(Random, {"count": COUNT}) as loader:
        first = taken(loader, 5)
        state = loader.state_dict()
        rest = taken(loader, STEPS)  # leaves the epoch early, and takes the next one whole
        loader.load_state_dict(state)
        again = [plain(batch) for batch in loader]
        assert first + again == stream(Random, {"count": COUNT})
        assert [plain(batch) for batch in loader] == rest


def test_the_iteration_that_goes_on_ends_when_a_state_is_loaded():
    with started(Numbers) as loader:
        old = iter(loader)
        next(old)
        loader.load_state_dict(loader.state_dict())
        with pytest.raises(SwiftLoaderError, match="left when another one began"):
            next(old)
        assert len(list(loader)) == len(loader) - 1


def test_the_seed_that_was_drawn_is_taken_over():
    with started(Random, {"count": COUNT}, seed=None) as loader:
        first = taken(loader, 4)
        state = loader.state_dict()
        rest = [plain(batch) for batch in _the_rest(loader, state)]
    assert resumed(state, 1, seed=None) == rest
    with started(Random, {"count": COUNT}, seed=None) as other:  # started already, with a seed of its own
        taken(other, 2)
        other.load_state_dict(state)
        assert [plain(batch) for batch in other] == rest
        assert other.state_dict()["seed"] == state["seed"]
    assert first


def _the_rest(loader: SwiftLoader, state: dict):
    loader.load_state_dict(state)
    return loader


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"batch_size": 4}, "batch_size was 8 and is 4"),
        ({"seed": 2}, "seed was 1 and is 2"),
        ({"shuffle": False}, "shuffle was True and is False"),
        ({"random_per": "sample"}, "random_per was 'batch' and is 'sample'"),
        ({"nb_consumer": 2}, "nb_consumer was 1 and is 2"),
        ({"nearby_shuffle": 0}, "nearby_shuffle was 40 and is 0"),
    ],
)
def test_a_state_of_another_loader_is_refused_at_once_and_says_what_differs(changed: dict, said: str):
    with started(Numbers) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with made(Numbers, **changed) as loader, pytest.raises(ConfigError) as caught:
        loader.load_state_dict(state)
    assert said in str(caught.value)


def test_a_dataset_that_has_grown_is_refused_when_it_is_known():
    with started(Numbers, {"count": 64}) as loader:
        state = loader.state_dict()
    with made(Numbers, {"count": 65}) as loader:
        loader.load_state_dict(state)
        with pytest.raises(ConfigError, match=r"len\(dataset\) was 64 and is 65"):
            loader.start(0)


@pytest.mark.parametrize(
    ("epoch", "expected", "started_first"),
    slow_but(
        [(epoch, there, first) for epoch, there in ((1, slice(11, 16)), (2, slice(16, 24))) for first in (True, False)],
        lambda row: row[2] == (row[0] == 1),
    ),
)
def test_set_epoch_as_frameworks_call_it_leaves_the_rest_of_the_epoch_and_skips_it_for_the_next(
    started_first: bool, epoch: int, expected: slice
):
    with started(Numbers) as loader:
        taken(loader, 11)
        state = loader.state_dict()
    assert (state["epoch"], state["step"]) == (1, 3)
    with made(Numbers) as loader:
        if started_first:
            loader.start(0)
        loader.load_state_dict(state)
        loader.set_epoch(epoch)
        if not started_first:
            loader.start(0)
        assert [plain(batch) for batch in loader] == stream(Numbers, epochs=3)[expected]


def test_an_epochs_end_is_the_next_ones_beginning_whoever_names_it():
    with started(Numbers) as loader:
        assert len(list(loader)) == 8
        state = loader.state_dict()
    assert (state["epoch"], state["step"]) == (1, 0)
    whole = stream(Numbers, epochs=2)
    for named in (0, 1):
        with made(Numbers) as loader:
            loader.load_state_dict(state)
            loader.set_epoch(named)
            loader.start(0)
            assert [plain(batch) for batch in loader] == whole[8:]


GLOBAL = {"elastic": True, "random_per": "sample", "even": "balance"}


def _next(loader: SwiftLoader, iterations: list, number: int) -> dict:
    """The next batch, of the next epoch if need be."""
    for batch in iterations[number]:
        return batch
    iterations[number] = iter(loader)
    return next(iterations[number])


def _pixels(batch: dict) -> list[tuple]:
    return list(zip(batch["i"].tolist(), map(tuple, batch["drawn"].tolist()), strict=True))


def _global_steps(consumers: int, batch_size: int, states: list[dict] | None, count: int) -> tuple[list, list[dict]]:
    """The next global steps, each as its samples with their pixels, and the states after them."""
    found, states_after = [], []
    with ExitStack() as stack:
        iterations = []
        loaders = []
        for consumer in range(consumers):
            settings = {"nb_consumer": consumers, "batch_size": batch_size, "worker_per_consumer": 1, **GLOBAL}
            loader = stack.enter_context(made(Random, {"count": 301}, **settings))
            if states is not None:
                loader.load_state_dict(states[consumer % len(states)])
            loader.start(consumer)
            loaders.append(loader)
            iterations.append(iter(loader))
        for _ in range(count):
            batches = [_next(loader, iterations, number) for number, loader in enumerate(loaders)]
            found.append(sorted(pair for batch in batches for pair in _pixels(batch)))
        states_after = [loader.state_dict() for loader in loaders]
    return found, states_after


def test_another_number_of_consumers_goes_on_with_the_same_global_batches_pixels_included():
    expected, _ = _global_steps(8, 6, None, 16)  # 301 samples, 48 at a time: 7 steps an epoch
    first, states = _global_steps(8, 6, None, 5)
    second, states = _global_steps(4, 12, states, 6)
    third, _ = _global_steps(6, 8, states, 5)
    assert first + second + third == expected


def test_random_numbers_per_batch_would_not_be_the_same_and_it_says_so():
    with started(Numbers, elastic=True, nb_consumer=2, batch_size=4) as loader:
        state = loader.state_dict()
    with made(Numbers, elastic=True, nb_consumer=1, batch_size=8) as loader:
        with pytest.warns(UserWarning, match="random_per='sample' keeps them"):
            loader.load_state_dict(state)
        loader.start(0)


def test_a_checkpoint_of_torch_distributed_keeps_it(tmp_path: Path):
    import torch.distributed.checkpoint as dcp  # as long as half of torch: not for who only collects

    whole = stream(Random, {"count": COUNT})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch, of itself: it is not a process group that saves
        with started(Random, {"count": COUNT}) as loader:
            taken(loader, 6)
            dcp.save({"loader": loader, "weights": torch.zeros(3)}, checkpoint_id=tmp_path)
        with made(Random, {"count": COUNT}) as loader:
            dcp.load({"loader": loader, "weights": torch.zeros(3)}, checkpoint_id=tmp_path)
            loader.start(0)
            assert [plain(batch) for batch in loader] == whole[6:]


SCRIPT = """
import json, os, sys
from pathlib import Path
from swift_loader import SwiftLoader
from tests.datasets import Random
from tests.watching import plain

checkpoint = Path("checkpoint.json")
with SwiftLoader(Random, {"count": 100}, 8, 1, 2, seed=1) as loader:
    if checkpoint.exists():
        loader.load_state_dict(json.loads(checkpoint.read_text()))
    loader.start(0)
    for epoch in range(int(sys.argv[1])):
        for batch in loader:
            print(json.dumps(plain(batch)), flush=True)
            partial = checkpoint.with_suffix(".partial")
            partial.write_text(json.dumps(loader.state_dict()))
            partial.replace(checkpoint)
"""


@pytest.mark.parametrize("crashes", [2, slow(3)])
def test_after_a_crash_of_the_whole_job_nothing_is_lost_or_doubled(crashes: int, tmp_path: Path):
    chance = random.Random(3)
    expected = [json.dumps(batch) for batch in stream(Random, {"count": COUNT}, epochs=2)]
    lines: list[str] = []
    for _ in range(crashes):
        with begin_warm(tmp_path, SCRIPT, "2") as process:
            for _ in range(chance.randrange(2, 7)):
                process.readline()
            process.kill()
            # What was printed and not yet read belongs to it; of the last line perhaps no state was written.
            lines += process.communicate(timeout=60)[0].splitlines(keepends=True)
        kept = json.loads((tmp_path / "checkpoint.json").read_text())
        lines = lines[: kept["epoch"] * STEPS + kept["step"]]
    lines += run_warm(tmp_path, SCRIPT, "1" if kept["epoch"] else "2").splitlines(keepends=True)
    assert [line.strip() for line in lines] == expected
