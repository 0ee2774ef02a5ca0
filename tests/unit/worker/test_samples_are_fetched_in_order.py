"""Index -> sample: in the order of the batch, whoever fetches; with retries, left out where that was set."""

import threading
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.wire.page import FETCHES
from swift_loader.worker.berth import Wanted
from swift_loader.worker.unmade import MakeFailed, TakenBack
from tests.unit.batch.samples import examples
from tests.unit.worker.making import Listed, fetcher


@pytest.fixture
def fetchers():
    """Makes fetchers and ends their threads."""
    made = []

    def make(dataset, **settings):
        made.append(fetcher(dataset, **settings))
        made[-1].begin(0, 0, 4)
        return made[-1]

    yield make
    for one in made:
        one.close()
    made.clear()


def _all(one, indices, wanted=None):
    return list(one.samples(indices, Wanted([1], 1) if wanted is None else wanted))


class Flaky:
    """Each sample fails as often as it is told to."""

    def __init__(self, failures):
        self.failures = list(failures)
        self.tries = [0] * len(self.failures)

    def __getitem__(self, index):
        self.tries[index] += 1
        if self.tries[index] <= self.failures[index]:
            raise ValueError(f"try {self.tries[index]}")
        return index


@examples
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 2), st.booleans(), st.sampled_from([1, 3]))
def test_a_sample_is_tried_as_often_as_was_set_and_then_left_out_or_raised(failures, retries, skip, threads):
    dataset = Flaky(failures)
    one = fetcher(dataset, retries=retries, on_error="skip" if skip else "raise", worker_threads=threads)
    one.begin(0, 0, 4)
    lost = [index for index, count in enumerate(failures) if count > retries]
    try:
        if lost and not skip:
            with pytest.raises(MakeFailed) as caught:
                _all(one, list(range(len(failures))))
            assert (caught.value.report.index, caught.value.report.text) == (lost[0], f"try {retries + 1}")
            return
        assert _all(one, list(range(len(failures)))) == [i for i in range(len(failures)) if i not in lost]
        assert [index for index, _ in one.skipped] == lost
        assert dataset.tries == [min(count, retries) + 1 for count in failures]
    finally:
        one.close()


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_keep_the_order_although_the_first_is_the_last_to_come(fetchers, threads):
    others = threading.Semaphore(0)

    def slow():
        for _ in range(threads - 1):
            assert others.acquire(timeout=10)
        return "slow"

    def fast():
        others.release()
        return "fast"

    one = fetchers(Listed([slow, *[fast] * 9]), worker_threads=threads)
    assert _all(one, list(range(10))) == ["slow", *["fast"] * 9]


def test_threads_ask_for_samples_of_the_following_batch_and_no_further_than_twice_their_number(fetchers):
    asked = []
    dataset = Listed([lambda i=i: asked.append(i) or i for i in range(100)])
    one = fetchers(dataset, worker_threads=2)
    one.following = range(50, 60)
    assert _all(one, [0, 1, 2]) == [0, 1, 2]
    one.begin(0, 1, 4)
    assert _all(one, list(range(50, 60))) == list(range(50, 60))
    assert sorted(asked) == [0, 1, 2, *range(50, 60)]


def test_what_was_asked_for_in_vain_is_forgotten(fetchers):
    dataset = Listed(list(range(100)))
    one = fetchers(dataset, worker_threads=2)
    one.following = range(50, 60)
    assert _all(one, [0, 1, 2]) == [0, 1, 2]
    one.begin(0, 5, 4)
    assert _all(one, [7, 8]) == [7, 8]


def test_samples_of_another_epoch_are_fetched_anew(fetchers):
    epoch = [0]
    one = fetchers(Listed([lambda: epoch[0]] * 10), worker_threads=2)
    one.following = range(4)
    assert _all(one, [4, 5]) == [0, 0]
    epoch[0] = 1
    one.begin(1, 0, 4)
    assert _all(one, list(range(4))) == [1] * 4


def test_a_thread_that_fails_too_late_is_not_counted_for_the_next_batch(fetchers):
    late = threading.Event()

    def stuck():
        assert late.wait(10)
        raise ValueError("too late")

    one = fetchers(Listed(["a", stuck, "c", "d"]), worker_threads=2, on_error="skip")
    samples = one.samples([0, 1], Wanted([1], 1))
    assert next(samples) == "a"
    samples.close()
    one.begin(0, 1, 4)
    late.set()
    assert _all(one, [2, 3]) == ["c", "d"]
    assert one.skipped == []


@pytest.mark.parametrize("settings", [{}, {"worker_threads": 3}, {"retries": 1}], ids=str)
def test_an_order_that_was_taken_back_is_left_at_the_next_sample(fetchers, settings):
    word = [1]
    samples = fetchers(Listed(list(range(9))), **settings).samples(list(range(9)), Wanted(word, 1))
    assert [next(samples), next(samples)] == [0, 1]
    word[0] = 0
    with pytest.raises(TakenBack):
        next(samples)


class Whole(Listed):
    def __getitems__(self, indices):
        return [("whole", self.samples[index]) for index in indices]


