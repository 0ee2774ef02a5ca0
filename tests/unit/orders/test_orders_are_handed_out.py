"""Who gets which ticket when: the caps that hold new tickets back, and the right of way that none of them touches."""

import pytest

from swift_loader.orders.ledger import Holder
from swift_loader.orders.tickets import Failed
from tests.unit.orders.simulated import FAST_NS, SLOW_NS, World, tickets


def _world(*speeds, counts=(100,), **settings):
    """A worker of each speed; with ``None`` it has made no batch yet."""
    world = World(list(counts), settings.pop("slots", 64), workers=len(speeds), **settings)
    for worker, ns in zip(world.workers, speeds, strict=True):
        world.start(worker)
        if ns is not None:
            worker.book.took(ns)
    return world


def _ordered(worker):
    return [order.step for order in worker.book.outstanding.values()]


def _make(world, worker, count=1):
    for _ in range(count):
        world.begin(worker)
        world.finish(worker, ns=SLOW_NS if worker.book.is_slow else FAST_NS)
        world.read(worker)


def test_no_order_waits_behind_the_one_in_hand_until_the_speed_is_known():
    world = _world(None, None)
    for worker in world.workers:
        world.feed(worker)
    assert [_ordered(worker) for worker in world.workers] == [[0], [1]]


def test_a_fast_worker_is_given_more_a_few_at_a_time_and_no_more_than_was_set():
    world = _world(FAST_NS, message_queue_size=20)
    for most in (12, 21, 21):
        world.feed(world.workers[0])
        assert len(world.workers[0].book.outstanding) == most


def test_a_worker_that_takes_longer_than_the_queue_is_deep_has_one_order_waiting():
    world = _world(SLOW_NS, message_queue_size=10)
    world.feed(world.workers[0])
    assert len(_ordered(world.workers[0])) == 2


def test_batches_that_are_ready_hold_new_tickets_back_until_one_is_taken():
    world = _world(SLOW_NS, data_queue_size=3)
    worker = world.workers[0]
    for _ in range(10):
        world.feed(worker)
        _make(world, worker)
    assert len(world.ready) == 4  # the last was ordered while there were two
    assert not worker.book.outstanding
    assert worker.book.hungry
    while len(world.ready) >= 3:
        world.take()
    world.feed(worker)
    assert worker.book.outstanding


LARGE = 40 << 20  # six of them make 256 MB
VERY_LARGE = 300 << 20
QUICK_NS = 5_000_000
VERY_SLOW_NS = 200_000_000


@pytest.mark.parametrize(
    ("nbytes", "ns", "workers", "most"),
    [
        (LARGE, QUICK_NS, 2, 5),  # and one in use
        (LARGE, SLOW_NS, 2, 4),  # of slow ones half as many, but two for each
        (LARGE, VERY_SLOW_NS, 2, 3),  # one that is ready, and one for each
        (LARGE, VERY_SLOW_NS, 8, 9),
        (10, VERY_SLOW_NS, 2, 12),
        (LARGE, QUICK_NS, 8, 10),
        (VERY_LARGE, QUICK_NS, 1, 3),
        (VERY_LARGE, QUICK_NS, 4, 6),
        (10, SLOW_NS, 2, 12),
    ],
)
def test_a_stock_that_nobody_has_asked_for_has_so_much_memory(nbytes, ns, workers, most):
    world = _world(*workers * [None], slot_nbytes=nbytes)
    for _ in range(30):
        for worker in world.workers:
            world.feed(worker)
            world.begin(worker)
            world.finish(worker, ns=ns)
            world.read(worker)
    assert world.dispatch.stock.ready_most == most - workers
    assert len(world.ready) == most
    assert world.ledger.held_by(Holder.POOL) == most
    assert world.ledger.busy_count == most


def test_a_stock_that_was_asked_for_is_kept_however_large_batches_are():
    world = _world(SLOW_NS, SLOW_NS, slot_nbytes=VERY_LARGE, data_queue_size=10)
    world.settle()
    assert len(world.ready) == 12


def test_large_batches_that_wait_for_an_earlier_one_count_too():
    world = _world(None, None, slot_nbytes=LARGE)
    late, other = world.workers
    world.feed(late)
    world.begin(late)
    for _ in range(10):
        world.feed(other)
        world.begin(other)
        world.finish(other, ns=QUICK_NS)
        world.read(other)
    assert other.book.unmerged + world.dispatch.stock.ordered_count == 5
    assert world.ledger.busy_count == 5
    while world.ready or late.inbox:
        world.finish(late, ns=QUICK_NS)
        world.read(late)
        world.begin(late)
        world.take(views=0)
    assert tickets(world.handed)[:5] == [(0, step) for step in range(5)]


