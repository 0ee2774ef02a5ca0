"""What it takes until a batch is given up, or a sample left out: by how its workers died, and at what."""

import pytest

from swift_loader.orders.death import Death
from swift_loader.orders.poison import Charges
from tests.unit.orders.simulated import recipe

CRASH = {}
OUTSIDE = {"is_from_outside": True}
EARLY = {"is_from_outside": True, "is_early": True}


def _charges(**settings):
    return Charges(recipe(**settings).config)


def _deaths_until_given_up(charges, how, indices=(13,), seq=5):
    for count in range(1, 1000):
        if charges.is_given_up(seq, Death("it died", indices[count % len(indices)], **how)):
            return count
    raise AssertionError("never")


@pytest.mark.parametrize(
    ("how", "indices", "times"),
    [
        (CRASH, (13,), 1),
        (OUTSIDE, (13,), 4),
        (OUTSIDE, (13, 14), 4),
        (EARLY, (13,), 40),
        (EARLY, (13, 14), 40),
    ],
)
@pytest.mark.parametrize("most", [1, 3])
def test_a_crash_weighs_most_and_a_kill_before_the_first_sample_least(how, indices, times, most):
    assert _deaths_until_given_up(_charges(max_attempts=most), how, indices) == times * most


def test_crashes_at_another_sample_each_time_are_borne_for_longer():
    assert _deaths_until_given_up(_charges(max_attempts=3), CRASH, (13, 14, 15, 16, 17, 18)) == 12


def test_early_kills_do_not_hide_a_sample_that_crashes():
    charges = _charges(max_attempts=3)
    for _ in range(50):
        assert not charges.is_given_up(5, Death("it died", 13, **EARLY))
    assert _deaths_until_given_up(charges, CRASH) == 3


def test_early_kills_are_borne_and_forgotten_once_the_batch_is_made():
    charges = _charges(max_attempts=3)
    for _ in range(3):
        for _ in range(100):
            assert not charges.is_given_up(5, Death("it died", 13, **EARLY))
        assert 5 in charges
        charges.dropped(5)
        assert not charges


def test_a_sample_that_always_kills_early_is_left_out_in_the_end():
    charges = _charges(max_attempts=3, on_error="skip")
    for _ in range(119):
        assert not charges.is_given_up(5, Death("it died", 13, **EARLY))
    assert not charges.left_out
    assert not charges.is_given_up(5, Death("it died", 13, **EARLY))
    assert "has killed 120 workers" in charges.left_out[13].text


def test_a_batch_that_was_given_up_tells_how_many_it_has_killed():
    charges = _charges(max_attempts=3)
    assert _deaths_until_given_up(charges, CRASH) == 3
    assert charges.count(5) == 3
