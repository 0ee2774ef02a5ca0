"""How a worker's end is told, and what it counts for."""

import signal
from types import SimpleNamespace

import pytest

from swift_loader.errors import PoisonedTicket
from swift_loader.host.cgroup import OomKills
from swift_loader.orders.book import Book
from swift_loader.orders.death import Death
from swift_loader.orders.ledger import Holder
from swift_loader.pool.failures import death_of, lingering
from swift_loader.pool.line import Line
from swift_loader.wire.page import FETCHES, Cell
from tests.unit.orders.simulated import Silent, World


@pytest.fixture
def line():
    cell = Cell(memoryview(bytearray(64)).cast("q"))
    line = Line("swift-worker-c0w1", cell, 4.0, Book(1, cell, Silent()))
    line.process = SimpleNamespace(pid=77)
    line.cell.enter(FETCHES, 5)
    line.cell.at(2, 13)
    return line


def _death(line, status, groups=()):
    return death_of(line, status, OomKills(list(groups)))


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (0, "exited with code 0"),
        (-11, "was killed by SIGSEGV"),
        (-57, "was killed by signal 57"),  # a real-time signal has no name
        (None, "ended"),
    ],
)
def test_who_how_and_at_what(line, status, how):
    death = _death(line, status)
    assert death.how == f"swift-worker-c0w1 (pid 77) {how} while it fetches sample 13"
    # How an orphan of a fork server that was killed has ended, nobody knows: it is held against no sample.
    assert (death.index, death.is_from_outside, death.by_kernel) == (13, status is None, False)


def test_a_sigkill_is_from_outside_unless_it_was_ours_or_the_kernels(line, tmp_path):
    assert _death(line, -signal.SIGKILL).is_from_outside
    assert "perhaps by the kernel" in _death(line, -signal.SIGKILL).how
    (tmp_path / "memory.events").write_text("oom_kill 1\n")
    kills = OomKills([tmp_path])
    (tmp_path / "memory.events").write_text("oom_kill 2\n")
    death = death_of(line, -signal.SIGKILL, kills)
    assert (death.is_from_outside, death.by_kernel) == (False, True)
    assert "killed by the kernel" in death.how
    assert death_of(line, -signal.SIGKILL, kills).how.count("perhaps") == 0
    line.killed_for = "made no progress for 2.0 s"
    assert not _death(line, -signal.SIGKILL).is_from_outside
    line.is_cut_off = True
    assert _death(line, -signal.SIGKILL).is_from_outside
    assert lingering(line).is_from_outside


def test_a_kill_is_early_until_the_worker_has_finished_a_sample(line, tmp_path):
    (tmp_path / "memory.events").write_text("oom_kill 1\n")
    kills = [tmp_path]
    line.cell.at(0, 13)
    assert _death(line, -signal.SIGKILL, kills).is_early
    assert not _death(line, -signal.SIGSEGV, kills).is_early
    assert not _death(line, -signal.SIGKILL).is_early  # it may have been the kernel, short of memory
    line.cell.at(1, 14)
    assert not _death(line, -signal.SIGKILL, kills).is_early
    line.cell.enter(FETCHES, 6)
    assert _death(line, -signal.SIGKILL, kills).is_early
    line.book.has_told = True
    assert not _death(line, -signal.SIGKILL, kills).is_early


def test_one_that_said_it_leaves_is_expected_to_end_even_if_it_hangs_then(line):
    assert not _death(line, 0).is_expected
    line.is_leaving = True
    assert _death(line, 0).is_expected
    line.killed_for = "made no progress for 2.0 s"
    assert _death(line, -signal.SIGKILL).is_expected
    assert lingering(line).is_expected


def _orders_after_deaths(world, deaths, *, index=13, **how):
    """Makes the same ticket kill so many workers; gives back what was delivered and what the next order is told."""
    (worker,) = world.workers
    poison = None
    for _ in range(deaths):
        world.start(worker)
        worker.book.cautions.clear()
        worker.book.told_count = 0
        world.feed(worker)
        world.begin(worker)
        poison = world.dispatch.died(worker.book, Death("it died", index, **how))
        worker.inbox.clear()
        worker.mapped.clear()
        if poison is not None:
            break
    world.start(worker)
    worker.book.cautions.clear()
    worker.book.told_count = 0
    world.feed(worker)
    return poison, worker.book.cautions


SKIPPING = {"workers": 1, "on_error": "skip", "max_attempts": 3}


def test_a_sample_that_has_killed_enough_is_left_out_and_the_ticket_goes_on():
    poison, cautions = _orders_after_deaths(World([4], **SKIPPING), 3)
    assert poison is None
    assert cautions[0].left_out.keys() == {13}
    assert "killed 3 workers" in cautions[0].left_out[13].text
    assert cautions[0].seq == 1


def test_deaths_from_outside_leave_nothing_out_before_there_are_four_times_as_many():
    _, cautions = _orders_after_deaths(World([4], **SKIPPING), 11, is_from_outside=True)
    assert not any(caution.left_out for caution in cautions)
    poison, _ = _orders_after_deaths(World([4], workers=1), 12, is_from_outside=True)
    assert poison is not None


def test_with_threads_the_first_death_only_makes_the_next_try_careful():
    _, cautions = _orders_after_deaths(World([4], **{**SKIPPING, "max_attempts": 1, "worker_threads": 4}), 1)
    assert [(caution.seq, caution.left_out) for caution in cautions] == [(1, {})]
    _, cautions = _orders_after_deaths(World([4], **{**SKIPPING, "max_attempts": 1, "worker_threads": 4}), 2)
    assert cautions[0].left_out.keys() == {13}


def test_one_that_said_it_leaves_is_held_against_nothing():
    poison, cautions = _orders_after_deaths(World([4], workers=1, max_attempts=1), 5, is_expected=True)
    assert poison is None
    assert not cautions


def test_the_slots_of_one_that_lingers_are_lost():
    world = World([4], workers=1)
    _orders_after_deaths(world, 1, lingers=True)
    assert world.ledger.held_by(Holder.NOBODY) > 0


def test_a_poisoned_ticket_is_one_however_long_the_stack_is():
    stack = "\n".join(f'  File "/somewhere/{at:05}.py", line {at} in call' for at in range(400))[: 16 * 1024]
    death = Death("it died", 13, stack, why="was killed by SIGSEGV", status=-signal.SIGSEGV)
    error = death.poisoned(3).exception()
    assert type(error) is PoisonedTicket
    assert (error.stack, error.signal, error.exit_status, error.how) == (
        stack,
        "SIGSEGV",
        None,
        "was killed by SIGSEGV",
    )
