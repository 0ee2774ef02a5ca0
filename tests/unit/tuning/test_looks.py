"""What looks say, and when they say enough."""

from __future__ import annotations

import pytest

from swift_loader.tuning.looks import Choice, Evidence, Look, decided, likelier
from swift_loader.tuning.physics import Machine, OneWorker, most_by_cores, most_by_memory, needed, predicted


def at(rate: float, starved: float = 0.0, made_s: float = 0.5) -> Look:
    return Look(batches=int(100 * rate), seconds=100.0, wait_s=100 * starved, made_s=100 * made_s)


def test_a_look_tells_its_rates_and_shares():
    look = Look(batches=20, seconds=2.0, wait_s=0.5, made_s=1.6, cpu_s=0.2, queued_s=0.2)
    assert (look.rate, look.starved, look.waiting) == (10.0, 0.25, 0.75)
    nothing = Look(0, 0.0, 0.0, 0.0)
    assert (nothing.rate, nothing.starved, nothing.waiting) == (0.0, 0.0, 0.0)


def test_wanting_a_core_is_not_waiting():
    alone = OneWorker.seen(Look(10, 1.0, 1.0, made_s=1.0, samples=10, cpu_s=1.0))
    pressed = OneWorker.seen(Look(10, 1.0, 1.0, made_s=1.0, samples=10, cpu_s=0.3, queued_s=0.7))
    assert alone.cores == pressed.cores == 1.0
    assert not pressed.may_gain_by_threads
    assert OneWorker.seen(Look(10, 1.0, 1.0, made_s=1.0, samples=10, cpu_s=0.1)).may_gain_by_threads


def test_samples_that_wait_for_microseconds_are_not_worth_a_thread():
    assert not OneWorker.seen(Look(10, 1.0, 1.0, made_s=1.0, samples=10_000, cpu_s=0.1)).may_gain_by_threads


@pytest.mark.parametrize(
    ("cores", "own", "consumer_s", "count"),
    [(2, 1.0, 0.0, 2), (2, 0.5, 0.0, 4), (8, 1.0, 0.05, 2), (8, 1.0, 0.02, 5), (2, 1.0, 0.02, 2), (1.5, 1.0, 0.0, 2)],
)
def test_the_prediction_is_what_the_consumer_wants_or_the_cores_give(
    cores: float, own: float, consumer_s: float, count: int
):
    one = OneWorker(rate=10.0, cores=own, waiting=1 - own, sample_s=0.001, nbytes=1)
    assert predicted(one, Machine(cores), consumer_s) == count


def test_bounds_are_at_least_one_worker():
    one = OneWorker(rate=1e6, cores=1.0, waiting=0.0, sample_s=1e-6, nbytes=1 << 40)
    assert most_by_memory(one, Machine(1.0, 1 << 30)) == most_by_cores(one, Machine(0.1)) == needed(one, 1.0) == 1


def test_the_best_is_the_fastest_but_of_those_that_feed_the_consumer_the_fewest():
    evidence = Evidence({Choice(1): [at(12, 0.5)], Choice(2): [at(20, 0.2)], Choice(3): [at(24.6, 0.015)]})
    assert evidence.best() == evidence.fewest() == Choice(3)
    evidence.add(Choice(4), at(24.9, 0.001), is_hurried=False)
    assert evidence.best() == Choice(3)
    starving = Evidence({Choice(1): [at(12, 0.5)], Choice(2): [at(20, 0.2)], Choice(3): [at(20.1, 0.19)]})
    assert starving.best() == Choice(3)
    assert starving.fewest() == Choice(2)
    assert Evidence().best() is Evidence().fewest() is None


def test_what_noise_may_explain_is_no_gain():
    noisy = Evidence({Choice(2): [at(17), at(23), at(20)], Choice(3): [at(24), at(18), at(21)]})
    for looks in noisy.looks.values():
        looks[:] = [look._replace(wait_s=50.0) for look in looks]
    assert noisy.noise() > 0.05
    assert noisy.best() == Choice(3)
    assert noisy.fewest() == Choice(2)


def test_hurried_looks_are_kept_apart():
    evidence = Evidence()
    evidence.add(Choice(1), at(50), is_hurried=True)
    assert evidence.best() is None


def test_a_clear_ratio_is_decided_and_a_close_one_is_not():
    clear = [(at(10), at(12)), (at(10.1), at(11.9))]
    assert decided(clear, 0.01, bound=0.98) is False
    assert decided([pair[::-1] for pair in clear], 0.01, bound=0.98) is True
    assert decided(clear[:1], 0.01, bound=0.98) is None
    assert decided([(at(9.8), at(10)), (at(9.85), at(10))], 0.01, bound=0.98) is None
    assert decided(clear, 0.5, bound=0.98) is None


def test_looks_that_scatter_need_more_of_them():
    scattered = [(at(10), at(12)), (at(13), at(10)), (at(10), at(13))]
    assert decided(scattered, 0.003, bound=0.98) is None
    assert likelier(scattered, bound=0.98) is False
    assert likelier([(at(10), at(10))], bound=0.98) is True


def test_a_choice_is_named_by_what_is_not_usual():
    assert Choice(1).words(Choice(1)) == "1 worker"
    assert Choice(3, 8, 40).words(Choice(1)) == "3 workers, 8 threads, data queue 40"
    assert Choice(3, 1, 40).words(Choice(1, 1, 40)) == "3 workers"
