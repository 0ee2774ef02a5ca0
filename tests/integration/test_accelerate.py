"""Accelerate skips batches of our loader as it does of torch's: the samples that are left, in their order."""

from __future__ import annotations

import pytest
from accelerate import skip_first_batches

from tests.datasets import Numbers
from tests.loaders import made
from tests.slow import slow
from tests.watching import flat

COUNT, STEPS = 50, 7
OUTSIDE = pytest.mark.filterwarnings("ignore:the batches of epoch . are made outside of the loader")


@OUTSIDE
@pytest.mark.parametrize(
    ("settings", "workers"),
    [
        ({}, 0),
        ({"even": "pad", "nb_consumer": 3}, 1),
        ({"collate_fn": list, "drop_last": True}, 0),
        slow({}, 1),
        slow({"even": "pad", "nb_consumer": 3}, 0),
        slow({"collate_fn": list, "drop_last": True}, 1),
    ],
)
def test_the_batches_that_are_left_are_those_of_the_loader(workers: int, settings: dict):
    with made(Numbers, {"count": COUNT}, worker_per_consumer=workers, **settings) as loader:
        loader.start(0)
        epochs = [[list(map(int, batch)) for batch in loader] for _ in range(3)]
        for epoch, whole in enumerate(epochs):
            for skipped in {0, 1, len(whole) - 1, len(whole)}:
                loader.set_epoch(epoch)
                rest = skip_first_batches(loader, skipped)
                assert len(rest) == len(whole) - skipped
                assert [list(map(int, batch)) for batch in rest] == whole[skipped:]


@OUTSIDE
def test_the_next_epoch_follows_on_the_one_that_was_skipped_into():
    with made(Numbers, {"count": COUNT}, worker_per_consumer=0) as loader:
        _, second = flat(loader), flat(loader)
        loader.set_epoch(0)
        left = skip_first_batches(loader, 4)  # starts nothing
        assert loader.state_dict()["epoch"] == 2
        list(left)
        assert flat(loader) == second


@OUTSIDE
def test_trainers_name_the_epoch_by_the_sampler_that_was_wrapped():
    """As Hugging Face's does when it goes on from a checkpoint."""
    with made(Numbers, {"count": COUNT}, worker_per_consumer=0) as loader:
        epochs = [[batch.tolist() for batch in loader] for _ in range(3)]
    with made(Numbers, {"count": COUNT}, worker_per_consumer=0) as loader:
        left = skip_first_batches(loader, 5)
        left.batch_sampler.batch_sampler.set_epoch(1)
        assert [batch.tolist() for batch in left] == epochs[1][5:]
        loader.set_epoch(2)
        assert [batch.tolist() for batch in loader] == epochs[2]


def test_it_is_told_that_the_loader_does_not_make_these_batches():
    with made(Numbers, {"count": COUNT}, worker_per_consumer=0) as loader:
        with pytest.warns(
            UserWarning, match=r"epoch 0 are made outside of the loader.*load_state_dict\(state\) goes on"
        ):
            assert len(list(loader.batch_sampler)) == STEPS
        assert len(loader.batch_sampler) == STEPS
