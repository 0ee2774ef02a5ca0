"""Schemes: which indices are asked for, in which order."""

from __future__ import annotations

import numpy as np
import pytest

from swift_loader.streams import (
    ConcatenatedScheme,
    ConstantScheme,
    SequentialExampleScheme,
    SequentialScheme,
    ShuffledExampleScheme,
    ShuffledScheme,
    cross_validation,
)


def requests(scheme):
    return list(scheme.get_request_iterator())


def shuffled(indices, seed=3):
    indices = list(indices)
    np.random.RandomState(seed).shuffle(indices)
    return indices


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (ConstantScheme(3, num_examples=7), [3, 3, 1]), (ConstantScheme(3, num_examples=9), [3, 3, 3]),
        (ConstantScheme(3, num_examples=2), [2]), (ConstantScheme(2, times=3), [2, 2, 2]),
        (SequentialScheme(5, 3), [[0, 1, 2], [3, 4]]), (SequentialScheme(4, 2), [[0, 1], [2, 3]]),
        (SequentialScheme([4, 3, 2, 1, 0], 3), [[4, 3, 2], [1, 0]]),
        (SequentialScheme(iter([3, 2, 1]), 2), [[3, 2], [1]]), (SequentialScheme(np.arange(3), 2), [[0, 1], [2]]),
        (SequentialExampleScheme(4), [0, 1, 2, 3]), (SequentialExampleScheme([2, 0]), [2, 0]),
        (ConcatenatedScheme([SequentialScheme(2, 2), SequentialScheme([9], 2)]), [[0, 1], [9]]),
    ],
)  # fmt: skip
def test_a_scheme_asks_for_these(scheme, expected):
    assert requests(scheme) == expected


def test_a_constant_scheme_without_an_end_goes_on():
    endless = ConstantScheme(3).get_request_iterator()
    assert [next(endless) for _ in range(10)] == [3] * 10


def test_shuffled_batches_are_those_of_the_generator_and_other_ones_in_each_epoch():
    order = shuffled(range(7))
    scheme = ShuffledScheme(7, 3, rng=np.random.RandomState(3))
    assert requests(scheme) == [order[:3], order[3:6], order[6:]]
    again = requests(scheme)
    assert again != [order[:3], order[3:6], order[6:]]
    assert sorted(index for batch in again for index in batch) == list(range(7))


def test_sorted_indices_are_sorted_within_each_batch():
    order = shuffled([5, 4, 3, 2, 1, 0])
    scheme = ShuffledScheme([5, 4, 3, 2, 1, 0], 3, rng=np.random.RandomState(3), sorted_indices=True)
    assert requests(scheme) == [sorted(order[:3]), sorted(order[3:])]


def test_without_a_generator_every_run_is_the_same():
    order = shuffled(range(10), seed=1)
    assert requests(ShuffledScheme(10, 5)) == [order[:5], order[5:]]
    assert requests(ShuffledExampleScheme(10)) == order
    assert requests(ShuffledExampleScheme(7, rng=np.random.RandomState(3))) == shuffled(range(7))


def test_schemes_say_whether_they_ask_for_examples():
    assert not ShuffledScheme(4, 2).requests_examples
    assert not ConstantScheme(4).requests_examples
    assert SequentialExampleScheme(4).requests_examples
    assert ConcatenatedScheme([ShuffledExampleScheme(4)]).requests_examples


def test_cross_validation_cuts_into_folds():
    folds = [(requests(training), requests(validation)) for training, validation in
             cross_validation(SequentialExampleScheme, 6, 3)]  # fmt: skip
    assert folds == [([2, 3, 4, 5], [0, 1]), ([0, 1, 4, 5], [2, 3]), ([0, 1, 2, 3], [4, 5])]
    uneven = [(requests(v), count) for _, v, count in
              cross_validation(SequentialScheme, 5, 2, strict=False, batch_size=2)]  # fmt: skip
    assert uneven == [([[0, 1]], 2), ([[2, 3], [4]], 3)]


def test_what_is_no_scheme_is_refused():
    with pytest.raises(ValueError, match="batch_size is a whole number of at least 1, not 0"):
        ShuffledScheme(10, 0)
    with pytest.raises(ValueError, match="both"):
        ConstantScheme(10, 2, 2)
    with pytest.raises(ValueError, match="equal folds"):
        list(cross_validation(SequentialScheme, 5, 2, batch_size=2))
    with pytest.raises(ValueError, match="all request batches"):
        ConcatenatedScheme([SequentialScheme(2, 1), SequentialExampleScheme(2)])
