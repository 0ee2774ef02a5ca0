"""What the consumer is told: errors made of what workers reported and how they ended."""

from __future__ import annotations

import signal

from swift_loader.errors import ConfigError, DataError, FailureReport, SwiftLoaderError, WorkerStartFailed
from swift_loader.pool.dispatch import Failed


def error_of(failed: Failed, consumer: int) -> SwiftLoaderError:
    """What to raise for a ticket that could not be made."""
    report, ticket = failed.report, failed.ticket
    where = f"consumer {consumer}, worker {failed.line.number}, epoch {ticket.epoch}, step {ticket.step}"
    cause = report.exception()
    if isinstance(cause, SwiftLoaderError):
        error = type(cause)(f"{cause} ({where})")
    else:
        sample = "" if report.index is None else f" of sample {report.index}"
        error = DataError(f"{report.stage}{sample} raised {report.type_name}: {report.text} ({where})")
    error.__cause__ = cause
    return error


def start_error(name: str, report: FailureReport) -> SwiftLoaderError:
    """What to raise for a worker that could not build its dataset."""
    cause = report.exception()
    if isinstance(cause, ConfigError):
        return cause
    error = WorkerStartFailed(f"{name} could not {report.stage}: {report.type_name}: {report.text}")
    error.__cause__ = cause
    return error


def ending(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"exited with code {status}"
    return f"was killed by {signal.Signals(-status).name}"
