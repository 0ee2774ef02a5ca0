"""Keys differ in every field, are the same for ever, and have nothing in common with their neighbours."""

import itertools
import time
import timeit

import numpy as np

from swift_loader.plan.seeding import batch_key, derive, keyed_generator, order_key, sample_key
from tests.unit.plan import checks
from tests.watching import soon_at_least_once


def test_keys_differ_in_every_field_and_between_purposes():
    few = [0, 1, 2, 3, 1_000, 2**40]
    keys = [batch_key(*fields) for fields in itertools.product(few, repeat=4)]
    keys += [sample_key(*fields) for fields in itertools.product(few, repeat=3)]
    keys += [order_key(*fields) for fields in itertools.product(few, repeat=2)]
    keys += [derive(order_key(0, 0), purpose) for purpose in range(9)]
    assert len(set(keys)) == len(keys)
    assert all(0 <= key < 2**128 for key in keys)


def test_every_field_changes_half_of_the_bits():
    for field in range(4):
        flips = []
        for value in range(500):
            fields = [5, 6, 7, 8]
            fields[field] = value
            one = batch_key(*fields)
            fields[field] += 1
            flips.append([int(bit) for bit in f"{one ^ batch_key(*fields):0128b}"])
        counts = np.sum(flips, axis=0)
        assert 0.4 * 500 < counts.min() <= counts.max() < 0.6 * 500


def test_streams_of_neighbouring_keys_are_independent():
    for make in (lambda n: batch_key(0, 0, 0, n), lambda n: sample_key(n, 0, 0), lambda n: batch_key(0, n, 1, 1)):
        firsts = np.array([keyed_generator(make(n)).random(2) for n in range(4_000)])
        bins = (firsts * 8).astype(int)
        counts = np.bincount(bins[:, 0] * 8 + bins[:, 1], minlength=64)
        assert checks.deviation(counts, np.full(64, 4_000 / 64), 63) < 4
        follow = np.bincount(bins[1:, 0] * 8 + bins[:-1, 0], minlength=64)
        assert checks.deviation(follow, np.full(64, 3_999 / 64), 63) < 4


def test_a_generator_is_the_same_whenever_it_is_made_from_a_key():
    assert keyed_generator(batch_key(1, 2, 3, 4)).random() == keyed_generator(batch_key(1, 2, 3, 4)).random()


def test_keys_never_change_between_versions():
    """Augmentation after a resume relies on these very numbers."""
    assert batch_key(1, 2, 3, 4) == 56051901026797811450972850824547027518
    assert sample_key(1, 2, 3) == 88976169448431334806761163289286226538


def test_a_key_costs_about_a_microsecond():
    def seconds_each() -> float:
        return (
            min(timeit.repeat(lambda: batch_key(2**63, 17, 3, 123_456), number=1_000, repeat=5, timer=time.thread_time))
            / 1_000
        )

    soon_at_least_once(seconds_each, bound_s=10e-6)