def test_large_batches_that_the_user_keeps_hold_nobody_back():
    world = _world(QUICK_NS, QUICK_NS, slot_nbytes=LARGE)
    for step in range(30):
        while not world.ready:
            for worker in world.workers:
                world.feed(worker)
                world.begin(worker)
                world.finish(worker, ns=QUICK_NS)
                world.read(worker)
        assert world.take().ticket.step == step
    assert world.ledger.held_by(Holder.BATCH) == 30


def _to_feed(world):
    """After each batch that is taken while any is ready: how many are ready then, and who is to be given orders."""
    while world.ready:
        world.take()
        named = world.dispatch.hunger.to_feed()
        yield len(world.ready), named
        for book in named:
            if not book.outstanding:  # nobody has fed it
                world.dispatch.hunger.begins(book)


def test_of_a_good_stock_half_is_used_up_before_one_worker_begins():
    world = _world(*4 * [SLOW_NS])
    world.settle()
    assert len(world.ready) == 14  # ten, and one for each
    for ready, lines in _to_feed(world):
        assert len(lines) == (0 if ready > 7 else 1)
        if lines:
            break
    world.feed(world.workers[0])
    assert _ordered(world.workers[0]) == [14, 15]


def test_workers_are_added_one_after_the_other_while_the_stock_goes_on_falling():
    world = _world(*4 * [SLOW_NS])
    world.settle()
    begun = []
    for ready, lines in _to_feed(world):
        begun += [(ready, line.number) for line in lines]
        for line in lines:
            world.feed(world.workers[line.number])
    assert begun == [(7, 0), (5, 1), (4, 2), (3, 3)]


def test_when_nothing_is_ready_all_begin_at_once():
    world = _world(*4 * [SLOW_NS])
    world.settle()
    *_, (ready, lines) = _to_feed(world)
    assert ready == 0
    assert lines == list(world.books)


def test_those_elsewhere_make_what_those_here_do_not_come_to():
    world = _world(*4 * [SLOW_NS], far=2)
    *_, far, other = world.workers
    world.settle()
    assert not _ordered(far)
    assert len(world.ready) == 14
    begun = []
    for ready, books in _to_feed(world):
        begun += [(ready, book.number) for book in books]
        for book in books:
            world.feed(world.workers[book.number])
    assert begun == [(7, 0), (5, 1), (4, 2), (3, 3)]  # those here first
    assert _ordered(far)
    assert _ordered(other)


def test_those_elsewhere_are_given_no_new_ones_while_those_here_keep_up():
    world = _world(*2 * [SLOW_NS], far=1, message_queue_size=1)
    near, far = world.workers
    world.settle()
    while len(world.ready) > 6:
        world.take()
        world.drop()
    world.feed(far)
    assert not _ordered(far)
    world.feed(near)
    assert _ordered(near)
    world.take()
    world.feed(far)
    assert _ordered(far)


def test_without_any_here_those_elsewhere_make_all():
    world = _world(*2 * [SLOW_NS], far=2)
    world.settle()
    assert len(world.ready) == 12


def test_nobody_is_woken_for_quick_batches_before_they_are_worth_it():
    world = _world(*4 * [FAST_NS], data_queue_size=100, message_queue_size=100)
    world.settle()
    worth = 1_000_000 // FAST_NS
    assert [ready for ready, lines in _to_feed(world) if lines and ready > 50]
    world.settle()
    stock = len(world.ready)
    asked = [stock - ready for ready, lines in _to_feed(world) if lines and ready > 50]
    assert all(taken >= worth for taken in asked)


def test_who_has_as_many_parcels_waiting_as_it_may_is_not_asked():
    world = _world(SLOW_NS, SLOW_NS, data_queue_size=1, max_buffer_size=0)
    slow, other = world.workers
    world.feed(slow)
    for _ in range(3):
        world.feed(other)
        _make(world, other, len(_ordered(other)))
    world.feed(other)
    assert other.book.unmerged
    assert world.dispatch.hunger.to_feed() == []


def test_parcels_that_wait_for_a_slow_worker_hold_back_the_worker_that_made_them():
    world = _world(SLOW_NS, SLOW_NS, data_queue_size=99, max_buffer_size=3)
    slow, other = world.workers
    world.feed(slow)
    world.begin(slow)
    for _ in range(10):
        world.feed(other)
        _make(world, other)
    # Two may be with it, three more may wait; then it takes over what waits behind the slow one.
    assert other.book.unmerged == 6
    assert world.words[slow.inbox[1].slot] == 0
    assert not world.ready
    world.finish(slow, ns=SLOW_NS)
    world.read(slow)
    assert tickets(world.ready) == [(0, step) for step in range(7)]


