"""The oracle of the faults can fail: it finds what is lost, doubled, out of place or changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch.utils.data import DataLoader

from tests.fault.oracle import ALL_WORLDS, WORLDS, Traced, differences, faultless, record


def spoiled(how: str) -> list:
    found = faultless(epochs=2)
    one = found[7]
    if how == "lost":
        del found[7]
    elif how == "doubled":
        found.insert(8, one)
    elif how == "swapped":
        found[7], found[8] = found[8], found[7]
    elif how == "changed":
        found[7] = replace(one, crc=one.crc ^ 1)
    elif how == "cut short":
        del found[30:]
    return found


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("lost", "8 samples were lost"),
        ("doubled", "8 samples came twice"),
        ("swapped", "holds samples"),
        ("changed", "other bytes"),
        ("cut short", "were lost"),
    ],
)
def test_what_is_wrong_is_found(how: str, told: str):
    assert any(told in words for words in differences(spoiled(how), faultless(epochs=2)))


def test_nothing_is_found_where_nothing_is_wrong():
    assert differences(faultless(epochs=2), faultless(epochs=2)) == []


def test_batches_out_of_order_are_no_difference_where_no_order_is_promised():
    assert differences(spoiled("swapped"), faultless(epochs=2), in_order=False) == []


def test_another_loader_is_judged_by_the_same_oracle():
    dataset = Traced(augment=False)
    assert differences(record(DataLoader(dataset, 8)), record(DataLoader(dataset, 8))) == []
    assert differences(record(DataLoader(dataset, 8))[:-1], record(DataLoader(dataset, 8))) != []


def test_each_pair_of_method_workers_and_thread_is_among_the_worlds():
    def pairs(worlds: list) -> set:
        facts = [[("method", w.method), ("workers", w.workers), ("thread", w.in_thread)] for w in worlds]
        return {(a, b) for three in facts for a in three for b in three}

    assert pairs(WORLDS) == pairs(ALL_WORLDS)
