"""Random numbers inside workers are keyed by the seed and the place in the stream; the consumer's are its own."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from swift_loader import worker_info
from tests.datasets import FollowsEpochs, Random, Surroundings
from tests.loaders import started, stream
from tests.slow import slow
from tests.torch_datasets import TorchRandom
from tests.watching import plain


@pytest.fixture(scope="module")
def expected() -> list:
    return stream(Random, {"count": 40}, epochs=2, worker_per_consumer=0)


@pytest.mark.parametrize(
    ("random_per", "workers"),
    [("batch", 4), ("sample", 2), *(slow("batch", count) for count in (1, 2)), *(slow("sample", n) for n in (1, 4))],
)
def test_random_numbers_do_not_depend_on_the_workers(workers: int, random_per: str):
    one, other = (
        stream(Random, {"count": 40}, epochs=2, worker_per_consumer=count, random_per=random_per)
        for count in (0, workers)
    )
    assert one == other


@pytest.mark.parametrize("method", [slow("spawn"), "fork"])
def test_random_numbers_do_not_depend_on_the_start_method(method: str, expected: list):
    assert stream(Random, {"count": 40}, epochs=2, start_method=method) == expected


def test_random_numbers_are_new_in_every_batch_and_epoch(expected: list):
    drawn = [number for batch in expected for row in batch["drawn"][1] for number in row[:2]]
    assert len(set(drawn)) == len(drawn)


def test_random_numbers_follow_the_seed(expected: list):
    assert stream(Random, {"count": 40}, epochs=2, seed=2) != expected


def test_per_sample_a_sample_draws_the_same_wherever_it_is_in_the_epoch():
    def by_sample(**settings) -> dict[tuple[int, int], list[float]]:
        batches = stream(Random, {"count": 40}, epochs=2, random_per="sample", **settings)
        return {
            (epoch, i): drawn
            for batch in batches
            for i, epoch, drawn in zip(batch["i"][1], batch["epoch"][1], batch["drawn"][1], strict=True)
        }

    shuffled = by_sample()
    assert shuffled == by_sample(shuffle=False) == by_sample(batch_size=5)
    assert all(shuffled[0, i] != shuffled[1, i] for i in range(40))


def test_consumers_draw_differently():
    streams = [stream(Random, {"count": 40}, nb_consumer=2, consumer=consumer) for consumer in range(2)]
    numbers = [number for batches in streams for batch in batches for row in batch["drawn"][1] for number in row]
    assert len(set(numbers)) > len(numbers) * 0.6  # the keyed generator is asked once per sample, as all are


def test_threads_in_a_worker_draw_from_the_generator_of_their_sample():
    def drawn(**settings) -> list:
        return [[row[2] for row in batch["drawn"][1]] for batch in stream(Random, {"count": 40}, **settings)]

    expected = drawn(random_per="sample", worker_per_consumer=0)
    assert drawn(random_per="sample", worker_threads=4) == expected
    assert drawn(worker_threads=2) == drawn(worker_threads=5) == expected


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_torchs_generator_is_seeded_too_where_the_dataset_uses_it(workers: int):
    found = stream(TorchRandom, {"count": 24}, epochs=2, worker_per_consumer=workers)
    assert found == stream(TorchRandom, {"count": 24}, epochs=2, worker_per_consumer=2)
    numbers = [number for batch in found for number in batch[1]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_the_consumers_own_generators_are_never_touched(workers: int, method: str):
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    expected = [random.random(), np.random.random(), torch.rand(1).item()]
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    with started(TorchRandom, {"count": 16}, worker_per_consumer=workers, start_method=method, seed=None) as loader:
        list(loader)
        iterator = iter(loader)
        next(iterator)
        assert [random.random(), np.random.random(), torch.rand(1).item()] == expected


def test_worker_info_tells_where_the_code_runs():
    import json

    assert worker_info() is None
    with started(Surroundings, {"count": 32}, nb_consumer=2, consumer=1, worker_per_consumer=2, seed=77) as loader:
        told = [[json.loads(text) for text in batch] for _ in range(2) for batch in loader]
    places = [[(one["epoch"], one["step"]) for one in batch] for batch in told]
    assert places == [[(epoch, step)] * 8 for epoch in range(2) for step in range(2)]
    assert {one["consumer"] for batch in told for one in batch} == {1}
    assert {one["worker"] for batch in told for one in batch} <= {0, 1}
    assert {one["seed"] for batch in told for one in batch} == {77}
    assert worker_info() is None


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_with_set_epoch_is_told_the_epoch(workers: int):
    with started(FollowsEpochs, {"count": 24}, worker_per_consumer=workers) as loader:
        epochs = [{number for batch in loader for number in plain(batch)[1]} for _ in range(3)]
        loader.set_epoch(9)
        epochs.append({number for batch in loader for number in plain(batch)[1]})
    assert epochs == [{0}, {1}, {2}, {9}]
