"""Workers die wherever they hand something over, again and again: what the consumer is given does not change."""

import random

import pytest

from swift_loader.orders import lease
from swift_loader.orders.dispatch import Dispatch
from swift_loader.orders.ledger import LANDING, Holder, Ledger
from swift_loader.orders.merge import InOrder
from swift_loader.plan.position import Position
from swift_loader.pool import policy
from tests.unit.pool.faked import POINTS, World

COUNT = 40


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Nobody waits before another worker is started, however often it dies before it greets."""
    monkeypatch.setattr(policy, "DELAYS_S", (0.0, 0.0))
    for name in ("MAX_BIRTHS", "MAX_KILLED_BIRTHS", "MAX_STORMY_BIRTHS"):
        monkeypatch.setattr(policy, name, 10_000)


def _expected(count, steps=7, first=(0, 0)):
    at = first[0] * steps + first[1]
    return [divmod(number, steps) for number in range(at, at + count)]


def _stormed(seed, point, **settings):
    world = World(random.Random(seed), point=point, often=0.15, **settings)
    try:
        world.storm(COUNT)
    finally:
        world.close()
    return world


@pytest.mark.parametrize("point", POINTS)
def test_whatever_was_half_handed_over_the_stream_is_the_same(point):
    deaths = 0
    for seed in range(4):
        world = _stormed(seed, point, max_buffer_size=seed % 3, most_slots=6 + seed)
        assert world.taken == _expected(COUNT)
        deaths += world.deaths
    assert deaths > 3 or "void" in point, "hardly anybody died"


def test_as_they_come_each_batch_of_an_epoch_comes_once():
    world = _stormed(5, "after parcel", in_order=False)
    epochs = [world.taken[first : first + 7] for first in range(0, COUNT - 7, 7)]
    assert [sorted(epoch) for epoch in epochs] == [_expected(7, first=(number, 0)) for number in range(len(epochs))]


@pytest.mark.parametrize("point", ["before void", "after void", "before parcel"])
def test_an_epoch_that_is_left_leaves_nothing_behind_in_the_next(point):
    deaths = 0
    for seed in range(4):
        world = World(random.Random(seed), point=point, often=0.3)
        try:
            world.storm(3)
            for turn in range(6):
                world.taken.clear()
                world.exchange.restart(Position(turn, 2))
                world.calls.ring()
                world.storm(9)
                assert world.taken == _expected(9, first=(turn, 2))
            deaths += world.deaths
        finally:
            world.close()
    assert deaths > 3


def _keeps_what_the_dead_had(monkeypatch):
    monkeypatch.setattr(Ledger, "given_back", lambda _ledger, _slot: None)


def _keeps_what_is_void(monkeypatch):
    monkeypatch.setattr(Ledger, "thrown_away", lambda _ledger, _slot: None)


def _frees_it_twice(monkeypatch):
    set_free = Ledger._set_free
    monkeypatch.setattr(
        Ledger, "_set_free", lambda ledger, slot, entry: (set_free(ledger, slot, entry), ledger._free.append(slot))
    )


def _forgets_a_lease(monkeypatch):
    monkeypatch.setattr(lease, "LANDING", LANDING - 1)


def _counts_no_bytes(monkeypatch):
    monkeypatch.setattr(Ledger, "filled", lambda ledger, slot, _: ledger._moved(slot, Holder.WORKER, Holder.POOL))


def _counts_orders_of_the_dead(monkeypatch):
    died = Dispatch.died

    def dies(dispatch, book, death):
        dispatch.stock.ordered_count += len(book.outstanding)
        return died(dispatch, book, death)

    monkeypatch.setattr(Dispatch, "died", dies)


def _counts_what_was_void_as_unmerged(monkeypatch):
    restart = InOrder.restart
    monkeypatch.setattr(InOrder, "restart", lambda merge, seq: restart(merge, seq) and [])


def _stormed_through_restarts(world):
    for turn in range(8):
        world.storm(6)
        world.exchange.restart(Position(turn, 2))
        world.audit()
        world.calls.ring()


PLANTS = [_keeps_what_the_dead_had, _keeps_what_is_void, _frees_it_twice, _forgets_a_lease, _counts_no_bytes,
          _counts_orders_of_the_dead, _counts_what_was_void_as_unmerged]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
def test_a_fault_in_the_accounts_is_found(plant, monkeypatch):
    plant(monkeypatch)
    world = World(random.Random(1), point="before parcel", often=0.2)
    try:
        with pytest.raises(AssertionError):
            _stormed_through_restarts(world)
    finally:
        world.close()


def test_without_deaths_the_same_drive_gives_the_same_stream():
    assert _stormed(1, None).taken == _expected(COUNT)
