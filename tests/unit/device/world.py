"""What a stage and a landing thread have on their two sides: a pool whose slots are few, and a consumer.

Slots, leases and the ledger are the real ones. As soon as a slot is home it is scribbled over, as by a worker that is
quicker than anybody thought. What the consumer gets is used on the device and compared there.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from swift_loader.batch.codec import encode
from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.device.cuda import CudaStage
from swift_loader.device.pagelock import PageLocks
from swift_loader.device.plain import PlainStage
from swift_loader.device.stage import Cargo
from swift_loader.errors import LoaderClosed
from swift_loader.orders.lease import Lease, Returns
from swift_loader.orders.ledger import Holder, Ledger
from swift_loader.wire.slot import Slot
from tests.unit.batch.samples import Pair, written

ROWS, PIXELS = 3, 30_000


def samples_of(seq):
    """One leaf is larger than what is copied out on the host, one is small, one is text."""
    image = np.full(PIXELS, seq % 251, np.uint8)
    return [Pair({"label": np.float32(seq), "image": image}, f"sample {seq}") for _ in range(ROWS)]


def expected_of(seq):
    return {
        "image": torch.full((ROWS, PIXELS), seq % 251, dtype=torch.uint8),
        "label": torch.full((ROWS,), float(seq), dtype=torch.float32),
    }


class Work:
    """What a device is doing, as the plain stage asks for it."""

    def __init__(self, driver, *, has_events=True):
        self.driver, self.device, self.has_events = driver, driver.device, has_events
        self.synchronized = 0

    def open(self):
        """Nothing to do."""

    def record(self):
        return self.driver.record(self.driver.current_stream())

    def synchronize(self):
        self.synchronized += 1
        self.driver.synchronize()


def plain(to_device, kind=PlainStage):
    """Makes the stage for a user's function on a device that locks memory."""
    return lambda driver, decoder, ahead: kind(Work(driver), decoder, to_device, PageLocks(driver))


class Stuck(Exception):
    """No slot would ever come home."""


@dataclass
class Delivery:
    seq: int
    slot: int | None
    """None: the batch could not be made."""


class World:
    """A pool and its consumer, for one stage."""

    def __init__(self, driver, *, slots=2, ahead=1, stage=CudaStage, fails=()):
        self.driver = driver
        self.spec = spec_of(samples_of(0)[0], ROWS)
        self.returns = Returns()
        self.ledger = Ledger(1 << 40, slots)
        self.slots = {}
        self.seq = 0
        self.fails = fails
        self.ahead = ahead
        self.asked = 0
        self.expected = 1
        self.turn = threading.RLock()
        self.wrong = driver.wrong
        self.closing = False
        self.stage = stage(driver, None, ahead)
        self.stage.open()

    # The pool's side: what the landing thread sees of it

    def take(self):
        with self.turn:
            return self._taken()

    def _taken(self):
        if self.closing:
            raise LoaderClosed("closed")
        if self.seq >= self.asked + self.ahead:
            self.wrong.append("more was taken than may be on the device")
        if self.seq + 1 in self.fails:
            self.seq += 1
            return Delivery(self.seq, None)
        self._scribble()
        number = self.ledger.take(1, ())
        if number is None:
            self.before_waiting()
            self._scribble()
            number = self.ledger.take(1, ())
        if number is None:
            raise Stuck("all slots are held, and nobody will let go of one")
        self.seq += 1
        slot = self.slots.get(number) or self._made(number)
        self._fill(slot)
        self.ledger.filled(number, slot.nbytes)
        self.ledger.landing(number)
        return Delivery(self.seq, number)

    def before_waiting(self):
        self.stage.settle()

    def restart(self, landing):
        """The iteration is left: what was delivered, or is on its way, is void."""
        with self.turn:
            self.expected = self.seq + 1
            self.asked = self.seq
            landing.restart(self.expected)

    def number(self, delivery):
        return delivery.seq

    def unload(self, delivery):
        if delivery.slot is None:
            return None
        slot = self.slots[delivery.slot]
        lease = Lease(slot, delivery.slot, self.returns)
        cargo = Cargo(self.spec, ROWS, slot.memory, slot.views, self.stream, [], lease.array, slot)
        return cargo, lease.landed

    def leave(self):
        self.closing = True

    @property
    def home_count(self):
        with self.turn:
            self._bring_home()
            return self.ledger.held_by(Holder.LEDGER)

    def _made(self, number):
        slot = self.slots[number] = Slot.create(self.spec.nbytes)
        return slot

    def _fill(self, slot):
        _, objects = written(RowWriter(self.spec, slot.memory, ragged=False), samples_of(self.seq))
        self.stream = encode(objects).stream

    def _bring_home(self):
        while self.returns.came_home:
            self.ledger.changed(*self.returns.came_home.popleft())

    def _scribble(self):
        self._bring_home()
        for number in self.ledger._free:
            if self.slots.get(number) is not None:
                self.slots[number].memory[:] = 0xAB

    # The consumer's side

    def begin(self):
        """The first half of a landing, on this thread: for the stage alone."""
        delivery = self.take()
        cargo, landed = self.unload(delivery)
        try:
            return delivery.seq, self.stage.begin(cargo)
        finally:
            landed()

    def take_from(self, landing):
        """The next batch and its number; None for the batch if it could not be made."""
        self.asked += 1
        delivery = landing.take()
        if delivery.seq != self.expected:
            self.wrong.append(f"number {delivery.seq} came where {self.expected} should have")
        self.expected = delivery.seq + 1
        return delivery.seq, None if delivery.slot is None else landing.hand_out(delivery)

    def land(self):
        """A landing, all of it on this thread."""
        self.asked += 1
        delivery = self.take()
        cargo, landed = self.unload(delivery)
        try:
            return delivery.seq, self.stage.land(cargo)
        finally:
            landed()

    def use(self, seq, batch):
        """Has the device compute with the batch; its values are looked at when it gets there."""
        assert type(batch) is Pair
        assert batch.right == [f"sample {seq}"] * ROWS
        for name, expected in expected_of(seq).items():
            self.driver.use(batch.left[name], expected)

    def close(self):
        """The end of a pool: its slots go, and what they had locked is unlocked."""
        self.stage.close()
        self._bring_home()
        if self.ledger.held_by(Holder.BATCH):
            self.wrong.append("slots never came home")
        self.let_slots_go()
        if self.driver.locked:
            self.wrong.append("memory was never unlocked")

    def let_slots_go(self):
        while self.slots:
            self.slots.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_slots_go()
        self.__dict__.clear()  # pytest keeps a failed test's frame, and with it the pool's descriptors
