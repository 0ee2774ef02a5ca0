"""A pool without processes or threads: all is real but the workers, which are played over real channels and slots.

The telecom thread is stepped by hand, so that a storm is the same each time it is drawn; after each step the books of
the exchange are compared.
"""

from __future__ import annotations

import os
from collections import Counter
from types import SimpleNamespace

import numpy as np

from swift_loader.batch.layout import BatchSpec
from swift_loader.orders.book import Book
from swift_loader.orders.exchange import Exchange
from swift_loader.orders.lease import LeasedArray
from swift_loader.orders.tickets import Full
from swift_loader.pool.calls import Calls, LineBell
from swift_loader.pool.lights import Lights
from swift_loader.pool.line import Line
from swift_loader.pool.notes import Notes
from swift_loader.pool.supervisor import Supervisor
from swift_loader.pool.telecom import Telecom
from swift_loader.settings.loader import LoaderConfig
from swift_loader.wire import messages
from swift_loader.wire.channel import SocketChannel
from swift_loader.wire.facts import Facts
from swift_loader.wire.messages import Attachment, Cost, Hello, Parcel
from swift_loader.wire.page import MAX_SLOTS, Cell
from swift_loader.wire.recipe import Recipe
from swift_loader.wire.slot import Slot
from tests.unit.pool.audit import audited

#: Where a worker hands something over.
POINTS = (
    "before hello", "after hello", "before orders", "after orders", "slot half written", "slot made", "before parcel",
    "after parcel", "before void", "after void",
)  # fmt: skip
SPEC = BatchSpec(*(None,) * 7)
WORDS = 512


class Killed(Exception):
    """The worker is gone."""


class Process:
    """What the pool has of a worker."""

    pid = 4711

    def __init__(self):
        self.sentinel = os.eventfd(0)
        self.is_gone = False

    def exit_status(self):
        return -9

    def kill(self):
        if not self.is_gone:
            self.is_gone = True
            os.eventfd_write(self.sentinel, 1)

    cut = kill

    def is_stopped(self):
        return False

    def ask(self):
        pass

    def close(self):
        os.close(self.sentinel)


