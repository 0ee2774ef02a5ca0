"""A pool without processes, threads or memory: the dispatch and the ledger as they are, all else played by hand."""

from __future__ import annotations

from collections import Counter, deque
from time import perf_counter_ns

from swift_loader.errors import FailureReport
from swift_loader.orders.book import Book
from swift_loader.orders.death import Death
from swift_loader.orders.dispatch import Dispatch
from swift_loader.orders.ledger import LANDING, Holder, Ledger
from swift_loader.orders.shelf import Shelf
from swift_loader.orders.tickets import Failed, Full, Ticket
from swift_loader.plan.position import Position
from swift_loader.settings.loader import LoaderConfig
from swift_loader.wire.messages import Cost, Parcel
from swift_loader.wire.recipe import Recipe

FAST_NS, SLOW_NS = 100_000, 50_000_000
REPORT = FailureReport("fetch", "ValueError", "text", "traceback")


class Steps:
    """A plan that knows only how many steps each epoch has."""

    def __init__(self, counts):
        self.counts = counts

    def step_count(self, epoch, consumer):
        return self.counts[epoch % len(self.counts)]


def recipe(**settings):
    config = LoaderConfig.parse(1, 1, settings.pop("workers", 2), settings.pop("shuffle", False), settings)
    return Recipe(None, {}, [0], config, 0, 0)


class Made:
    """A slot, as far as the pool asks."""

    def __init__(self, nbytes):
        self.nbytes = nbytes


class Silent:
    """A bell that nobody hears."""

    def ring(self):
        pass


class Worker:
    """What a worker process does, and what it is ordered."""

    def __init__(self, number, *, is_far=False):
        self.seq = 0  # the cell's word
        self.index = None  # and the other one
        self.book = Book(number, self, Silent(), is_far=is_far)
        self.alive = False
        self.inbox = deque()
        self.outbox = deque()
        self.mapped = {}

    @property
    def in_hand(self):
        return self.inbox[0] if self.inbox and self.seq == self.inbox[0].seq else None