def test_what_waits_behind_an_order_is_left_there_if_its_worker_is_fast():
    world = _world(FAST_NS, None, max_buffer_size=0)
    first, other = world.workers
    world.feed(first)
    world.begin(first)
    for _ in range(10):
        world.feed(other)
        _make(world, other)
    assert all(world.words[order.slot] == order.seq for order in first.inbox)


def test_what_was_in_the_hands_of_the_dead_goes_before_all_new_tickets():
    world = _world(SLOW_NS, SLOW_NS)
    first, other = world.workers
    for worker in world.workers:
        world.feed(worker)
        world.begin(worker)
    world.die(first)
    _make(world, other, 2)
    world.feed(other)
    assert _ordered(other) == [0, 1]
    _make(world, other, 2)
    assert tickets(world.ready) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_the_lowest_is_made_again_although_every_queue_is_full():
    world = _world(SLOW_NS, SLOW_NS, data_queue_size=1, max_buffer_size=0)
    first, other = world.workers
    for worker in world.workers:
        world.feed(worker)
    _make(world, other, 2)
    world.die(first)
    world.feed(other)
    assert _ordered(other) == [0, 1]


def test_it_is_made_again_in_the_slot_that_its_worker_left():
    world = _world(SLOW_NS, SLOW_NS, slots=4)
    first, other = world.workers
    for worker in world.workers:
        world.feed(worker)
    _make(world, other, 2)
    assert world.ledger.held_by(Holder.POOL) == 2
    world.die(first)
    world.feed(other)
    assert _ordered(other) == [0, 1]
    assert not world.dispatch.starves_for_slots()


def test_a_dead_worker_alone_is_no_want_of_memory():
    world = _world(None)
    world.feed(world.workers[0])
    world.die(world.workers[0])
    assert world.dispatch.wants_slot
    assert not world.dispatch.starves_for_slots()


def test_a_user_that_holds_all_slots_is_told_and_dropping_one_helps():
    world = _world(None, slots=2)
    world.settle()
    while world.ready:
        world.take()
    world.settle()
    assert world.dispatch.starves_for_slots()
    world.drop()
    assert not world.dispatch.starves_for_slots()
    world.settle()
    assert tickets(world.ready) == [(0, 2)]


@pytest.mark.parametrize("most", [1, 3])
def test_a_ticket_that_kills_too_many_is_given_up_in_its_place(most):
    world = _world(None, max_attempts=most)
    worker = world.workers[0]
    for _ in range(most):
        world.feed(worker)
        world.begin(worker)
        world.die(worker)
        world.start(worker)
    assert [type(one) for one in world.ready] == [Failed]
    world.settle()
    assert tickets(world.ready)[:3] == [(0, 0), (0, 1), (0, 2)]


def test_a_batch_whose_workers_die_at_another_sample_each_time_is_made_again_for_longer():
    world = _world(None, max_attempts=3)
    worker = world.workers[0]
    for death in range(12):
        assert not world.ready
        world.feed(worker)
        world.begin(worker)
        worker.index = death % 6  # so that none comes thrice
        world.die(worker)
        world.start(worker)
    assert [type(one) for one in world.ready] == [Failed]


def test_a_death_is_held_against_the_order_in_hand_alone():
    world = _world(None, max_attempts=2)
    worker = world.workers[0]
    for _ in range(2):
        world.feed(worker)
        _make(world, worker)  # the first is made, the one behind it is in hand when the worker dies
        world.begin(worker)
        world.die(worker)
        world.start(worker)
    assert [type(one) for one in world.ready].count(Failed) == 0


def test_the_next_epoch_is_begun_while_this_one_ends():
    world = _world(None, counts=[1, 2, 1])
    world.settle()
    assert tickets(world.ready)[:6] == [(0, 0), (1, 0), (1, 1), (2, 0), (3, 0), (4, 0)]


def test_a_consumer_without_steps_orders_nothing():
    world = _world(None, counts=[0])
    world.settle()
    assert not world.dispatch.wants_slot
    assert world.ledger.held_by(Holder.WORKER) == 0


def test_after_a_restart_old_orders_come_back_empty_and_the_new_step_comes_first():
    world = _world(None, None, counts=[10])
    for worker in world.workers:
        world.feed(worker)
        world.begin(worker)
    world.restart(3, 7)
    world.settle()
    assert tickets(world.ready)[:4] == [(3, 7), (3, 8), (3, 9), (4, 0)]


def test_orders_name_the_size_of_the_largest_slot():
    world = _world(None)
    worker = world.workers[0]
    world.feed(worker)
    assert worker.inbox[0].room == 0
    _make(world, worker)
    world.feed(worker)
    assert worker.inbox[-1].room == 10
