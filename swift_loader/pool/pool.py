"""One consumer's workers, as a whole: opened, taken from, closed.

What workers are told and what becomes of it is the exchange's business; when to read and write, the telecom threads';
what is done about how they fare, the supervisor's.
"""

from __future__ import annotations

import contextlib
import os
from queue import Empty
from time import monotonic
from typing import TYPE_CHECKING

from swift_loader.errors import LoaderClosed, WorkerStartFailed
from swift_loader.host.limits import begin
from swift_loader.orders.asked import Asked
from swift_loader.orders.exchange import Exchange
from swift_loader.orders.tickets import Delivery, Failed
from swift_loader.pool import failures
from swift_loader.pool.budget import slots_allowed
from swift_loader.pool.calls import Calls, LineBell
from swift_loader.pool.lights import CLOSED_AT_START, Lights
from swift_loader.pool.notes import Notes
from swift_loader.pool.process import servers_at
from swift_loader.pool.reuse import ground_of, kept_statistics
from swift_loader.pool.starter import Launcher, Starter
from swift_loader.pool.supervisor import Supervisor
from swift_loader.pool.telecom import Telecom
from swift_loader.pool.view import Onlooker, View

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from swift_loader.errors import SwiftLoaderError
    from swift_loader.orders.tickets import Full
    from swift_loader.plan.plan import Plan
    from swift_loader.plan.position import Position
    from swift_loader.pool.line import Line
    from swift_loader.pool.process import Site
    from swift_loader.wire.facts import Facts
    from swift_loader.wire.recipe import Recipe

#: Waits are cut into pieces of this length, between which the pool looks whether anything can still come.
_LOOK_S = 0.25
_JOIN_TIMEOUT_S = 5.0
_CLOSED_MEANWHILE = "the loader was closed while a batch was waited for"


