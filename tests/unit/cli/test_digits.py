"""The demo's data: a fair cut, and an augmentation that keeps the digit."""

from __future__ import annotations

import numpy as np
import pytest

from swift_loader.cli import digits


@pytest.fixture(scope="module")
def tables() -> tuple[digits.Table, digits.Table]:
    return digits.load()


def test_training_and_test_set_are_all_digits_and_share_none(tables: tuple[digits.Table, digits.Table]):
    training, held_out = tables
    assert (len(training.labels), len(held_out.labels)) == (1437, 360)
    assert all(len(table.images) == len(table.labels) for table in tables)
    assert set(held_out.labels.tolist()) == set(range(10))
    assert 0 <= min(t.images.min() for t in tables) < max(t.images.max() for t in tables) <= 1
    again = digits.load()[1]
    assert np.array_equal(again.images, held_out.images)


def test_without_augmentation_a_sample_is_the_digit(tables: tuple[digits.Table, digits.Table]):
    dataset = digits.Digits(*tables[1], augment=False)
    image, label = dataset[7]
    assert len(dataset) == 360
    assert image.shape == (1, 8, 8)
    assert image.dtype == np.float32
    assert np.array_equal(image[0], tables[1].images[7])
    assert label == tables[1].labels[7]


def test_augmentation_shifts_by_at_most_a_pixel_and_follows_numpys_seed(tables: tuple[digits.Table, digits.Table]):
    dataset = digits.Digits(*tables[0], augment=True)
    padded = np.pad(tables[0].images[3], 1)
    shifts = {padded[t : t + 8, left : left + 8].tobytes() for t in range(3) for left in range(3)}
    state = np.random.get_state()
    try:
        np.random.seed(5)
        seen = [dataset[3][0].tobytes() for _ in range(200)]
        np.random.seed(5)
        assert seen == [dataset[3][0].tobytes() for _ in range(200)]
    finally:
        np.random.set_state(state)
    assert set(seen) == shifts
