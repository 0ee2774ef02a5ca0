"""What the consumer is told: errors made of what workers reported and how they ended."""

from __future__ import annotations

import signal

from swift_loader.errors import ConfigError, DataError, FailureReport, SwiftLoaderError, WorkerStartFailed
from swift_loader.pool.dispatch import Delivery, Failed

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
        error = type(cause)(f"{cause} ({where})")
    else:
        sample = "" if report.index is None else f" of sample {report.index}"
        error = DataError(f"{report.stage}{sample} raised {report.type_name}: {report.text} ({where})")
    error.__cause__ = cause
    return error


def place_of(delivery: Delivery, consumer: int) -> str:
    """Where in the job a delivery belongs, in words."""
    ticket = delivery.ticket
    return f"consumer {consumer}, worker {delivery.line.number}, epoch {ticket.epoch}, step {ticket.step}"


def start_error(name: str, report: FailureReport) -> SwiftLoaderError:
    """What to raise for a worker that could not build its dataset."""
    cause = report.exception()
    if isinstance(cause, ConfigError):
        return cause
    hint = _OF_GETATTR if report.type_name == "RecursionError" else ""
    error = WorkerStartFailed(f"{name} could not {report.stage}: {report.type_name}: {report.text}{hint}")
    error.__cause__ = cause
    return error


def ending(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # one of the real-time signals, of which only the first and the last have names
        return f"was killed by signal {-status}"


def other_length(name: str, found: int, first: int) -> ConfigError:
    """Workers have built datasets that are not the same."""
    return ConfigError(
        f"the dataset's len() is {found} in {name} and {first} in the first worker: it must be the same wherever the "
        "dataset is built"
    )


def too_large_at_once(name: str, nbytes: int, most: int) -> WorkerStartFailed:
    """A worker would have to be replaced after each batch."""
    return WorkerStartFailed(
        f"{name} has taken {nbytes:,} bytes after its first batch, and max_worker_nbytes is {most:,}: each worker "
        "would be replaced at once. Raise it above what a worker needs"
    )
