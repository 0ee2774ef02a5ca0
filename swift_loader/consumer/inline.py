"""A pool without processes: the consumer's own thread makes each batch when asked for it, under a debugger if need be.

The same plan, collate, seeding and errors as in workers. The process's own random generators are put back after every
batch, since here they are the training script's.
"""

from __future__ import annotations

from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, Any

from swift_loader.errors import FailureReport, LoaderClosed
from swift_loader.orders.tickets import Delivery, Failed, Full, Ticket
from swift_loader.plan.ahead import Ahead
from swift_loader.plan.position import Position
from swift_loader.pool.failures import error_of, start_error
from swift_loader.pool.notes import Notes
from swift_loader.pool.reuse import ground_of, kept_statistics
from swift_loader.wire.messages import Attachment, Parcel
from swift_loader.wire.page import Cell
from swift_loader.wire.recipe import Recipe
from swift_loader.worker.berth import HeapBerth, HeapHold, HeapMemory
from swift_loader.worker.fetching import fetching_of
from swift_loader.worker.generators import put_back
from swift_loader.worker.info import WorkerInfo, set_worker_info
from swift_loader.worker.made import Made
from swift_loader.worker.maker import BatchMaker
from swift_loader.worker.reuse import as_kept, carousel_on, kept, repeated
from swift_loader.worker.unmade import MakeFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from swift_loader.errors import SwiftLoaderError
    from swift_loader.plan.plan import Plan
    from swift_loader.reuse.carousel import Ground


#: The consumer's own thread stands for its only worker.
_WORKER = 0


class InlinePool:
    """Makes batches when they are taken."""

    view = None
    """There are no workers to look at."""

    def __init__(self, recipe: Recipe) -> None:
        self.sample_count = 0
        self._recipe = recipe
        self._cell = Cell(memoryview(bytearray(64)).cast("q"))
        per_sample = recipe.config.random_per == "sample" or recipe.config.worker_threads > 1
        self._info = WorkerInfo(
            recipe.consumer, 0, recipe.seed, per_sample=per_sample, shares=recipe.config.worker_threads > 1
        )
        self._seq = 0
        self._at = Position()
        self._epoch: int | None = None
        self._memory: HeapMemory | None = None
        """Where the last batch was made."""
        self._closed = False
        self._notes = Notes()
        self._ground: Ground | None = None
        self._fatal: BaseException | None = None
        self.keeps_raised = False
        self.raised: BaseException | None = None
        """With ``keeps_raised``: what the dataset has raised, with its traceback, when a batch could not be made."""

    def open(self) -> Plan:
        """Builds the dataset; gives back the plan."""
        recipe = self._recipe
        try:
            if recipe.config.worker_init is not None:
                self._as_worker(lambda: recipe.config.worker_init(self._info))
            self._dataset = self._as_worker(recipe.build)
        except Exception as error:
            raise start_error(
                f"swift-worker-c{recipe.consumer}w0",
                FailureReport.of(error, "build the dataset"),
                recipe.consumer,
                _WORKER,
            ) from error
        facts = recipe.facts_of(self._dataset)
        self.sample_count = facts.sample_count
        self._plan = recipe.plan(facts)
        ahead = Ahead(self._plan, recipe.consumer, recipe.config.batch_size)
        config = recipe.config
        self._info.generators.find(
            dataset=self._dataset, collate_fn=config.collate_fn, batch_encoder=config.batch_encoder
        )
        self._dataset = kept(recipe, self._dataset, self.sample_count, self._info, self._cell, self._notes.put_once)
        self._ground = ground_of(recipe, self._notes.put)
        carousel = None if self._ground is None else carousel_on(self._ground, recipe, self._notes.put_once)
        dataset = repeated(recipe, self._dataset, ahead, carousel, self._info, self._cell)
        self._maker = BatchMaker(recipe, dataset, ahead, self._info, self._cell)
        return self._plan

    @property
    def fetching(self) -> list[tuple[str, str]]:
        """See `Source`."""
        return fetching_of(self._dataset)

    def take(self, _before_waiting: Callable[[], None] | None = None) -> Delivery:
        """Makes the next batch, and waits for nothing."""
        if self._closed:
            raise LoaderClosed("the loader was closed")
        if self._fatal is not None:
            raise self._fatal
        self._seq += 1
        ticket = Ticket(self._seq, self._at.epoch, self._at.step)
        self._at.took(ticket.step, self._plan.step_count(ticket.epoch, self._recipe.consumer))
        berth = HeapBerth(self._recipe.config.max_batch_nbytes, self._memory)
        looks = self._recipe.config.measures
        begun = process_time_ns() if looks else 0
        try:
            made = self._as_worker(lambda: self._make(ticket, berth))
        except MakeFailed as failed:
            self.raised = (failed.__cause__ or failed) if self.keeps_raised else None
            return Failed(ticket, failed.report, _WORKER)
        except Exception as error:  # noqa: BLE001 - user code outside of fetching: a set_epoch, a plan
            self.raised = error if self.keeps_raised else None
            return Failed(ticket, FailureReport.of(error, "make the batch"), _WORKER)
        skipped = [(index, report.describe()) for index, report in made.skipped]
        attachment = Attachment(None, made.stream, made.spans, skipped=skipped)
        cost = made.cost._replace(cpu_ns=process_time_ns() - begun) if looks else made.cost
        parcel = Parcel(ticket.seq, ticket.seq, 0, made.rows, made.nbytes, cost, attachment, made.spec)
        self.tell_notes()
        self._memory = berth.memory
        return Full(ticket, parcel, _WORKER, perf_counter_ns() if looks else 0, hold=HeapHold(berth.memory))

    def restart(self, at: Position) -> int:
        """What is taken next is what follows from there; gives back the number of its ticket."""
        self._at = at.copy()
        return self._seq + 1

    def error_of(self, failed: Failed) -> SwiftLoaderError:
        """What to raise for a ticket that could not be made."""
        return error_of(failed, self._recipe.consumer)

    def broke(self, error: BaseException) -> None:
        """The consumer is told at its next call."""
        self._fatal = error

    def worker_pids(self) -> list[int]:
        """There are none."""
        return []

    def statistics(self) -> dict[str, float]:
        """What is worth counting."""
        return kept_statistics(self._recipe.config, [self._cell])

    def tell_notes(self) -> None:
        """Warns of what the user should know."""
        self._notes.tell()

    def abandon(self) -> None:
        """There is nothing to end."""

    def close(self) -> None:
        """Ends the fetching threads."""
        if not self._closed and hasattr(self, "_maker"):
            self._maker.close()
            if (keeps := as_kept(self._dataset)) is not None:
                keeps.close()
        if self._ground is not None:
            self._ground.close()
        self._ground, self._closed = None, True

    def _make(self, ticket: Ticket, berth: HeapBerth) -> Made:
        if ticket.epoch != self._epoch:
            self._epoch = ticket.epoch
            if (set_epoch := self._info.turner(self._dataset)) is not None:
                set_epoch(ticket.epoch)
        return self._maker.make(ticket.seq, ticket.epoch, ticket.step, berth)

    def _as_worker(self, action: Any) -> Any:
        before = set_worker_info(self._info)
        states = self._info.generators.states()
        try:
            return action()
        finally:
            set_worker_info(before)
            put_back(states)
