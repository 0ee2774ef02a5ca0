"""A position counts what was handed out, and a state survives every way of writing it down."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.errors import ConfigError
from swift_loader.plan.position import Position, State
from tests.slow import examples

SETTINGS = {
    "plan": "EpochPlan", "len(dataset)": 10**12, "batch_size": 1024, "nb_consumer": 4096, "shuffle": True,
    "seed": 2**63, "nearby_shuffle": 10**9, "nearby_mix": 1024, "even": "balance", "drop_last": False, "elastic": True,
    "random_per": "sample",
}  # fmt: skip


@settings(max_examples=examples(100), derandomize=True, deadline=None, database=None)
@given(st.integers(1, 30).flatmap(lambda count: st.tuples(st.just(count), st.permutations(range(count)))), st.data())
def test_it_knows_what_was_handed_out_in_any_order(drawn, data):
    count, order = drawn
    cut = data.draw(st.integers(0, count - 1))
    position = Position(3)
    for step in order[:cut]:
        position.took(step, count)
    assert position.epoch == 3
    assert position.left(count) == count - cut
    assert {*range(position.step), *position.ahead} == set(order[:cut])
    again = State.from_dict(json.loads(json.dumps(State(position, 1, {}).to_dict()))).position
    for step in order[cut:]:
        assert again == position
        for one in (position, again):
            one.took(step, count)
    assert position == again == Position(4)


@pytest.mark.parametrize("epoch", [0, 3, 4, 5])
def test_an_epoch_that_is_named_comes_from_its_beginning(epoch):
    assert State.of_epoch(4).turned_to(epoch).position == Position(epoch)


@pytest.mark.parametrize(
    ("position", "epoch", "expected"),
    [
        (Position(4, 7), 4, Position(4, 7)),  # the rest of an epoch that was interrupted
        (Position(4, 0, {1}), 4, Position(4, 0, {1})),
        (Position(4, 7), 5, Position(5)),  # whoever names the next one does not want the rest
        (Position(4, 7), 3, Position(3)),
        (Position(4), 4, Position(4)),
        (Position(4), 3, Position(4)),  # the epoch at whose end it was saved: nothing is left of it
        (Position(4), 2, Position(2)),
    ],
)
def test_whoever_names_the_epoch_of_a_checkpoint_goes_on_with_it(position, epoch, expected):
    loaded = State.from_dict(State(position, 7, {}).to_dict())
    assert loaded.turned_to(epoch).position == expected
    assert loaded.turned_to(epoch).seed == 7


def test_a_checkpoint_counts_until_another_epoch_was_named():
    loaded = State.from_dict(State(Position(4), 7, {}).to_dict())
    assert loaded.turned_to(5).turned_to(4).position == Position(4)
    assert loaded.turned_to(9).turned_to(8).position == Position(8)


def test_a_state_is_small_and_flat_and_has_always_the_same_keys():
    whole = State(Position(10**6, 10**9, {*range(10**9 + 2, 10**9 + 300, 2)}), 2**63, SETTINGS).to_dict()
    assert whole.keys() == State(Position(), None, {}).to_dict().keys()
    assert all(isinstance(value, int | str) for value in whole.values())
    plain = State(Position(10**6, 10**9), 2**63, SETTINGS).to_dict()
    assert len(pickle.dumps(plain)) <= 1024


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch_size": 8}, "batch_size"),
        ({"nb_consumer": 8}, "batch_size * nb_consumer was 4194304 and is 8192"),
        ({"len(dataset)": 9}, "len(dataset) was 1000000000000 and is 9"),
        ({"random_per": "batch"}, "random_per was 'sample' and is 'batch'"),
        ({"elastic": False}, "elastic was True and is False"),
    ],
)
def test_what_does_not_fit_is_named(change, said):
    state = State(Position(), 1, SETTINGS)
    state.refuse_other(SETTINGS)
    with pytest.raises(ConfigError) as caught:
        state.refuse_other({**SETTINGS, **change})
    assert said in str(caught.value)


def test_elastic_consumers_may_share_a_step_otherwise():
    State(Position(), 1, SETTINGS).refuse_other({**SETTINGS, "nb_consumer": 1024, "batch_size": 4096})
    with pytest.raises(ConfigError, match="nb_consumer was 4096 and is 1024"):
        State(Position(), 1, {**SETTINGS, "elastic": False}).refuse_other(
            {**SETTINGS, "elastic": False, "nb_consumer": 1024}
        )


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "not a NoneType"),
        ({}, "lacks swift_loader"),
        ({**State(Position(), 1, {}).to_dict(), "swift_loader": 2}, "format 2"),
        ({**State(Position(), 1, {}).to_dict(), "step": "x"}, "damaged"),
        ({**State(Position(), 1, {}).to_dict(), "ahead": "3-x"}, "damaged"),
        ({**State(Position(), 1, {}).to_dict(), "settings": "{"}, "damaged"),
    ],
)
def test_what_is_no_state_is_refused(state, said):
    with pytest.raises(ConfigError, match=said):
        State.from_dict(state)
