"""Leases: a slot comes home when the last array on it is gone, wherever and however that happens."""

import gc
import os
import pickle
import select
import threading

import numpy as np
import pytest
import torch

from swift_loader.orders.lease import Lease, Returns
from swift_loader.orders.ledger import Holder, Ledger
from swift_loader.wire.slot import Slot


class Books:
    """One slot, landed, and who holds it."""

    def __init__(self):
        self.ledger = Ledger(1 << 20, 8)
        self.slot = Slot.create(8192)
        self.returns = Returns()
        self.number = self.ledger.take(1, ())
        self.ledger.filled(self.number, self.slot.nbytes)
        self.ledger.landing(self.number)
        self.lease = Lease(self.slot, self.number, self.returns)

    @property
    def is_free(self):
        while self.returns.came_home:
            self.ledger.changed(*self.returns.came_home.popleft())
        return self.ledger.held_by(Holder.LEDGER) == 1


@pytest.fixture
def books():
    made = Books()
    yield made
    made.slot.close()
    vars(made).clear()  # pytest keeps the fixture for longer than the leak check waits


def _rings(returns):
    poll = select.poll()
    poll.register(returns.bell.fd, select.POLLIN)
    return bool(poll.poll(0))


def test_without_arrays_the_slot_is_free_when_the_batch_has_landed(books):
    assert not books.is_free
    books.lease.landed()
    assert books.is_free


def test_a_delivery_that_is_dropped_before_a_batch_was_made_of_it_gives_its_slot_back(books):
    books.lease = None
    assert books.is_free


@pytest.mark.parametrize("drop_first", [True, False])
def test_the_last_array_takes_the_slot_home(books, drop_first):
    arrays = [books.lease.array((4,), "float32", 64 * i) for i in range(3)]
    if drop_first:
        del arrays[0]
    books.lease.landed()
    while len(arrays) > 1:
        arrays.pop()
        assert not books.is_free
    arrays.pop()
    assert books.is_free


WAYS = {
    "a slice": lambda array: array[1:],
    "a slice of a slice": lambda array: array[1:][:2][:1],
    "another dtype": lambda array: array.view(np.int32),
    "a plain array": np.asarray,
    "a plain view": lambda array: array.view(np.ndarray),
    "a slice of a plain array": lambda array: np.asarray(array)[1:].reshape(-1),
    "a buffer": lambda array: np.frombuffer(memoryview(array), np.uint8),
    "a memoryview": memoryview,
    "a tensor": torch.from_numpy,
    "a tensor's array": lambda array: torch.from_numpy(array).numpy(),
    "a view of a tensor": lambda array: torch.from_numpy(array)[1:].view(torch.int32),
    "a tensor's storage": lambda array: torch.from_numpy(array).untyped_storage(),
    "a detached tensor": lambda array: torch.from_numpy(array).detach(),
    "another library's tensor": lambda array: torch.from_dlpack(torch.from_numpy(array)),
    "an unpickled array": lambda array: pickle.loads(
        pickle.dumps(np.zeros(4, np.float32), protocol=5, buffer_callback=lambda _: None), buffers=[array]
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_any_view_of_the_memory_holds_the_slot(books, way):
    array = books.lease.array((4,), "float32", 64)
    view = way(array)
    books.lease.landed()
    del array
    gc.collect(0)
    assert not books.is_free
    del view
    gc.collect(0)
    assert books.is_free


def test_copies_hold_nothing(books):
    array = books.lease.array((4,), "float32", 64)
    kept = array.copy(), array + 1, torch.from_numpy(array).clone(), np.array(array), array[[0, 1]]
    books.lease.landed()
    del array
    assert books.is_free
    assert len(kept) == 5


def test_an_array_is_on_the_slots_memory_where_it_was_asked_for(books):
    books.slot.memory[128:136] = np.arange(8)
    assert books.lease.array((2, 2), "uint16", 128).tolist() == [[256, 770], [1284, 1798]]


def test_an_array_in_a_cycle_comes_home_with_it(books):
    cycle = [books.lease.array((4,), "float32", 64)]
    cycle.append(cycle)
    books.lease.landed()
    del cycle
    gc.collect()
    assert books.is_free


def test_arrays_may_be_dropped_by_any_thread(books):
    arrays = [books.lease.array((4,), "float32", 0) for _ in range(64)]
    books.lease.landed()
    threads = [threading.Thread(target=lambda: [arrays.pop() for _ in range(16)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert books.is_free


def test_the_bell_is_rung_only_where_somebody_waits(books):
    first, second = (books.lease.array((4,), "float32", 0) for _ in range(2))
    books.lease.landed()
    del first
    assert not _rings(books.returns)
    books.returns.wanted = True
    del second
    assert _rings(books.returns)
    books.returns.bell.hush()
    assert not _rings(books.returns)


def test_in_a_forked_child_nothing_comes_home(books):
    array = books.lease.array((4,), "float32", 0)
    books.lease.landed()
    books.returns.wanted = True
    before = len(books.returns.came_home)
    child = os.fork()
    if child == 0:
        del array
        os._exit(len(books.returns.came_home) - before)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not _rings(books.returns)
    assert not books.is_free
    del array


def test_arrays_outlive_the_pool():
    books = Books()
    array = books.lease.array((4,), "float32", 0)
    array[:] = 3
    books.lease.landed()
    books.slot.close()
    del books
    gc.collect()
    assert array.tolist() == [3] * 4
