"""The promises of a plan, one check each. A check raises AssertionError; broken.py breaks each of them."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest

import numpy as np

from swift_loader.plan.plan import Plan

Batches = list[list[int]]


def epoch_of(plan: Plan, epoch: int, consumer: int) -> Batches:
    return plan.indices(epoch, consumer, 0, plan.step_count(epoch, consumer))


def real_batches(plan: Plan, epoch: int, consumer: int) -> Batches:
    """The epoch's batches without the repeats that the mask marks."""
    batches = []
    for step, batch in enumerate(epoch_of(plan, epoch, consumer)):
        mask = plan.mask(epoch, consumer, step)
        assert mask is None or len(mask) == len(batch)
        batches.append(batch if mask is None else [index for index, real in zip(batch, mask, strict=True) if real])
    return batches


def real_indices(plan: Plan, epoch: int, consumer: int) -> list[int]:
    return [index for batch in real_batches(plan, epoch, consumer) for index in batch]


def check_every_index_comes_exactly_once(plan: Plan, sample_count: int, consumer_count: int, epoch: int = 0) -> None:
    seen = Counter(index for consumer in range(consumer_count) for index in real_indices(plan, epoch, consumer))
    assert seen == Counter(range(sample_count))


def check_no_index_comes_twice(plan: Plan, sample_count: int, consumer_count: int, epoch: int = 0) -> None:
    seen = [index for consumer in range(consumer_count) for index in real_indices(plan, epoch, consumer)]
    assert len(seen) == len(set(seen))
    assert all(0 <= index < sample_count for index in seen)


def check_steps_are_equal(plan: Plan, consumer_count: int, epoch: int = 0) -> None:
    promised = {plan.step_count(epoch, consumer) for consumer in range(consumer_count)}
    taken = {len(epoch_of(plan, epoch, consumer)) for consumer in range(consumer_count)}
    assert len(promised) == 1
    assert taken == promised


def check_batches_are_neither_empty_nor_too_big(plan: Plan, batch_size: int, consumer_count: int) -> None:
    sizes = {len(batch) for consumer in range(consumer_count) for batch in epoch_of(plan, 0, consumer)}
    assert sizes <= set(range(1, batch_size + 1))


def check_blocks_do_not_matter(plan: Plan, consumer: int, block: int, epoch: int = 0) -> None:
    steps = plan.step_count(epoch, consumer)
    parts = [plan.indices(epoch, consumer, first, block) for first in range(0, steps, block)]
    assert [batch for part in parts for batch in part] == epoch_of(plan, epoch, consumer)


def check_epochs_are_shuffled_and_differ(plan: Plan, epochs: int = 8) -> None:
    orders = [real_indices(plan, epoch, 0) for epoch in range(epochs)]
    assert all(order != sorted(order) for order in orders)
    assert len({tuple(order) for order in orders}) == epochs


