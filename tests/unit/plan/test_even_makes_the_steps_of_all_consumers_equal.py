"""The table even x drop_last x shuffle, counted by hand for N=101, B=8, C=4: it stands in the documentation too.

Shuffled shares are 26, 25, 25, 25; in order they are 26, 26, 26, 23; an elastic step takes 32. "8(2)" is a batch
of 8, 2 of them real and 6 repeats.
"""

import pytest

from swift_loader.plan.plan import EpochPlan
from tests.unit.plan import checks

FULL = ["8 8 8"] * 4

SHUFFLED = [
    # even, drop_last, the batches of the four consumers, samples left out
    ("balance", False, ["8 8 5 5", "8 8 5 4", "8 8 5 4", "8 8 5 4"], 0),
    ("pad", False, ["8 8 8 8(2)", "8 8 8 8(1)", "8 8 8 8(1)", "8 8 8 8(1)"], 0),
    ("drop", False, ["8 8 8 1", "8 8 8 1", "8 8 8 1", "8 8 8 1"], 1),
    ("none", False, ["8 8 8 2", "8 8 8 1", "8 8 8 1", "8 8 8 1"], 0),
    ("balance", True, FULL, 5),
    ("pad", True, FULL, 5),
    ("drop", True, FULL, 5),
    ("none", True, FULL, 5),
]
IN_ORDER = [
    ("balance", False, ["8 8 5 5", "8 8 5 5", "8 8 5 5", "8 8 4 3"], 0),
    ("pad", False, ["8 8 8 8(2)", "8 8 8 8(2)", "8 8 8 8(2)", "8 8 8(7) 8(0)"], 0),
    ("drop", False, ["8 8 7", "8 8 7", "8 8 7", "8 8 7"], 9),
    ("none", False, ["8 8 8 2", "8 8 8 2", "8 8 8 2", "8 8 7"], 0),
    ("balance", True, ["8 8 8", "8 8 8", "8 8 8", "8 4 4"], 13),
    ("pad", True, ["8 8 8", "8 8 8", "8 8 8", "8 8 8(0)"], 13),
    ("drop", True, ["8 8", "8 8", "8 8", "8 8"], 37),
    ("none", True, ["8 8 8", "8 8 8", "8 8 8", "8 8"], 13),
]
ELASTIC = [
    ("balance", False, ["8 8 5 5", "8 8 5 5", "8 8 5 4", "8 8 4 4"], 0),
    ("pad", False, ["8 8 8 8(5)", "8 8 8 8(0)", "8 8 8 8(0)", "8 8 8 8(0)"], 0),
    ("drop", False, FULL, 5),
    ("none", False, ["8 8 8 5", "8 8 8", "8 8 8", "8 8 8"], 0),
    ("balance", True, FULL, 5),
    ("pad", True, FULL, 5),
    ("drop", True, FULL, 5),
    ("none", True, FULL, 5),
]
ROWS = [
    *(({"shuffle": True}, *row) for row in SHUFFLED),
    *(({"shuffle": False}, *row) for row in IN_ORDER),
    *(({"shuffle": shuffle, "elastic": True}, *row) for shuffle in (True, False) for row in ELASTIC),
]


def told(plan, consumer):
    """The sizes of a consumer's batches, as the table writes them."""
    real = map(len, checks.real_batches(plan, 0, consumer))
    sizes = map(len, checks.epoch_of(plan, 0, consumer))
    return " ".join(str(size) if size == own else f"{size}({own})" for size, own in zip(sizes, real, strict=True))


@pytest.mark.parametrize(("settings", "even", "drop_last", "batches", "left_out"), ROWS)
def test_the_table_of_101_samples_for_4_consumers_holds(settings, even, drop_last, batches, left_out):
    plan = EpochPlan(
        sample_count=101, batch_size=8, consumer_count=4, window=40, even=even, drop_last=drop_last, **settings
    )
    assert [told(plan, consumer) for consumer in range(4)] == batches
    assert [plan.step_count(0, consumer) for consumer in range(4)] == [len(row.split()) for row in batches]
    seen = {index for consumer in range(4) for index in checks.real_indices(plan, 0, consumer)}
    assert 101 - len(seen) == left_out


