"""What the consumer is told: errors made of what workers reported and how they ended."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from swift_loader.errors import (
    ConfigError,
    DataError,
    FailureReport,
    PeerError,
    SwiftLoaderError,
    WorkerDied,
    WorkerError,
    WorkerHung,
    WorkerStartFailed,
)
from swift_loader.orders.death import Death, signal_name
from swift_loader.orders.tickets import Delivery, Failed

if TYPE_CHECKING:
    from swift_loader.host.cgroup import OomKills
    from swift_loader.pool.line import Line
    from swift_loader.wire.facts import Facts


_OF_GETATTR = (
    ". If a class of the dataset has a __getattr__ that asks an attribute of self, as in getattr(self.ds, name): that "
    "is not there yet while it is unpickled, so it asks itself for ever. Let it begin with "
    "`if name.startswith('__') or name == 'ds': raise AttributeError(name)`"
)


def error_of(failed: Failed, consumer: int) -> SwiftLoaderError:
    """What to raise for a ticket that could not be made."""
    report, where = failed.report, place_of(failed, consumer)
    cause = report.exception()
    if isinstance(cause, SwiftLoaderError) and type(cause).__module__ == SwiftLoaderError.__module__:
        # Its own words alone: the facts that it shows beside them come with what it has.
        error = type(cause)(f"{cause.args[0] if cause.args else cause} ({where})")
        vars(error).update(vars(cause))
    else:
        sample = "" if report.index is None else f" of sample {report.index}"
        error = DataError(f"{report.stage}{sample} raised {report.type_name}: {report.text} ({where})")
    _, error.epoch, error.step = failed.ticket
    error.__cause__ = cause
    return _with_place(error, report, consumer, failed.worker)


def _with_place(error: SwiftLoaderError, report: FailureReport, consumer: int, worker: int) -> SwiftLoaderError:
    error.consumer, error.worker = consumer, worker
    error.index, error.stage = report.index, report.stage
    return error


def place_of(delivery: Delivery, consumer: int) -> str:
    """Where in the job a delivery belongs, in words."""
    ticket = delivery.ticket
    return f"consumer {consumer}, worker {delivery.worker}, epoch {ticket.epoch}, step {ticket.step}"


def start_error(name: str, report: FailureReport, consumer: int, worker: int) -> SwiftLoaderError:
    """What to raise for a worker that could not build its dataset, or whose server is none."""
    cause = report.exception()
    if isinstance(cause, (ConfigError, PeerError)):
        return cause
    hint = _OF_GETATTR if report.type_name == "RecursionError" else ""
    error = WorkerStartFailed(f"{name} could not {report.stage}: {report.type_name}: {report.text}{hint}")
    error.__cause__ = cause
    return _with_place(error, report, consumer, worker)


def given_up(line: Line, death: Death, consumer: int) -> WorkerError:
    """What to raise for a line whose workers never get anywhere."""
    stack = f". Its last stack:\n{death.stack}" if death.stack else ""
    kind = WorkerHung if death.is_hang else WorkerDied
    error = kind(f"{death.how}; it was started {line.policy.births} times and never got further{stack}")
    error.consumer, error.worker, error.index = consumer, line.number, death.index
    return death.told_to(error)


def ending(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"exited with code {status}"
    return f"was killed by {signal_name(-status)}"


def other_facts(name: str, found: Facts, first: Facts) -> ConfigError:
    """Workers have built datasets that are not the same."""
    if found.sample_count != first.sample_count:
        return ConfigError(
            f"the dataset's len() is {found.sample_count} in {name} and {first.sample_count} in the first worker: it "
            "must be the same wherever the dataset is built"
        )
    return ConfigError(
        f"the dataset's runs() are {found.runs} in {name} and {first.runs} in the first worker: the same lengths, in "
        "the same order, must come wherever the dataset is built"
    )


def too_large_at_once(name: str, nbytes: int, most: int) -> WorkerStartFailed:
    """A worker would have to be replaced after each batch."""
    return WorkerStartFailed(
        f"{name} has taken {nbytes:,} bytes after its first batch, and max_worker_nbytes is {most:,}: each worker "
        "would be replaced at once. Raise it above what a worker needs"
    )


def death_of(line: Line, status: int | None, oom: OomKills) -> Death:
    """How the worker of ``line``, which is gone, has ended."""
    is_unexplained = status in (None, -signal.SIGKILL) and not line.killed_for
    by_kernel = oom.explain() if is_unexplained else ""
    why = line.killed_for or by_kernel or ending(status)
    if is_unexplained and status is not None and not oom.can_tell:
        why += " (perhaps by the kernel, short of memory: dmesg tells)"
    is_from_outside = line.is_cut_off or (is_unexplained and not by_kernel)
    return Death(
        f"{_who(line)} {why} while it {line.where_it_stands()}",
        line.cell.index,
        line.inquiry.last_stack,
        line.is_leaving,
        by_kernel=bool(by_kernel),
        why=why,
        status=status,
        is_hang=line.is_hung,
        is_from_outside=is_from_outside,
        is_early=is_unexplained and is_from_outside and oom.can_tell and not line.has_finished_one,
    )


def lingering(line: Line) -> Death:
    """The worker of ``line`` was killed, and does not go."""
    how = f"{_who(line)} {line.killed_for} while it {line.where_it_stands()}, and cannot be ended"
    return Death(
        how,
        index=line.cell.index,
        why=line.killed_for,
        stack=line.inquiry.last_stack,
        is_expected=line.is_leaving,
        is_from_outside=line.is_cut_off,
        lingers=True,
        is_hang=line.is_hung,
    )


def told_of_lingering(name: str, pid: int) -> str:
    """What the user is told of a process that no signal ends."""
    return (
        f"{name} (pid {pid}) was killed and is still there: it waits in the kernel, as for a file system that does not "
        "answer, and no signal ends that. It is not waited for; its memory is given back when it goes. What it waits "
        f"for: /proc/{pid}/stack and /proc/{pid}/wchan. If that is a file system, umount -f ends it"
    )


def told_of_standstill(line: Line, timeout_s: float) -> str:
    """What the user is told of a worker that makes no progress."""
    kills = f"at timeout_s={timeout_s:g} it is killed and replaced"
    then = (
        kills
        if line.book.takes_orders or line.killed_for
        else "it is waited for, since only you know how long that may take"
    )
    said = f"{_who(line)} {line.where_it_stands()} and has made no progress for {line.policy.still_s:.1f} s; {then}"
    if not line.cell.can_be_asked:
        return f"{said}. It is loading Python and what the loader needs"
    return f"{said}. Its threads are at:\n{line.inquiry.last_stack or 'it does not answer'}"


def _who(line: Line) -> str:
    return f"{line.name} (pid {line.process.pid if line.process is not None else '?'})"