def check_reads_stay_near(plan: Plan, sample_count: int, window: int, mix: int) -> None:
    """The first group's samples lie in `mix` windows; a stretch as long as the shortest group touches two groups."""
    order = np.array(real_indices(plan, 0, 0))
    shortest = window * mix - (-sample_count) % window
    assert _neighbourhoods(order[:shortest], sample_count, window) <= mix
    for start in range(0, sample_count - shortest, max(1, shortest // 2)):
        assert _neighbourhoods(order[start : start + shortest], sample_count, window) <= 2 * mix


def _neighbourhoods(indices: np.ndarray, sample_count: int, window: int) -> int:
    """The fewest arcs of `window` indices, on the circle of all of them, that cover these."""
    points = np.sort(indices)
    covered = np.searchsorted(np.concatenate((points, points + sample_count)), points + window)
    starts = ends = np.arange(points.size)
    arcs = 0
    while (ends - starts).max() < points.size:
        turns, at = np.divmod(ends, points.size)
        ends = covered[at] + turns * points.size
        arcs += 1
    return arcs


def check_shares_differ_by_at_most_one(plan: Plan, consumer_count: int) -> None:
    sizes = [len(real_indices(plan, 0, consumer)) for consumer in range(consumer_count)]
    assert max(sizes) - min(sizes) <= 1


def check_every_consumer_sees_everything(plan: Plan, sample_count: int, consumer_count: int, epochs: int) -> None:
    for consumer in range(consumer_count):
        seen = {index for epoch in range(epochs) for index in real_indices(plan, epoch, consumer)}
        assert seen == set(range(sample_count))


def check_steps_do_not_depend_on_consumers(make: Callable[[int], Plan], consumer_counts: Sequence[int]) -> None:
    """Global step s holds the same samples whatever the number of consumers."""
    seen = []
    for count in consumer_counts:
        plan = make(count)
        steps = zip_longest(*(real_batches(plan, 0, consumer) for consumer in range(count)), fillvalue=[])
        seen.append([sorted(chain(*step)) for step in steps])
    assert all(other == seen[0] for other in seen)


def check_memory_is_constant(plan: Plan, sample_count: int, limit: int = 4_000_000) -> None:
    last = plan.step_count(3, 0) - 1
    tracemalloc.start()
    try:
        blocks = [plan.indices(3, 0, first, 64) for first in (0, last // 2, max(0, last - 63))]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    indices = [index for block in blocks for batch in block for index in batch]
    assert len(indices) == len(set(indices))
    assert 0 <= min(indices) <= max(indices) < sample_count
    assert peak < limit


def check_batches_mix_classes(plan: Plan, labels: np.ndarray) -> None:
    """A batch of a set sorted by class holds most of the classes that a batch of a perfect shuffle holds."""
    class_count = len(np.unique(labels))
    batches = epoch_of(plan, 0, 0)
    found = np.mean([len(np.unique(labels[batch])) for batch in batches])
    perfect = np.mean([class_count * (1 - (1 - 1 / class_count) ** len(batch)) for batch in batches])
    assert found > 0.75 * perfect


def check_positions_are_uniform(plan: Plan, sample_count: int, epochs: int) -> None:
    """Over epochs every index comes to every place equally often."""
    orders = np.array([real_indices(plan, epoch, 0) for epoch in range(epochs)])
    counts = np.array([np.bincount(column, minlength=sample_count) for column in orders.T])
    # Rows and columns are both bound to their sums.
    assert deviation(counts, np.full(counts.shape, epochs / sample_count), (sample_count - 1) ** 2) < 5


def check_neighbours_are_uniform_over_epochs(plan: Plan, sample_count: int, epochs: int) -> None:
    """Over epochs all distances between an index and the next are equally frequent. One pair is taken of each epoch:
    those of one small epoch are not independent."""
    steps = []
    for epoch in range(epochs):
        order = real_indices(plan, epoch, 0)
        place = epoch % (sample_count - 1)
        steps.append((order[place + 1] - order[place]) % sample_count)
    counts = np.bincount(steps, minlength=sample_count)[1:]
    assert deviation(counts, np.full(counts.shape, epochs / (sample_count - 1)), sample_count - 2) < 5


def check_neighbours_are_uniform_within_an_epoch(plan: Plan, sample_count: int, epoch: int = 0, bins: int = 50) -> None:
    """In one epoch of a large set the distances between places 1, 2 and 32 apart are spread evenly."""
    order = np.array(real_indices(plan, epoch, 0))
    expected = np.bincount(np.arange(1, sample_count) * bins // sample_count, minlength=bins) / (sample_count - 1)
    for lag in (1, 2, 32):
        distances = (order[lag:] - order[:-lag]) % sample_count
        counts = np.bincount(distances * bins // sample_count, minlength=bins)
        assert deviation(counts, expected * distances.size, bins - 1) < 5


def deviation(counts: np.ndarray, expected: np.ndarray, freedom: int) -> float:
    """Chi-square, in standard deviations from its mean, by Wilson and Hilferty: good for few degrees of freedom too."""
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return ((chi_square / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5
