"""Long random runs of the same pool, weighted so that the rare happens often, and counted so that we know it did."""

import random
from collections import Counter

import pytest

from swift_loader.orders.dispatch import Dispatch
from swift_loader.orders.tickets import Failed
from tests.slow import slow
from tests.unit.orders.simulated import FAST_NS, SLOW_NS, World

seen = Counter()


@pytest.fixture
def counted(monkeypatch):
    """Counts what the dispatch rarely does."""
    stuck_behind, ticket_for = Dispatch._stuck_behind, Dispatch._ticket_for

    def count_stuck(self):
        ticket = stuck_behind(self)
        seen["taken over from a slow worker"] += ticket is not None
        return ticket

    def count_waits(self, book, *given):
        seen["kept from the worker that has yet to answer"] += bool(
            self._redo and self._redo[0].seq in book.outstanding
        )
        return ticket_for(self, book, *given)

    monkeypatch.setattr(Dispatch, "_stuck_behind", count_stuck)
    monkeypatch.setattr(Dispatch, "_ticket_for", count_waits)


def _world(chance):
    world = World(
        [chance.randint(1, 9) for _ in range(3)],
        slots=chance.randint(2, 9),
        workers=chance.randint(2, 4),
        far=chance.randint(0, 2),
        data_queue_size=chance.randint(1, 3),
        message_queue_size=chance.randint(1, 3),
        max_buffer_size=chance.randint(0, 1),
        in_order=chance.random() < 0.8,
        max_attempts=2,
    )
    for worker in world.workers:
        worker.book.took(chance.choice([FAST_NS, SLOW_NS]))
        world.start(worker)
    return world


def _storm(world, chance, steps):
    """Some workers are slow, some users keep their batches, and now and then somebody dies."""
    patience = {worker: chance.choice([1.0, 0.3, 0.05]) for worker in world.workers}
    deaths, keeps = chance.choice([0, 0.02, 0.1]), chance.choice([0.2, 0.9])
    for _ in range(steps):
        worker = chance.choice(world.workers)
        if chance.random() < deaths:
            world.die(worker)
        elif not worker.alive:
            world.start(worker)
        world.feed(worker)
        world.begin(worker)
        if chance.random() < patience[worker]:
            how = "failure" if chance.random() < 0.02 else "parcel"
            world.finish(worker, how, SLOW_NS if patience[worker] < 0.1 else FAST_NS, grows=chance.random() < 0.1)
        if chance.random() < 0.8:
            world.read(worker)
        if chance.random() < 0.5:
            world.take(views=chance.randint(0, 2))
        if chance.random() > keeps:
            world.drop(chance.randint(0, 9))
        if chance.random() < 0.005:
            epoch = chance.randint(0, 4)
            world.restart(epoch, chance.randrange(world.plan.step_count(epoch, 0)))
        world.check_books()
        _count(world)


def _count(world):
    starves = world.dispatch.starves_for_slots()
    assert not (starves and world.ledger.has_room(world.dispatch.stock.largest_slot))
    seen["no slot for anybody"] += starves


def _weather(seed):
    chance = random.Random(seed)
    world = _world(chance)
    _storm(world, chance, 300)
    while world.held:
        world.drop()
    world.settle()
    assert world.ready
    taken = [world.take(views=0) for _ in range(len(world.ready))]
    seen["given up after too many deaths"] += sum(isinstance(one, Failed) for one in (*world.handed, *taken))


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("storms", [60, slow(200)])
def test_every_ticket_comes_once_and_in_its_place(storms: int):
    seen.clear()
    for seed in range(storms):
        try:
            _weather(seed)
        except Exception as error:
            error.add_note(f"in the storm of seed {seed}")
            raise
    assert len(seen) == 4
    assert all(count > storms // 10 for count in seen.values()), seen