class Pool:
    """The workers of one consumer. See `swift_loader.consumer.source.Source` for who calls what when."""

    def __init__(self, recipe: Recipe, sites: Sequence[Site], memory_budget: int, onlooker: Onlooker) -> None:
        # A server's own stock is ahead already; that of workers which are this loader's alone is this one.
        recipe = recipe.with_workers(sum(site.lines * (site.width if site.is_far else 1) for site in sites))
        config = recipe.config
        line_count = sum(site.lines for site in sites)
        most_slots = slots_allowed(config.worker_count)
        self._recipe = recipe
        self._config = config
        self._notes = Notes()
        self._lights = lights = Lights(self._put_out)
        ground = ground_of(recipe, self._notes.put)
        self._launcher = Launcher(config, sites, config.max_batch_nbytes or memory_budget // 4, ground)
        calls = [Calls() for _ in range(line_count if config.multithread else 1)]
        name = f"swift-{{}}-c{recipe.consumer}w{{}}"
        self._lines = [
            self._launcher.line(i, name.format("worker", i), LineBell(calls[i % len(calls)], i))
            for i in range(line_count)
        ]
        books = [line.book for line in self._lines]
        self._exchange = Exchange(recipe, memory_budget, most_slots, books, self._launcher.slot_words)
        self._supervisor = Supervisor(recipe, self._exchange, self._launcher, lights, self._notes, onlooker)
        starter = Starter(f"swift-starter-c{recipe.consumer}", self._launcher, self._supervisor, lights)
        self._telecoms = [
            Telecom(name.format("telecom", i), call, self._supervisor, starter, lights) for i, call in enumerate(calls)
        ]
        self._servants: list[Starter | Telecom] = [starter, *self._telecoms]
        self._telecoms[0].listen_to(self._exchange.returns.bell)
        self._servers = servers_at(sites)
        self.view = View(self._lines, self._exchange, self._launcher.control_fd, self._servers)

    # Starting ---------------------------------------------------------------------------------------------------

    def open(self) -> Plan:
        """Starts the workers; gives back the plan, which is known once the first has built its dataset.

        Raises:
            SwiftLoaderError: whatever kept them from starting, or, with ``validate``, from making the first batch.
        """
        self._begin_to_serve()
        first, *others = self._lines
        if not self._config.validate:
            self._take_on(others)
        self._take_on([first])
        self._await(lambda: self._exchange.plan is not None)
        plan = self._exchange.plan
        assert plan is not None
        if self._config.validate:
            # The dataset can be built: the others need not wait for the first batch to do so too. If that batch cannot
            # be made, it is still the first thing that is told.
            self._take_on(others)
            if plan.step_count(0, self._recipe.consumer):
                self._await(lambda: self._exchange.ready.first is not None)
                self._raise_failure(self._exchange.ready.first)
                if (few := _told_few_slots(self._exchange, len(self._lines))) is not None:
                    self._notes.put(few)
        self._supervisor.is_open = True
        return plan

    def _begin_to_serve(self) -> None:
        """Counts as serving itself: if the pool is closed meanwhile, it is this thread that puts the lights out."""
        self._lights.comes()
        try:
            self._launcher.open()
            for servant in self._servants:
                self._lights.comes()
                try:
                    begin(servant.thread)
                except WorkerStartFailed:  # after Ctrl-C it may run all the same, and says itself when it leaves
                    self._lights.leaves()
                    raise
        finally:
            self._lights.leaves()

    def begin_asked(self) -> None:
        """From the start, only what `ask` names is made, in that order; `take` gives it. Called before `open`."""
        self._exchange.asked = Asked()

    def ask(self, epoch: int, step: int) -> None:
        """This batch is wanted, after all that were asked for before. Called by any thread."""
        self._exchange.ask(epoch, step)

    def descriptor(self, delivery: Full) -> int | None:
        """Another one of the memory that a batch lies in, if it can be had."""
        room = None if delivery.hold is None else delivery.hold.room
        if room is None:
            return None
        with contextlib.suppress(OSError):  # there is none left
            fd = os.dup(room.fd)
            if not self._lights.closing:
                return fd
            os.close(fd)  # its number may have been another file's already
        return None

    def _take_on(self, lines: list[Line]) -> None:
        for line in lines:
            if telecoms := self._telecoms:  # there are none when all is over
                telecoms[line.number % len(telecoms)].take_on(line)

    def _await(self, happened: Callable[[], bool]) -> None:
        while not happened():
            if self._supervisor.fatal is not None:
                raise self._supervisor.fatal
            if self._lights.closing:
                raise LoaderClosed(CLOSED_AT_START)
            try:
                self._supervisor.news.get(timeout=_LOOK_S)
            except Empty:
                self.tell_notes()

    def _raise_failure(self, delivery: Delivery | None) -> None:
        if isinstance(delivery, Failed):
            raise self.error_of(delivery)

    @property
    def facts(self) -> Facts:
        """What the first worker has told of its dataset."""
        return self._supervisor.facts

    @property
    def sample_count(self) -> int:
        """As the workers have counted them, once one has."""
        return self._supervisor.facts.sample_count

    @property
    def fetching(self) -> set[tuple[str, str]]:
        """Who fetches for the workers' datasets, as they have told so far."""
        return set(self._supervisor.fetching)

    # The consumer's side ----------------------------------------------------------------------------------------

    def take(self, before_waiting: Callable[[], None]) -> Delivery:
        """The next delivery, waited for.

        Args:
            before_waiting: Called before each wait: whoever copies from slots is to let go of those it is done with.

        Raises:
            SwiftLoaderError: if none can come any more.
        """
        waited = 0
        while True:
            if self._supervisor.fatal is not None:
                raise self._supervisor.fatal
            delivery = self._exchange.take(_LOOK_S if waited else 0.0)
            if isinstance(delivery, BaseException):
                raise delivery
            if delivery is not None:
                return delivery
            if self._lights.closing:
                raise LoaderClosed(_CLOSED_MEANWHILE)
            self.tell_notes()
            before_waiting()
            short_of_slots = self._exchange.look_for_slots()
            waited += 1
            if short_of_slots is not None and waited > 2:  # not at once: another thread may be dropping a batch
                raise short_of_slots

    def tell_notes(self) -> None:
        """Warns of what the user should know."""
        self._notes.tell()

    def restart(self, at: Position) -> int:
        """What is taken next is what follows from there; all that was made for others is void.

        Gives back the number of the next ticket. May be called while another thread waits in `take`.
        """
        first = self._exchange.restart(at)
        for telecom in self._telecoms:
            telecom.ring()
        return first

    def error_of(self, failed: Failed) -> SwiftLoaderError:
        """What to raise for a ticket that could not be made."""
        return failures.error_of(failed, self._recipe.consumer)

    def broke(self, error: BaseException) -> None:
        """Nothing more is to come: `take` raises this. Called by any thread."""
        self._supervisor.broke(error)

    def worker_pids(self) -> list[int]:
        """Of the workers that live, or have just died."""
        processes = [line.process for line in self._lines]
        return [process.pid for process in processes if process is not None]

    def statistics(self) -> dict[str, float]:
        """Slots, counted, workers that had grown too large, and what was kept."""
        kept = kept_statistics(self._config, [line.cell for line in self._lines])
        servers = {"servers_lost": self._supervisor.reconnected} if self._servers else {}
        return {**self._exchange.statistics(), "workers_recycled": self._supervisor.recycled, **servers, **kept}

    # Closing ----------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Has everything end without waiting for it; takes no lock."""
        self._lights.closing = True
        self._launcher.abandon()
        # Wakes who waits in `take` or `open`: after a long signal handler Python 3.11 forgets the deadline of a wait.
        self._exchange.ready.fail(LoaderClosed(_CLOSED_MEANWHILE))
        self._supervisor.news.put(None)
        for servant in self._servants:
            servant.ring()

    def close(self) -> None:
        """Ends the workers and the threads; may be called twice.

        From a signal handler that has interrupted this thread in the middle of something, it does not wait for the
        threads, which wait for that to end: the last of them puts the lights out.
        """
        self.abandon()
        if self._exchange.is_entered():
            return
        deadline = monotonic() + _JOIN_TIMEOUT_S
        for servant in self._servants:
            if servant.thread.is_alive():  # perhaps it never began
                servant.thread.join(max(0.0, deadline - monotonic()))
        self._lights.go_out()

    def _put_out(self) -> None:
        """Called when nobody serves any more."""
        for telecom in self._telecoms:
            telecom.see_off()
        self._launcher.close()
        self._exchange.close()
        self._telecoms, self._servants = [], []


def _told_few_slots(exchange: Exchange, workers: int) -> str | None:
    dispatch = exchange.dispatch
    return None if dispatch is None else exchange.means.told_few(dispatch.stock.largest_slot, workers)
