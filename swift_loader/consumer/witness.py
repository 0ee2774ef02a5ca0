"""Looks on while batches are handed out: keeps the log, the benchmark and the trace of one consumer.

Knows deliveries and the rooms that write; the runtime tells it what happened, and it never changes what happens.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from swift_loader.batch.layout import BatchSpec
from swift_loader.consumer.live import Live
from swift_loader.errors import ConfigError, SwiftLoaderError
from swift_loader.host.procfs import own_nbytes
from swift_loader.orders.tickets import Full
from swift_loader.plan.position import Position
from swift_loader.pool.view import Lane, View
from swift_loader.telemetry import Account, BatchRecord, Late, Log, Moments, Owner, Recorder, Standing, Trace, report
from swift_loader.telemetry.report import fetched
from swift_loader.telemetry.statistics import figures
from swift_loader.telemetry.summary import Summary
from swift_loader.telemetry.surroundings import Moment, Surroundings
from swift_loader.telemetry.verdict import verdict
from swift_loader.wire.recipe import Recipe


class Witness:
    """What one consumer keeps of what it sees. Looks on at the pool too: see `swift_loader.pool.view.Onlooker`."""

    def __init__(self, recipe: Recipe, starves: str = "consumer", servers: Mapping[int, str] | None = None) -> None:
        self._recipe = recipe
        self._starves = starves
        """What waits where data is late, as a report calls it."""
        self._servers = servers or {}
        """Which of the workers are servers, and where."""
        self._spec: BatchSpec | None = None
        """How the last batch lay in memory."""
        self._log: Log | None = None
        self._recorder: Recorder | None = None
        self._trace: Trace | None = None
        self.live: Live | None = None
        """What `swift-loader top` is shown."""
        self._is_noted = False
        """Batches of the current epoch were noted that are in no summary."""
        self._begun: Moment | None = None
        self._steps = 0
        """Of the epoch that goes on, or was last."""
        self._workers_nbytes: tuple[int, ...] = ()
        self._free_nbytes: int | None = None
        self._counted: Mapping[str, float] = {}
        self._account: Account | None = None
        """Of the epoch that was summed up last."""

    def open(self) -> None:
        """Opens the files that the settings name."""
        config, consumer = self._recipe.config, self._recipe.consumer
        log = config.log
        if log is not None:
            self._log = Log(log.path, stdout=log.stdout, level=log.level, consumer=consumer)
        if config.benchmark:
            path = _path_of_consumer(config.benchmark_file, self._recipe)
            self._recorder = Recorder(consumer, path, self._log)
        if config.trace_file is not None:
            self._trace = Trace(str(_path_of_consumer(config.trace_file, self._recipe)), consumer, self._servers)

    def watch(self, view: View | None) -> None:
        """Shows the loader to `swift-loader top`, where that can be done."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError, ConfigError):
                self.live = Live(self._recipe, view)

    def lane_of(self, thread: str) -> Lane | None:
        """See `Onlooker`."""
        return None if self._trace is None else self._trace.lane(thread)

    def begin_epoch(self, at: Position, step_count: int) -> None:
        """The consumer begins an epoch, or goes on with one: from here on counts what uses the cores."""
        self._steps = step_count
        if self._recorder is not None:
            self._begun = Moment.now()
        if self.live is not None:
            self.live.begin_epoch(at.epoch, at.step, step_count)

    def failed(self, error: BaseException) -> None:
        """A batch could not be had, or the workers not be started."""
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        if self.live is not None:
            self.live.tell(said)
        if self._log is not None:
            self._log.error(said)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """If what is done in here fails, that is told of."""
        try:
            yield
        except SwiftLoaderError as error:
            self.failed(error)
            raise

    @property
    def looks(self) -> bool:
        """Whether `note` does anything."""
        return self._recorder is not None or self._trace is not None

    def note(self, delivery: Full, moments: Moments, busy_ns: int) -> None:
        """Notes one batch, in the order in which they are handed out."""
        ticket, parcel, laps = delivery.ticket, delivery.parcel, delivery.laps
        cost = parcel.cost
        # Without a free slot there was no order: of that wait, the worker knows only that it had none.
        slotless_ns = min(delivery.slot_wait_ns, cost.order_wait_ns)
        if slotless_ns:
            waits = {"slot_wait_ns": cost.slot_wait_ns + slotless_ns, "order_wait_ns": cost.order_wait_ns - slotless_ns}
            cost = cost._replace(**waits)
        record = BatchRecord(
            ticket.epoch, ticket.step, delivery.worker, parcel.rows, parcel.nbytes, *cost,
            moments.taken_ns - moments.came_ns, moments.handed_ns - moments.taken_ns,
            moments.taken_ns - moments.asked_ns, busy_ns, laps.decode_ns, laps.transfer_ns,
        )  # fmt: skip
        self._spec = parcel.spec
        if self._recorder is not None:
            self._is_noted = True
            self._recorder.batch(record if laps.device is None else Late(record, laps.device.elapsed_ns))
        if self._trace is not None:
            self._trace.batch(record, moments)
        if self.live is not None:
            wait_ns = moments.taken_ns - moments.asked_ns
            self.live.handed(ticket.step, parcel.rows, parcel.nbytes, wait_ns, moments.handed_ns)

    def sees(self, counted: Mapping[str, float], pids: Sequence[int]) -> None:
        """What the pool counts, and which its workers are: looked at now and then, while they are there."""
        self._counted = counted
        nbytes = [own_nbytes(pid) for pid in pids]
        self._workers_nbytes = tuple(one for one in nbytes if one is not None) or self._workers_nbytes
        if nbytes and sys.platform == "linux":
            from swift_loader.pool.budget import budget_of  # noqa: PLC0415 - what it imports is not there on others

            self._free_nbytes = budget_of(None, self._recipe.config.consumer_count)

    def supplied(self, at_ns: int, figures: Mapping[str, float]) -> None:
        """What was fetched from a store: told now and then, by a thread of its own."""
        if self.live is not None:
            self.live.supplied(fetched(figures))
        if self._trace is not None:
            self._trace.supplied(at_ns, figures)

    def end_epoch(self, epoch: int) -> Standing | None:
        """Sums up what was noted since the last time; gives back what other consumers are to know of it."""
        if self._trace is not None:
            self._trace.end_epoch()
        if self.live is not None:
            self.live.end_epoch()
        recorder, is_noted = self._recorder, self._is_noted
        self._is_noted = False
        if recorder is None or not is_noted:
            return None
        account = self._account = self._account_of(*recorder.summary(), is_whole=True)
        around, measured = account.surroundings, account.measured
        facts = {
            "steps": account.steps,
            "whole": account.summary.batches >= account.steps,
            "cores": measured.cores,
            "cores of others": None if account.is_brief else round(measured.cores_of_others, 3),
            "CPU of consumer_s": 0.0 if around is None else round(around.consumer_cpu_s, 3),
            "verdict": verdict(account),
            **_facts_of_servers(account),
        }
        recorder.epoch(epoch, facts)
        if self._log is not None:  # the page takes longer than ten batches
            self._log.info(report(account))
        return standing(account)

    def account(self) -> Account | None:
        """What is known of the last epoch that was summed up, or of the first one so far; None if that is nothing."""
        if self._account is not None or self._recorder is None or not self._is_noted:
            return self._account
        return self._account_of(*self._recorder.summary(), is_whole=False)

    def _account_of(self, epoch: int, summary: Summary, *, is_whole: bool) -> Account:
        config = self._recipe.config
        owner = Owner(
            self._recipe.consumer, config.consumer_count, config.worker_count, config.worker_threads, self._starves
        )
        around = None if self._begun is None else Surroundings.between(self._begun, Moment.now())
        dtype = "" if self._spec is None else self._spec.largest_dtype
        return Account(
            owner, epoch, is_whole, summary, around, self._workers_nbytes, self._counted, self._steps,
            self._free_nbytes, self._servers, dtype,
        )  # fmt: skip

    def info(self, message: str, **facts: object) -> None:
        """Writes a line to the log, if there is one."""
        if self._log is not None:
            self._log.info(message, **facts)

    def warning(self, message: str, **facts: object) -> None:
        """The same for what should not be."""
        if self._log is not None:
            self._log.warning(message, **facts)

    def heard(self, worker: int, what: str) -> None:
        """See `Onlooker`."""
        if self._log is not None:
            self._log.info(what, worker=worker)

    def lost(self, worker: int, what: str) -> None:
        """See `Onlooker`. Another takes its place, and yet it should not be."""
        if self._log is not None:
            self._log.warning(what, worker=worker)

    def ticked(self) -> None:
        """See `Onlooker`."""
        if self.live is not None:
            self.live.look()

    def statistics(self) -> dict[str, float]:
        """Sums since the start, and shares and rates of the newest epoch, under flat names."""
        if self._recorder is None:
            return {}
        if self._is_noted or self._account is None:
            newest = self._recorder.summary()[1]
        else:
            newest = self._account.summary
        return {**self._recorder.statistics(), **figures(newest, self._servers)}

    def hide(self) -> None:
        """The loader is not shown any more; takes no lock."""
        if self.live is not None:
            self.live.close()

    def close(self) -> None:
        """Writes what is left and lets go of the files; may be called twice."""
        for file in (self._recorder, self._trace, self._log, self.live):
            if file is not None:
                file.close()


