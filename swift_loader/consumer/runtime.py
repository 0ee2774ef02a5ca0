"""A loader that was started: the data path as the consumer's thread sees it.

    A-F   tickets, orders, workers, parcels                   pool/
    G     parcels are merged in step order                    orders/merge.py
    H     the parcel lands: views of its slot become tensors  consumer/dock.py -> device/; for a device that
                                                              has streams, on a thread of its own: device/landing.py
    I     the batch is handed out, the wait is noted          `Runtime.next_batch`
    J     the batch is dropped, its slot goes home            orders/lease.py

Knows where in the stream of batches the consumer is; the user's side of it (arguments, when to start) is `loader`'s.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from swift_loader.consumer import ranks
from swift_loader.consumer.course import Course
from swift_loader.consumer.dock import Dock, landed
from swift_loader.consumer.flight import FlightRecorder
from swift_loader.consumer.inline import InlinePool
from swift_loader.consumer.leftout import LeftOut
from swift_loader.consumer.supply import Supply
from swift_loader.consumer.surprises import surprises
from swift_loader.consumer.witness import Witness, standing
from swift_loader.device.landing import Landing
from swift_loader.device.stage import Stage, StageAhead
from swift_loader.engines.choose import sites_for
from swift_loader.errors import (
    DataError,
    LayoutError,
    LoaderClosed,
    NoRoom,
    PoisonedTicket,
    ShardError,
    SwiftLoaderError,
)
from swift_loader.host.systems import in_forked_children
from swift_loader.host.warn import warn_user
from swift_loader.orders.tickets import Delivery, Failed
from swift_loader.plan.plan import Plan
from swift_loader.plan.position import Position, Setting, State
from swift_loader.plan.runs import Runs
from swift_loader.pool.failures import place_of
from swift_loader.pool.process import servers_at
from swift_loader.pool.reuse import with_memory
from swift_loader.telemetry import Measured, Moments, rank_table, report
from swift_loader.telemetry.ranges import profiled
from swift_loader.wire.facts import Facts, wants_runs
from swift_loader.wire.recipe import Recipe

if TYPE_CHECKING:
    from swift_loader.consumer.source import Source
    from swift_loader.pool.process import Site
    from swift_loader.pool.view import Onlooker
    from swift_loader.settings.loader import LoaderConfig

_running: WeakSet[Runtime] = WeakSet()


def _leave_to_the_parent() -> None:
    """In a forked child: the threads that serve a loader are not here, and their locks may be closed for ever."""
    for runtime in _running:
        if not runtime.closed:
            runtime.closed = True
            runtime.why_closed = (
                f"this loader runs in process {runtime.pid}, and this is {os.getpid()}, a child forked from it: "
                "make another loader here"
            )


in_forked_children(_leave_to_the_parent)


class Runtime:
    """A loader that was started: its source of deliveries, its stage, and where it is in the stream."""

    closed = False
    why_closed = "this loader was closed; make another one"
    plan: Plan | None = None
    _is_adrift = False
    """The consumer's thread was interrupted as it took a batch, which may be in nobody's hands now."""

    def __init__(self, recipe: Recipe, stage: Stage, starves: str = "consumer") -> None:
        recipe, self._memory = with_memory(recipe)
        is_inline = recipe.config.is_inline
        sites = [] if is_inline else sites_for(recipe)
        recipe = recipe.with_workers(sum(site.lines for site in sites))
        config = recipe.config
        self.pid = os.getpid()
        self.course = Course(recipe.consumer)
        self._left_out = LeftOut(config.max_skipped, recipe.consumer)
        self.recipe = recipe
        self._stage = stage
        self._witness = Witness(recipe, starves, servers_at(sites))
        self._supply = Supply(recipe.dataset, recipe.consumer, config.worker_count, self._witness.supplied)
        self.flight = FlightRecorder(recipe)
        self.looks = recipe.config.measures
        """Whether what batches cost is noted; if not, nobody looks at the clock."""
        self._landing: Landing[Delivery] | None = None
        self._agreement: ranks.Agreement | None = None
        self._figures: ranks.Figures | None = None
        if is_inline:
            self._source: Source = InlinePool(recipe)
        else:
            self._source = _pool_of_workers(recipe, sites, self._witness)
            if isinstance(stage, StageAhead):
                dock = Dock(self._source, stage, looks=self.looks)
                self._landing = Landing(stage, dock, f"swift-landing-c{recipe.consumer}", self._witness.lane_of)
        try:
            self._witness.open()
            self._witness.watch(self._source.view)
        except BaseException:
            self.close()
            raise
        _running.add(self)

    @property
    def consumer(self) -> int:
        return self.recipe.consumer

    def open(self, ordinal: str) -> None:
        try:
            self.plan = self._source.open()
        except (DataError, LayoutError, NoRoom, PoisonedTicket, ShardError) as error:  # the first batch
            raise self._told(error, 0, 0) from error.__cause__
        except SwiftLoaderError as error:
            self._witness.failed(error)
            raise
        self._supply.begin(self._source.fetching)
        config = self.recipe.config
        self._agreement = ranks.Agreement(self.consumer, ordinal, self._source.broke)
        self._agreement.check(self.plan.fingerprint(), config.consumer_count)
        if self.looks:
            self._figures = ranks.Figures.of_world(self.consumer, config.consumer_count, ordinal)
        self._stage.open()
        for surprise in surprises(self.plan, config, self.consumer, self.recipe.dataset_name):
            warn_user(surprise, UserWarning)
        self._witness.info("started", workers=config.worker_count, steps=self.plan.step_count(0, self.consumer))

    def begin(self) -> int:
        """An iteration takes its first batch; gives back how many there are."""
        assert self.plan is not None
        self.end()  # an epoch that was left early counts for itself
        course = self.course
        course.iteration += 1
        if course.position != course.begins.position:
            self._go_to(course.begins.position)
        if self._landing is not None:
            self._landing.start()
        left = course.begin_epoch(self.plan)
        self._supply.begin_epoch()
        self._witness.begin_epoch(course.position, course.step_count)
        if left == 0:  # an epoch without a batch is over as it begins
            self._go_to(course.begins.position)
        return left

    def _go_to(self, position: Position) -> None:
        first = self._source.restart(position)
        if self._landing is not None:
            self._landing.restart(first)
        self.course.position = position.copy()
        self._is_adrift = False

    @property
    def sample_count(self) -> int:
        """As the workers have counted them."""
        return self._source.sample_count

    def next_batch(self, busy_ns: int) -> Any:
        """Takes a delivery, lands it and notes what it cost."""
        looks = self.looks
        asked = perf_counter_ns() if looks else 0
        if looks and self._witness.live is not None:
            self._witness.live.asked(asked)
        if self._is_adrift:
            self._go_to(self.course.position)
        landing = self._landing
        try:
            with profiled("wait for data"):
                delivery = self._source.take(self._stage.settle) if landing is None else landing.take()
            self.course.took(delivery.ticket.step)
        except BaseException as error:
            self._is_adrift = not isinstance(error, SwiftLoaderError)  # ours come in place of a batch
            self._witness.failed(error)
            raise
        if isinstance(delivery, Failed):
            raise self._told(self._source.error_of(delivery), delivery.ticket.epoch, delivery.ticket.step)
        came = perf_counter_ns() if looks else 0
        try:
            with profiled("transfer to device"):
                batch = landed(delivery, self._stage, looks=looks) if landing is None else landing.hand_out(delivery)
        except DataError as error:  # objects that could not be unpickled
            unreadable = DataError(f"{error} ({place_of(delivery, self.consumer)})")
            raise self._told(unreadable, delivery.ticket.epoch, delivery.ticket.step) from error.__cause__
        ticket, parcel = delivery.ticket, delivery.parcel
        self.course.handed(ticket.epoch, ticket.step, parcel.rows)
        if parcel.attachment is not None and parcel.attachment.skipped:
            self._leave_out(parcel.attachment.skipped, ticket.epoch, ticket.step)
        if looks:
            self._witness.note(delivery, Moments(delivery.came_ns, asked, came, perf_counter_ns()), busy_ns)
        return batch

    def _told(self, error: SwiftLoaderError, epoch: int, step: int) -> SwiftLoaderError:
        error.replay = self.flight.command(epoch, step)
        if self.flight.trouble is not None:
            error.add_note(self.flight.trouble)
        self._witness.failed(error)
        return error

    def _leave_out(self, skipped: list[tuple[int, str]], epoch: int, step: int) -> None:
        for index, reason in skipped:
            self._witness.warning("a sample was left out", index=index, reason=reason)
        with self._witness.telling():
            self._left_out.add(skipped, epoch, step)

    def end(self) -> None:
        """An iteration has come to its end: what was noted of it is summed up, and told to the other ranks."""
        self._look_around()
        standing = self._witness.end_epoch(self.course.epoch)
        if standing is not None and self._figures is not None:
            self._figures.tell(standing)

    def _look_around(self) -> None:
        if self.looks and not self.closed:
            counted = {**self._source.statistics(), **self._supply.figures()}
            self._witness.sees(counted, self._source.worker_pids())

    def report(self) -> str:
        """The last epoch that was summed up, or the first one so far, as a page of 80 columns."""
        if not self.recipe.config.benchmark:
            return "swift_loader: nothing was measured, since benchmark=False"
        self._look_around()
        account = self._witness.account()
        return "swift_loader: nothing to report yet: no batch was handed out" if account is None else report(account)

    def measured(self) -> Measured | None:
        """What a prediction starts from (`swift_loader.telemetry.predict`); None where nothing was measured."""
        account = self._witness.account()
        return None if account is None else account.measured

    def rank_table(self, timeout_s: float) -> str:
        """Every consumer's newest epoch, as a table; waits so long for those that are behind this one."""
        account = self._witness.account()
        mine = None if account is None else standing(account)
        standings = [mine] if self._figures is None else self._figures.all(mine, timeout_s)
        return rank_table(standings)

    def settings(self) -> dict[str, Setting]:
        """All that decides which batches there are."""
        assert self.plan is not None
        return settings_of(self.plan, self.recipe.config)

    def resume(self, state: State) -> None:
        """Has the next iteration begin where the state was taken; the one that goes on ends."""
        state.refuse_other(self.settings())
        self.course.resume(state)
        if self.course.position != state.position:
            self._go_to(state.position)  # at once, so that workers turn to it now

    def worker_pids(self) -> list[int]:
        return self._source.worker_pids()

    def statistics(self) -> dict[str, float]:
        if os.getpid() != self.pid:  # what was counted is behind locks of the parent
            raise LoaderClosed(self.why_closed)
        return {
            **self._witness.statistics(),
            **self._source.statistics(),
            **self._supply.figures(),
            "samples_skipped": self._left_out.count,
            "epoch": self.course.epoch,
        }

    def abandon(self) -> None:
        self._witness.hide()
        if self._landing is not None:
            self._landing.abandon()
        self._source.abandon()
        if self._memory is not None:
            self._memory.abandon()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.abandon()  # first: whatever interrupts what follows (a second Ctrl-C), all comes to its end by itself
        if self._agreement is not None:
            self._agreement.close()
        if self._landing is not None:
            self._landing.close()
        self._source.close()
        if self._memory is not None:
            self._memory.close()
        self._stage.close()
        self.end()
        self._supply.close()
        self._witness.close()
        self._source.tell_notes()  # last, since a user may have made warnings errors

    def __repr__(self) -> str:
        at = self.course.position
        return f"consumer {self.consumer}, epoch {at.epoch}, step {at.step}"