class Worker:
    """What a worker process does."""

    def __init__(self, world, line):
        ours, theirs = SocketChannel.pair()
        self.world, self.cell = world, line.cell
        self.process = Process()
        self.channel = SocketChannel(theirs, blocking=True)
        self.started = self.process, ours
        self.slots, self.inbox = {}, []
        self.greeted = self.told = False

    def step(self):
        """Does the next thing, or dies of it."""
        if self.process.is_gone:
            return
        try:
            self._step()
        except Killed:
            self.die()

    def die(self):
        self.process.kill()
        self.channel.close()
        for slot in self.slots.values():
            slot.close()
        self.slots = {}

    def _at(self, point):
        if self.world.strikes(point):
            raise Killed

    def _send(self, name, datagram, fds=()):
        self._at(f"before {name}")
        assert self.channel.send(datagram, fds)
        self._at(f"after {name}")

    def _step(self):
        if not self.greeted:
            self.greeted = True
            self._send("hello", messages.write_pickled(messages.HELLO, Hello(4711, Facts(self.world.steps, None))))
        elif self.inbox and (not self.channel.has_message() or self.world.chance.random() < 0.5):
            self._make(self.inbox.pop(0))
        elif self.channel.has_message():
            self._at("before orders")
            datagram, fds = self.channel.receive()
            if datagram and datagram[0] == messages.ORDERS:
                self._ordered(messages.read_orders(datagram), fds)
            self._at("after orders")

    def _ordered(self, orders, fds):
        for order in orders:
            if order.brings_slot:
                if (old := self.slots.pop(order.slot, None)) is not None:
                    old.close()
                self.slots[order.slot] = Slot.map(fds.pop(0))
        self.inbox += orders

    def _make(self, order):
        self.cell.enter(3, order.seq)
        if self.world.words[order.slot] != order.seq:
            self._send("void", messages.write_void(order.seq))
            return
        slot, fds = self.slots.get(order.slot), []
        if slot is None or self.world.chance.random() < 0.1:  # a batch that is larger than all before
            if slot is not None:
                slot.close()
            slot = self.slots[order.slot] = Slot.create(4096)
            fds = [slot.fd]
            self._at("slot made")
        words = slot.memory[: 8 * WORDS].view(np.int64)
        words[: WORDS // 2] = number_of(order.epoch, order.step)
        self._at("slot half written")
        words[WORDS // 2 :] = number_of(order.epoch, order.step)
        spec, self.told = None if self.told else SPEC, True
        attachment = Attachment(spec=spec, new_slot=bool(fds)) if fds or spec else None
        cost = Cost(fetch_ns=self.world.chance.choice([100_000, 50_000_000]))
        parcel = Parcel(order.seq, order.slot, 0, 1, 8 * WORDS, cost, attachment)
        self._send("parcel", messages.write_parcel(parcel), fds)


def number_of(epoch, step):
    """What the batch of a step holds, all over."""
    return 1000 * epoch + step


class World:
    """One pool and its consumer."""

    def __init__(self, chance, *, point=None, often=0.0, steps=7, workers=3, most_slots=8, **settings):
        self.chance, self.point, self.often, self.steps = chance, point, often, steps
        config = LoaderConfig.parse(1, 1, workers, False, {"max_attempts": 1000, "data_queue_size": 4, **settings})
        recipe = Recipe(None, {}, [0], config, 0, 0)
        self.words = memoryview(bytearray(8 * MAX_SLOTS)).cast("Q")
        self.calls, self.deaths = Calls(), 0
        self.lights, self.workers = Lights(lambda: None), {}
        self.lines = []
        for number in range(workers):
            cell = Cell(memoryview(bytearray(64)).cast("q"))
            self.lines.append(Line(f"worker {number}", cell, 300.0, Book(number, cell, LineBell(self.calls, number))))
        books = [line.book for line in self.lines]
        self.exchange = Exchange(recipe, 1 << 30, most_slots, books, self.words)
        launcher = SimpleNamespace(will_need=lambda _libraries: None)
        self.supervisor = Supervisor(recipe, self.exchange, launcher, self.lights, Notes(), self)
        self.telecom = Telecom("telecom", self.calls, self.supervisor, self, self.lights)
        self.telecom.listen_to(self.exchange.returns.bell)
        for line in self.lines:
            self.telecom.take_on(line)
        self.held, self.taken = [], []

    # An onlooker, and a starter

    def lost(self, worker, how):
        self.deaths += 1

    def heard(self, worker, what):
        pass

    def ticked(self):
        pass

    def want(self, line, told):
        worker = self.workers[line.number] = Worker(self, line)
        told(line, worker.started)

    def strikes(self, point):
        return point == self.point and self.chance.random() < self.often

    # What is done

    def serve(self):
        """What the telecom thread does each time it wakes."""
        self.telecom._ask_for_those_due()
        self.telecom._welcome()
        for fd, _ in self.telecom._poll.poll(0):
            self.telecom._answer(fd)
        self.telecom._feed()

    def take(self):
        """The consumer takes what is ready, looks at all of it and keeps it for a while."""
        assert self.supervisor.fatal is None
        delivery = self.exchange.take(0.0)
        if delivery is None:
            self.exchange.look_for_slots()
            return
        assert isinstance(delivery, Full), delivery
        array = delivery.hold.array((WORDS,), "int64", 0)
        delivery.hold.landed()
        _, epoch, step = delivery.ticket
        assert set(array.tolist()) == {number_of(epoch, step)}
        self.taken.append((epoch, step))
        self.held.append((array, number_of(epoch, step)))

    def drop(self):
        if self.held:
            array, number = self.held.pop(self.chance.randrange(len(self.held)))
            assert set(array.tolist()) == {number}  # nobody has written into it meanwhile

    def audit(self):
        """All accounts agree."""
        leased = Counter(array.lease.number for array, _ in self.held if isinstance(array, LeasedArray))
        audited(self.exchange, [line.book for line in self.lines], leased)

    def storm(self, count):
        """Until so many batches were taken."""
        for _ in range(400 * count):
            act = self.chance.random()
            if act < 0.4:
                self.serve()
            elif act < 0.8 and self.workers:
                self.chance.choice(list(self.workers.values())).step()
            elif act < 0.9:
                self.take()
            elif len(self.held) > 2:
                self.drop()
            self.audit()
            if len(self.taken) >= count:
                return
        raise AssertionError(f"only {len(self.taken)} batches came")

    def close(self):
        for worker in self.workers.values():
            worker.die()
        self.lights.closing = True
        self.telecom.see_off()
        self.exchange.close()
        self.held.clear()