class World:
    """One consumer, its workers, its slots."""

    def __init__(self, counts, slots=8, slot_nbytes=10, far=0, **settings):
        self.slot_nbytes = slot_nbytes
        self.recipe = recipe(**settings)
        self.config = self.recipe.config
        self.plan = Steps(counts)
        self.ledger = Ledger(1 << 40, slots)
        self.shelf = Shelf()
        self.words = memoryview(bytearray(8 * 64)).cast("Q")
        near = self.config.worker_count - far
        self.workers = [Worker(number, is_far=number >= near) for number in range(self.config.worker_count)]
        self.books = [worker.book for worker in self.workers]
        self.dispatch = Dispatch(self.recipe, self.plan, self.ledger, self.shelf, self.words, self.books)
        self.ready = deque()
        self.held = []
        self.handed = []
        self.kills = Counter()
        self.expected = (0, 0)
        self.first_seq = 1
        self.left = set()

    # What a worker and its telecom thread do

    def start(self, worker):
        """A worker has greeted."""
        worker.alive, worker.seq = True, 0
        worker.book.opens()

    def feed(self, worker):
        if not worker.alive:
            return
        orders = self.dispatch.orders_for(worker.book)
        worker.book.note_slots(orders, perf_counter_ns())
        for order in orders:
            current = self.shelf.get(order.slot)
            assert order.brings_slot == (current is not None and worker.mapped.get(order.slot) is not current)
            if order.brings_slot:
                worker.mapped[order.slot] = current
            worker.inbox.append(order)

    def begin(self, worker):
        """The worker turns to its next order, or finds that it was taken back."""
        if worker.alive and worker.inbox and worker.in_hand is None:
            worker.seq = worker.inbox[0].seq
            if self.words[worker.inbox[0].slot] != worker.seq:
                self._answer(worker, "void")

    def finish(self, worker, how="parcel", ns=FAST_NS, *, grows=False):
        """The worker is done with what it has in hand."""
        order = worker.in_hand
        if not worker.alive or order is None:
            return
        if how == "parcel" and (grows or order.slot not in worker.mapped):
            worker.mapped[order.slot] = Made(self.slot_nbytes)  # it makes a slot of its own
        self._answer(worker, how, ns)

    def _answer(self, worker, how, ns=0):
        order = worker.inbox.popleft()
        worker.seq = 0
        worker.outbox.append((how, order, ns, worker.mapped.get(order.slot)))

    def read(self, worker):
        """The telecom thread reads what the worker has said."""
        if not worker.outbox:
            return
        how, order, ns, mapped = worker.outbox.popleft()
        book = worker.book
        if how == "parcel":
            if self.shelf.get(order.slot) is not mapped:
                self.shelf.put(order.slot, mapped, book)
            parcel = Parcel(order.seq, order.slot, 0, 1, 10, Cost(ns))
            self.ready += self.dispatch.filled(book, parcel, self.slot_nbytes, 0)
        else:
            report = REPORT if how == "failure" else None
            self.ready += self.dispatch.answered_empty(book, order.seq, report)

    def die(self, worker):
        """The worker is gone; what it had said counts."""
        if not worker.alive:
            return
        while worker.outbox:
            self.read(worker)
        guilty = worker.book.in_hand()
        if guilty is not None and self.words[guilty.slot] == guilty.seq:
            self.kills[guilty.seq, worker.index] += 1
        poison = self.dispatch.died(worker.book, Death("it died", worker.index))
        if poison is not None:
            assert poison.seq == guilty.seq
            assert self._is_poison(poison.seq)
            self.ready += self.dispatch.failed(poison, REPORT, worker.book)
        else:
            assert guilty is None or not self._is_poison(guilty.seq)
        worker.alive = False
        worker.book.shuts()
        worker.inbox.clear()
        worker.mapped.clear()

    def _is_poison(self, seq):
        most = self.config.max_attempts
        deaths = [count for (ticket, _), count in self.kills.items() if ticket == seq]
        return max(deaths, default=0) >= most or sum(deaths) >= 4 * most

    # What the consumer does

    def take(self, views=1):
        """Takes the next delivery and checks that it is the one to come; holds ``views`` leases of its slot."""
        if not self.ready:
            return None
        delivery = self.ready.popleft()
        self.dispatch.taken()
        if isinstance(delivery, Full):
            self.ledger.landing(delivery.parcel.slot)
        self._check(delivery.ticket)
        self.handed.append(delivery)
        if isinstance(delivery, Full):
            self.ledger.changed(delivery.parcel.slot, views - LANDING)
            self.held += [delivery.parcel.slot] * views
        return delivery

    def _check(self, ticket):
        epoch, step = self.expected
        if self.config.in_order:
            assert (ticket.epoch, ticket.step) == (epoch, step)
        else:
            # Any of this epoch's that was not there yet.
            self.left = self.left or set(range(step, self.plan.step_count(epoch, 0)))
            assert ticket.epoch == epoch
            assert ticket.step in self.left
            self.left.remove(ticket.step)
        done = step + 1 >= self.plan.step_count(epoch, 0) if self.config.in_order else not self.left
        self.expected = (epoch + 1, 0) if done else (epoch, step + self.config.in_order)

    def drop(self, position=0):
        """The user drops a batch."""
        if self.held:
            self.ledger.changed(self.held.pop(position % len(self.held)), -1)

    def restart(self, epoch, step):
        void = [*self.dispatch.restart(Position(epoch, step)), *self.ready]
        self.ready.clear()
        for delivery in void:
            if isinstance(delivery, Full):
                self.ledger.thrown_away(delivery.parcel.slot)
        self.expected, self.left = (epoch, step), set()
        self.first_seq = self.dispatch.tickets._next.seq

    # What must be so

    def check_books(self):
        """Each slot has one holder and each ticket is in one place."""
        waiting = list(self.dispatch._merge._waiting.values())
        orders = [order for book in self.books for order in book.outstanding.values()]
        full = [one for one in (*waiting, *self.ready) if isinstance(one, Full)]
        assert self.ledger.held_by(Holder.WORKER) == len(orders)
        assert self.ledger.held_by(Holder.POOL) == len(full)
        assert self.ledger.held_by(Holder.BATCH) == len(set(self.held))
        assert self.dispatch.stock.ready_count == len(self.ready)
        assert self.dispatch.stock.ordered_count == len(orders)
        assert self.dispatch.stock.unmerged_count == len(waiting)
        valid = [order.seq for order in orders if self.words[order.slot] == order.seq]
        places = Counter(valid) + Counter(ticket.seq for ticket in self.dispatch._redo)
        places += Counter(one.ticket.seq for one in (*waiting, *self.ready))
        places += Counter(one.ticket.seq for one in self.handed if one.ticket.seq >= self.first_seq)
        assert places == Counter(range(self.first_seq, self.dispatch.tickets._next.seq))
        assert [book for book in self.books if book.hungry] == sorted(
            self.dispatch.hunger._hungry.values(), key=lambda book: book.number
        )
        for worker in self.workers:
            said = [order for _, order, _, _ in worker.outbox]
            assert sorted([*worker.inbox, *said]) == sorted(worker.book.outstanding.values())
            unmerged = sum(one.worker == worker.book.number for one in waiting)
            assert worker.book.unmerged == unmerged

    def settle(self):
        """All do what they can, but nobody dies and the consumer neither takes nor drops anything."""
        for worker in self.workers:
            if not worker.alive:
                self.start(worker)
        for _ in range(1000):
            before = self._picture()
            for worker in self.workers:
                self.feed(worker)
                self.begin(worker)
                self.finish(worker)
                self.read(worker)
                self.check_books()
            if self._picture() == before:
                return
        raise AssertionError("they run in circles")

    def _picture(self):
        words = [sorted(worker.book.outstanding) for worker in self.workers]
        return words, len(self.ready), self.dispatch.tickets._next, [len(worker.outbox) for worker in self.workers]


def tickets(deliveries):
    return [(one.ticket.epoch, one.ticket.step) for one in deliveries]


__all__ = ["FAST_NS", "REPORT", "SLOW_NS", "Failed", "Full", "Silent", "Steps", "Ticket", "World", "recipe", "tickets"]