def test_a_dataset_that_gives_whole_batches_is_asked_for_them(fetchers):
    one = fetchers(Whole(list("abc")))
    assert _all(one, [2, 0]) == [("whole", "c"), ("whole", "a")]
    assert one.watch.fetch_ns > 0


@pytest.mark.parametrize(
    "settings", [{"worker_threads": 2}, {"retries": 1}, {"on_error": "skip"}, {"random_per": "sample"}], ids=str
)
def test_but_not_where_single_samples_matter(fetchers, settings):
    assert _all(fetchers(Whole(list("abc")), **settings), [2, 0]) == ["c", "a"]


class Point(NamedTuple):
    x: Any
    y: Any


def _given(gives):
    dataset = Listed([1, 2])
    dataset.__getitems__ = gives
    return dataset


@pytest.mark.parametrize(
    ("gives", "text"),
    [
        (lambda indices: [1], "asked for 2 samples and gave a list of 1"),
        (lambda indices: (1, 2, 3), "asked for 2 samples and gave a tuple of 3"),
        (lambda indices: np.zeros((3, 2)), "gave a ndarray of 3"),
        (lambda indices: None, "gave a NoneType, not a list of samples.*collate_fn"),
        (lambda indices: {"x": [1, 2], "y": [1, 2]}, "gave a dict with 'x', 'y', not a list of samples.*collate_fn"),
        (lambda indices: Point([1, 2], [1, 2]), "gave a Point with 'x', 'y', not a list"),
        (lambda indices: "ab", "gave a str, not a list"),
        (lambda indices: {1, 2}, "gave a set, not a list"),
        (lambda indices: np.float32(1), "gave a float32, not a list"),
        (lambda indices: 1 / 0, "division"),
    ],
)
def test_whole_batches_that_are_none_are_the_datasets_error(fetchers, gives, text):
    with pytest.raises(MakeFailed, match=text) as caught:
        _all(fetchers(_given(gives)), [0, 1])
    assert caught.value.report.stage == "fetch"


@pytest.mark.parametrize("given", [(3, 4), deque([3, 4]), np.array([3, 4])], ids=repr)
def test_samples_may_come_in_another_sequence_than_a_list(fetchers, given):
    assert _all(fetchers(_given(lambda indices: given)), [0, 1]) == [3, 4]


@pytest.mark.parametrize(
    "given", [{"x": [1, 2], "y": [1, 2]}, Point([1], [2]), np.zeros((2, 3)), (np.zeros(2), np.ones(2)), None], ids=repr
)
def test_a_collate_of_the_users_gets_what_the_dataset_made_of_the_batch(fetchers, given):
    assert fetchers(_given(lambda indices: given)).batch([0, 1], Wanted([1], 1)) is given


def test_a_collate_of_the_users_gets_a_list_of_samples_otherwise(fetchers):
    assert fetchers(Listed([1, 2])).batch([1, 0], Wanted([1], 1)) == [2, 1]
    assert fetchers(_given(lambda indices: map(str, indices))).batch([1, 0], Wanted([1], 1)) == ["1", "0"]
    with pytest.raises(MakeFailed, match="asked for 2 samples and gave a list of 1"):
        fetchers(_given(lambda indices: [1])).batch([0, 1], Wanted([1], 1))


def test_whole_batches_may_come_from_a_generator(fetchers):
    dataset = Listed([1, 2])
    dataset.__getitems__ = lambda indices: (index * 10 for index in indices)
    assert _all(fetchers(dataset), [0, 1]) == [0, 10]


def test_a_whole_batch_that_was_taken_back_is_not_asked_for(fetchers):
    with pytest.raises(TakenBack):
        _all(fetchers(Whole([1, 2])), [0, 1], Wanted([2], 1))


@pytest.mark.parametrize("error", [KeyError("x"), StopIteration(), RuntimeError("")], ids=repr)
@pytest.mark.parametrize("settings", [{}, {"worker_threads": 2}, {"retries": 1}], ids=str)
def test_whatever_the_dataset_raises_names_the_sample(fetchers, error, settings):
    with pytest.raises(MakeFailed) as caught:
        _all(fetchers(Listed([1, error]), **settings), [0, 1])
    assert caught.value.report.index == 1
    assert caught.value.report.type_name == type(error).__name__


def test_the_cell_tells_which_sample_is_in_hand(fetchers):
    for settings in ({}, {"worker_threads": 2}):
        one = fetchers(Listed(list("abcd")), **settings)
        one._cell.enter(FETCHES, 1)
        for row, _ in enumerate(one.samples([3, 2, 1], Wanted([1], 1))):
            assert one._cell.index == [3, 2, 1][row]


def test_the_slowest_sample_is_named(fetchers):
    def slow():
        return sum(range(300_000))

    for settings in ({}, {"worker_threads": 2}, {"retries": 1}):
        one = fetchers(Listed([1, 2, slow, 4]), **settings)
        _all(one, [0, 1, 2, 3])
        assert one.watch.slowest_index == 2
        assert one.watch.fetch_ns >= one.watch.slowest_ns > 0
