"""Many lines: what a batch costs the trainer's side of a pool, with ten workers and with ten thousand.

Measures: the pure side of one pool (exchange, dispatch, ledger, merge) in this process. Workers are played: each has a
batch ready 30 ms of their own time after it began it, give or take a third; each parcel is received, its worker is
given new orders, and the consumer takes and drops whatever is ready. The clock runs over all of that, once every
worker has made its first batches. "first" is the same for those: slots are made, and every worker is met.

Leaves out: sockets, shared memory, threads and their wake-ups, and the workers themselves.

Command: `python -m benchmarks.many_lines [--batches 20000]`. Goal: a batch costs at most three times as much among ten
thousand lines as among ten. The last table is `results/many_lines.txt`.

Caveat: what grows is mostly the machine's caches: ten thousand workers' books do not fit into them. To play the workers
costs a microsecond or two for each batch, which counts.
"""

from __future__ import annotations

import argparse
import heapq
import random
from time import thread_time
from typing import Any

from swift_loader.batch.layout import BatchSpec
from swift_loader.orders.book import Book
from swift_loader.orders.exchange import Exchange
from swift_loader.orders.tickets import Full
from swift_loader.settings.loader import LoaderConfig
from swift_loader.wire.messages import Attachment, Cost, Order, Parcel, read_orders
from swift_loader.wire.recipe import Recipe

LINES = (10, 100, 1_000, 10_000)
BATCH_NS, NBYTES, SLOTS = 30_000_000, 4096, 1 << 16
STEPS = 1 << 40
LAYOUT: Any = BatchSpec(*(None,) * 7)  # type: ignore[arg-type] # nobody looks into it


class Endless:
    """A plan of one epoch."""

    def step_count(self, _epoch: int, _consumer: int) -> int:
        return STEPS


class Paper:
    """A slot without memory."""

    fd, nbytes = -1, NBYTES


class Played:
    """One worker's bell, and its cell."""

    def __init__(self, number: int, rung: list[int]) -> None:
        self.seq = 0
        self.inbox: list[Order] = []
        self.has_told = False
        self.book = Book(number, self, self)
        self.book.opens()
        self._rung = rung

    def ring(self) -> None:
        self._rung.append(self.book.number)


class Play:
    """One pool."""

    def __init__(self, count: int) -> None:
        config = LoaderConfig.parse(1, 1, count, False, {})
        words = memoryview(bytearray(8 * SLOTS)).cast("Q")
        self.rung: list[int] = []
        self.workers = [Played(number, self.rung) for number in range(count)]
        books = [worker.book for worker in self.workers]
        self.exchange = Exchange(Recipe(None, {}, [0], config, 0, 0), 1 << 50, SLOTS, books, words)
        plan: Any = Endless()
        self.exchange.set_up(plan)
        self.busy: list[tuple[float, int]] = []
        self.now = 0.0
        self.taken = 0
        self.chance = random.Random(1)
        for worker in self.workers:
            self.feed(worker)

    def feed(self, worker: Played) -> None:
        """As a telecom thread does after whatever has woken it."""
        message = self.exchange.orders_for(worker.book)
        if message is not None:
            if not worker.inbox:
                self.begin(worker)
            worker.inbox += read_orders(message[1])

    def begin(self, worker: Played) -> None:
        """It turns to its next order."""
        heapq.heappush(self.busy, (self.now + self.chance.uniform(0.67, 1.33), worker.book.number))

    def run(self, batches: int) -> float:
        """CPU microseconds for each of so many."""
        began, until = thread_time(), self.taken + batches
        while self.taken < until:
            self.now, number = heapq.heappop(self.busy)
            worker = self.workers[number]
            self.answer(worker, worker.inbox.pop(0))
            if worker.inbox:
                self.begin(worker)
            self.feed(worker)
            self.take_all()
            while self.rung:
                self.feed(self.workers[self.rung.pop()])
        return (thread_time() - began) / batches * 1e6

    def answer(self, worker: Played, order: Order) -> None:
        """The batch is made."""
        attachment = None if worker.has_told else Attachment(spec=LAYOUT)
        worker.has_told = True
        if self.exchange._shelf.get(order.slot) is None:
            paper: Any = Paper()
            self.exchange._shelf.put(order.slot, paper, worker.book)
        parcel = Parcel(order.seq, order.slot, 0, 1, NBYTES, Cost(fetch_ns=BATCH_NS), attachment)
        self.exchange.came(worker.book, [parcel], [], 0)

    def take_all(self) -> None:
        """The consumer is never late, and keeps nothing."""
        while (delivery := self.exchange.take(0.0)) is not None:
            assert isinstance(delivery, Full)
            self.taken += 1


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="What a batch costs the trainer's side, by the number of workers.")
    parser.add_argument("--batches", type=int, default=20_000)
    batches = parser.parse_args().batches
    print(f"{'lines':>8} {'first':>10} {'later':>10}   CPU us for each batch", flush=True)
    costs = []
    for count in LINES:
        play = Play(count)
        first = play.run(4 * count)
        costs.append(min(play.run(batches // 4) for _ in range(4)))
        print(f"{count:>8,} {first:>10.1f} {costs[-1]:>10.1f}", flush=True)
    print(f"{LINES[-1]:,} lines cost {costs[-1] / costs[0]:.1f} times as much as {LINES[0]}")


if __name__ == "__main__":
    main()