def settings_of(plan: Plan, config: LoaderConfig) -> dict[str, Setting]:
    """All that decides which batches there are, by the names of the public settings."""
    return {**plan.fingerprint(), "random_per": config.random_per}


def refuse_other_settings(loaded: State, config: LoaderConfig, seed: int) -> None:
    """Compares all but the dataset's length and runs, which are known when it was built: in `start`."""
    if not loaded.settings:
        return
    count = int(loaded.settings.get("len(dataset)", 1))
    runs = Runs([count]) if "runs" in loaded.settings else None
    plan = Recipe(None, {}, None, config, seed if loaded.seed is None else loaded.seed, 0).plan(Facts(count, runs))
    here = settings_of(plan, config)
    if not wants_runs(config.plan):
        loaded.refuse_other({name: loaded.settings[name] if name == "runs" else here[name] for name in here})
    if loaded.settings.get("nb_consumer") != config.consumer_count and config.random_per == "batch":
        warn_user(
            f"the state is of {loaded.settings.get('nb_consumer')} consumers and goes on with "
            f"{config.consumer_count}: the same samples, but other random numbers. random_per='sample' keeps them",
            UserWarning,
        )


def _pool_of_workers(recipe: Recipe, sites: Sequence[Site], onlooker: Onlooker) -> Source:
    # What these import is not there on other systems, where the rest of the package works.
    from swift_loader.pool.budget import budget_of  # noqa: PLC0415
    from swift_loader.pool.pool import Pool  # noqa: PLC0415

    config = recipe.config
    return Pool(recipe, sites, budget_of(config.memory_budget, config.consumer_count), onlooker)
