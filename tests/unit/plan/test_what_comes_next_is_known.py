"""`Ahead` gives what the plan gives, whatever is asked in whatever order, and asks the plan seldom."""

from hypothesis import given
from hypothesis import strategies as st

from swift_loader.plan.ahead import Ahead
from swift_loader.plan.plan import EpochPlan
from tests.unit.batch.samples import examples


class Counting:
    """A plan that counts how often it is asked."""

    def __init__(self, plan):
        self.plan, self.asked = plan, 0

    def step_count(self, epoch, consumer):
        return self.plan.step_count(epoch, consumer)

    def indices(self, epoch, consumer, first, count):
        assert first + count <= self.step_count(epoch, consumer)  # a user's plan may know no others
        self.asked += 1
        return self.plan.indices(epoch, consumer, first, count)


PLAN = EpochPlan(sample_count=30_001, batch_size=16, consumer_count=2, seed=3)
STEPS = PLAN.step_count(0, 1)


@examples
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, STEPS - 1), st.integers(0, 300)), max_size=8))
def test_it_gives_what_the_plan_gives(asked):
    ahead = Ahead(Counting(PLAN), 1, PLAN.batch_size)
    for epoch, step, count in asked:
        assert [ahead.indices(epoch, step)] == PLAN.indices(epoch, 1, step, 1)
        assert ahead.following(epoch, step, count) == PLAN.indices(epoch, 1, step, min(count, STEPS - step))


def test_who_goes_on_and_looks_ahead_asks_the_plan_once_a_block():
    plan = Counting(PLAN)
    ahead = Ahead(plan, 0, PLAN.batch_size)
    for step in range(STEPS):
        ahead.indices(0, step)
        ahead.following(0, step, 9)
    assert plan.asked == -(-STEPS // ahead.steps)


def test_batches_larger_than_a_block_are_asked_one_by_one():
    plan = EpochPlan(sample_count=20_000, batch_size=10_000, shuffle=False)
    ahead = Ahead(plan, 0, plan.batch_size)
    assert ahead.steps == 1
    assert [batch[0] for batch in ahead.following(0, 0, 5)] == [0, 10_000]