@pytest.mark.parametrize("even", ["none", "balance", "pad"])
def test_without_shuffling_a_consumer_has_its_part_of_the_index_space_in_order(even):
    plan = EpochPlan(sample_count=101, batch_size=8, consumer_count=4, shuffle=False, even=even)
    for consumer, part in enumerate([range(26), range(26, 52), range(52, 78), range(78, 101)]):
        assert checks.real_indices(plan, 5, consumer) == list(part)


def test_without_shuffling_a_consumer_may_be_empty():
    plan = EpochPlan(sample_count=9, batch_size=2, consumer_count=8, shuffle=False, even="none")
    assert [plan.step_count(0, consumer) for consumer in range(8)] == [1, 1, 1, 1, 1, 0, 0, 0]
    assert plan.indices(0, 4, 0, 9) == [[8]]
    assert plan.indices(0, 7, 0, 9) == []


@pytest.mark.parametrize("elastic", [False, True])
def test_fewer_samples_than_consumers_repeat_one_sample_each_and_mark_it(elastic):
    plan = EpochPlan(sample_count=3, batch_size=4, consumer_count=5, elastic=elastic)
    assert [told(plan, consumer) for consumer in range(5)] == ["1", "1", "1", "1(0)", "1(0)"]
    assert [plan.mask(0, consumer, 0) for consumer in range(5)] == [None, None, None, [False], [False]]


def test_batches_of_one_repeat_a_consumers_own_sample_where_its_share_is_shorter():
    plan = EpochPlan(sample_count=7, batch_size=1, consumer_count=2)
    assert [told(plan, consumer) for consumer in range(2)] == ["1 1 1 1", "1 1 1 1(0)"]
    own = checks.epoch_of(plan, 0, 1)
    assert own[3] in own[:3]


def test_balance_repeats_nothing_while_a_share_has_a_sample_for_every_step():
    """In order the last shares may be much shorter than the others: here they are 6 x 8, 3 and 0."""
    plan = EpochPlan(sample_count=17, batch_size=3, consumer_count=3, shuffle=False)
    assert [told(plan, consumer) for consumer in range(3)] == ["3 3", "3 3", "3 2"]
    plan = EpochPlan(sample_count=51, batch_size=2, consumer_count=10, shuffle=False)
    assert [told(plan, consumer) for consumer in (0, 8, 9)] == ["2 2 2", "1 1 1", "1(0) 1(0) 1(0)"]


def test_padding_repeats_a_consumers_own_samples_from_the_first_on():
    plan = EpochPlan(sample_count=10, batch_size=4, consumer_count=2, shuffle=False, even="pad")
    assert plan.indices(0, 1, 0, 2) == [[5, 6, 7, 8], [9, 5, 6, 7]]
    assert plan.mask(0, 1, 1) == [True, False, False, False]


def test_drop_last_that_leaves_a_consumer_nothing_gives_it_a_marked_repeat():
    plan = EpochPlan(sample_count=7, batch_size=4, consumer_count=2, drop_last=True)
    assert [told(plan, consumer) for consumer in range(2)] == ["4", "1(0)"]


@pytest.mark.parametrize("even", ["balance", "pad", "drop", "none"])
@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("given", [{"sample_count": 0}, {"sample_count": 7, "drop_last": True}])
def test_an_epoch_without_any_batch_has_no_steps(even: str, elastic: bool, shuffle: bool, given: dict):
    plan = EpochPlan(batch_size=8, consumer_count=3, even=even, elastic=elastic, shuffle=shuffle, **given)
    for consumer in range(3):
        assert plan.step_count(0, consumer) == 0
        assert plan.indices(0, consumer, 0, 5) == []