def _facts_of_servers(account: Account) -> dict[str, object]:
    if not account.servers:
        return {}
    told = {"batches": "batches", "bytes": "nbytes", "transit_s": "transit_s"}
    return {
        "servers": [
            {"server": address, **{name: round(getattr(share, field), 6) for name, field in told.items()}}
            for address, share in account.of_servers
        ]
    }


def standing(account: Account) -> Standing:
    """What other consumers are to know of an epoch."""
    summary = account.summary
    busy_s = summary.spreads["consumer works"].total_s
    shares = [worker.busy_share for worker in summary.workers]
    return Standing(
        epoch=account.epoch,
        batches=summary.batches,
        samples_per_s=summary.samples_per_s,
        starved_share=summary.starved_share,
        busy_share=busy_s / summary.seconds if summary.seconds > 0 else 0.0,
        workers_busy_share=sum(shares) / len(shares) if shares else 0.0,
        is_so_far=not account.is_whole,
        store_nbytes=account.counted.get("store_rank_nbytes"),
    )


def _path_of_consumer(path: str | None, recipe: Recipe) -> str | None:
    """One file for each consumer."""
    if path is None or recipe.config.consumer_count == 1:
        return path
    whole = Path(path)
    return str(whole.with_name(f"{whole.stem}-{recipe.consumer}{whole.suffix}"))
