"""Batches that are large and take very long: no slot is made for a moment in which the consumer has two."""

from swift_loader.orders.ledger import Holder
from tests.unit.orders.simulated import World

LARGE = 40 << 20
VERY_SLOW_NS = 200_000_000


def _world(workers):
    world = World([100], 64, workers=workers, slot_nbytes=LARGE)
    for worker in world.workers:
        world.start(worker)
    return world


def test_of_large_batches_that_take_very_long_none_waits_in_a_channel():
    world = _world(2)
    for _ in range(3):
        for worker in world.workers:
            world.feed(worker)
            world.begin(worker)
            world.finish(worker, ns=VERY_SLOW_NS)
            world.read(worker)
        while world.ready:
            world.take()
            world.drop()
    for worker in world.workers:
        world.feed(worker)
    assert [len(worker.book.outstanding) for worker in world.workers] == [1, 1]


def _made(world, worker):
    world.begin(worker)
    world.finish(worker, ns=VERY_SLOW_NS)
    world.read(worker)


def _one_held_and_both_at_work():
    """The consumer, who waits for each batch, has one; both workers make the next ones."""
    world = _world(2)
    for worker in world.workers:
        world.feed(worker)
    for step in range(4):
        worker = world.workers[step % 2]
        _made(world, worker)
        world.take()
        if step:
            world.drop()
        world.feed(worker)
    assert world.ledger.held_by(Holder.BATCH) == 1
    assert world.dispatch.stock.ordered_count == 2
    return world


def test_no_slot_is_made_while_the_consumer_comes_for_a_large_batch_and_drops_the_last_one():
    world = _one_held_and_both_at_work()
    slots, worker = len(world.shelf), world.workers[0]
    _made(world, worker)
    world.dispatch.homecoming.is_awaited = True
    world.feed(worker)  # the batch is ready, and was not taken yet
    assert not worker.book.outstanding
    assert world.dispatch.wants_slot
    world.dispatch.homecoming.is_awaited = False
    world.take()
    world.feed(worker)  # taken, and the one before is still there
    assert not worker.book.outstanding
    world.drop()
    world.feed(worker)
    assert worker.book.outstanding
    assert len(world.shelf) == slots == 3


def test_a_consumer_that_keeps_its_large_batches_gets_another_slot_as_soon_as_it_waits():
    world = _one_held_and_both_at_work()
    worker = world.workers[0]
    _made(world, worker)
    world.take()
    world.feed(worker)
    assert not worker.book.outstanding
    world.dispatch.homecoming.is_awaited = True  # it waits for the next one, and has dropped nothing
    world.feed(worker)
    assert worker.book.outstanding


def test_a_consumer_that_keeps_all_its_large_batches_holds_nobody_back():
    world = _world(2)
    for step in range(20):
        worker = world.workers[step % 2]
        world.feed(worker)
        assert worker.book.outstanding or step == 2  # until then it could be one who drops a batch for each
        world.dispatch.homecoming.is_awaited = True
        world.feed(worker)
        world.dispatch.homecoming.is_awaited = False
        _made(world, worker)
        assert world.take().ticket.step == step


def test_a_consumer_that_has_dropped_everything_between_two_epochs_gets_no_slot_more():
    world = _one_held_and_both_at_work()
    slots = len(world.shelf)
    for step in range(4, 12):
        worker = world.workers[step % 2]
        if step % 4 == 0:
            world.drop()
        _made(world, worker)
        world.take()
        world.feed(worker)
        if step % 4:
            world.drop()
            world.feed(worker)
    assert len(world.shelf) == slots


def test_without_another_worker_at_work_no_slot_is_waited_for():
    world = _world(1)
    (worker,) = world.workers
    for _ in range(4):
        world.feed(worker)
        assert worker.book.outstanding
        _made(world, worker)
        world.take()
        if len(world.held) > 1:
            world.drop()
    _made(world, worker)
    world.feed(worker)
    assert worker.book.outstanding
