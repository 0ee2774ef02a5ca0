"""What is done about a worker: each state and each event, and how time becomes events."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.pool.policy import (
    DELAYS_S,
    MAX_BIRTHS,
    MAX_KILLED_BIRTHS,
    STOPPED_S,
    TABLE,
    Event,
    Instruction,
    Policy,
    PolicyError,
    State,
)
from tests.slow import examples

N, W, K = Instruction.NOTHING, Instruction.WARN, Instruction.KILL
A, B, S, C, V = State.ABSENT, State.STARTING, State.SERVING, State.CONDEMNED, State.LEAVING
G = Instruction.LET_GO

#: Written down a second time, by hand: what comes of an event, or None where it cannot happen.
EXPECTED = {
    #                 LAUNCHED  GREETED  STOPPED  LATE    OVERDUE  DIED    KILLED  LEAVES   LINGERS  CUT_OFF
    State.ABSENT:    ((B, N),   None,    None,    None,   None,    None,   None,   None,    None,    None),
    State.STARTING:  (None,     (S, N),  (C, K),  (B, W), (B, N),  (A, N), (A, N), (V, N),  None,    (C, K)),
    State.SERVING:   (None,     None,    (C, K),  (S, W), (C, K),  (A, N), (A, N), (V, N),  None,    (C, K)),
    State.LEAVING:   (None,     None,    (C, K),  (V, N), (C, K),  (A, N), (A, N), None,    None,    (C, K)),
    State.CONDEMNED: (None,     (C, N),  None,    None,   None,    (A, N), (A, N), (C, N),  (A, G),  None),
    State.GIVEN_UP:  (None,     None,    None,    None,   None,    None,   None,   None,    None,    None),
}  # fmt: skip


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_event_in_every_state(state, event):
    expected = EXPECTED[state][list(Event).index(event)]
    assert TABLE.get((state, event)) == expected
    policy = Policy(10, 5, state)
    if expected is None:
        with pytest.raises(PolicyError, match="of a worker that"):
            policy.happened(event)
    else:
        assert policy.happened(event) is expected[1]
        assert policy.state is expected[0]


def _run(policy, *events):
    return [policy.happened(event) for event in events]


def test_a_worker_that_dies_at_birth_is_started_ever_later_and_then_no_more():
    policy = Policy(10, 5)
    for delay_s in DELAYS_S:
        assert _run(policy, Event.LAUNCHED, Event.DIED) == [N, N]
        assert policy.delay_s == delay_s
    assert _run(policy, Event.LAUNCHED, Event.DIED) == [N, Instruction.GIVE_UP]
    assert policy.births == MAX_BIRTHS
    assert policy.state is State.GIVEN_UP


def test_one_that_others_kill_while_it_starts_is_started_more_often_and_not_for_ever():
    policy = Policy(10, 5)
    said = [_run(policy, Event.LAUNCHED, Event.KILLED)[-1] for _ in range(MAX_KILLED_BIRTHS)]
    assert said == [N] * (MAX_KILLED_BIRTHS - 1) + [Instruction.GIVE_UP]


def test_one_that_a_storm_kills_while_it_starts_is_started_for_ten_times_as_long():
    policy = Policy(10, 5)
    said = []
    for _ in range(10 * MAX_KILLED_BIRTHS):
        policy.happened(Event.LAUNCHED)
        said.append(policy.happened(Event.KILLED, is_storm=True))
    assert said == [N] * (10 * MAX_KILLED_BIRTHS - 1) + [Instruction.GIVE_UP]


def test_while_another_serves_no_number_of_births_that_others_end_is_too_large_but_each_is_waited_for():
    policy = Policy(10, 5)
    for _ in range(10 * MAX_KILLED_BIRTHS):
        assert policy.happened(Event.LAUNCHED) is N
        assert policy.happened(Event.KILLED, others_serve=True) is N
        assert policy.delay_s > 0
    for expected in [N] * (MAX_BIRTHS - 1) + [Instruction.GIVE_UP]:  # those that fail by themselves are counted apart
        policy.happened(Event.LAUNCHED)
        assert policy.happened(Event.DIED, others_serve=True) is expected


def test_a_worker_that_has_served_is_replaced_at_once_however_often():
    policy = Policy(10, 5)
    for _ in range(100):
        assert _run(policy, Event.LAUNCHED, Event.GREETED, Event.DIED) == [N, N, N]
        assert policy.delay_s == 0


def test_one_that_was_killed_while_it_started_counts_as_dead_at_birth():
    policy = Policy(10, 5)
    for expected in [N] * (MAX_BIRTHS - 1) + [Instruction.GIVE_UP]:
        assert _run(policy, Event.LAUNCHED, Event.STOPPED, Event.DIED)[-1] is expected


def test_one_that_the_kernel_cannot_end_is_let_go_of_soon_and_never_before_it_was_killed():
    policy = _serving(timeout_s=2.0)
    said = [_looked(policy, seconds=0.5) for _ in range(8)]
    assert said[4:] == [K, N, N, G]
    assert policy.state is A
    assert policy.delay_s == 0


def test_one_that_was_killed_is_not_given_more_time_by_what_it_still_does():
    policy = _serving(timeout_s=1.0)
    assert [_looked(policy) for _ in range(2)] == [N, K]
    assert [_looked(policy, (number,), is_busy=False) for number in (7, 8)] == [N, G]


def test_one_that_leaves_is_replaced_at_once_and_killed_if_it_does_not_go():
    policy = _serving(timeout_s=2.0)
    assert _run(policy, Event.LEAVES, Event.DIED) == [N, N]
    assert policy.delay_s == 0
    policy = _serving(timeout_s=2.0)
    policy.happened(Event.LEAVES)
    assert [_looked(policy) for _ in range(3)] == [N, N, K]


def _serving(timeout_s=10.0, warning_s=5.0):
    policy = Policy(timeout_s, warning_s)
    _run(policy, Event.LAUNCHED, Event.GREETED)
    return policy


def _looked(policy, place=(1,), seconds=1.0, **changes):
    return policy.looked(place, seconds, **{"is_busy": True, "is_stopped": False, **changes})


def test_it_is_warned_of_once_and_killed_once():
    policy = _serving()
    said = [_looked(policy) for _ in range(20)]
    assert said.index(W) == 5
    assert said.index(K) == 10
    assert said.count(W) == said.count(K) == 1


def test_progress_begins_the_count_anew_and_the_next_standstill_is_told_again():
    policy = _serving()
    for number in range(5):
        assert [_looked(policy, (number,)) for _ in range(7)].count(W) == 1


def test_a_dataset_may_take_for_ever_to_build_but_it_is_told():
    policy = Policy(10, 5)
    policy.happened(Event.LAUNCHED)
    said = [_looked(policy) for _ in range(100)]
    assert said.count(W) == 1
    assert K not in said


@pytest.mark.parametrize("starts", [True, False])
def test_a_stopped_worker_is_killed_within_two_looks(starts):
    policy = Policy(300, 60)
    policy.happened(Event.LAUNCHED)
    if not starts:
        policy.happened(Event.GREETED)
    said = [_looked(policy, seconds=0.5, is_stopped=True) for _ in range(4)]
    assert said == [N, K, N, N]


@settings(max_examples=examples(200), derandomize=True, deadline=None, database=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.1, 0.5, 1.0]), st.booleans(), st.booleans())))
def test_nobody_is_killed_who_moves_waits_or_has_time_left(looks):
    policy = _serving(timeout_s=3.0, warning_s=1.0)
    still_s, before = 0.0, ()
    for place, seconds, is_busy, is_stopped in looks:
        said = _looked(policy, (place,), seconds, is_busy=is_busy, is_stopped=is_stopped)
        still_s = still_s + seconds if (place,) == before and is_busy else 0.0
        before = (place,)
        if said is K:
            assert still_s >= 3.0 or (is_stopped and still_s >= STOPPED_S)
            return
        assert still_s < 3.0
