"""A worker's end, as it counts for what it had in hand."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from swift_loader.errors import FailureReport, PoisonedTicket, WorkerError


@dataclass(frozen=True, slots=True)
class Death:
    """One worker's end."""

    how: str
    """Who, how and at what, in words."""
    index: int | None = None
    """The sample that it had in hand."""
    stack: str = ""
    is_expected: bool = False
    """It had said that it would leave: nothing is held against what it had in hand."""
    by_kernel: bool = False
    """Memory was short."""
    is_from_outside: bool = False
    """It got a SIGKILL that is neither ours nor, as far as it tells, the kernel's; or nobody knows how it has ended,
    since whoever started it is gone too; or no order reached it. Hardly a sample ends it like that."""
    is_early: bool = False
    """From outside for certain, and it had not finished one sample in its life."""
    lingers: bool = False
    """It was killed and is still there, in the kernel, which may still write to its memory."""
    is_hang: bool = False
    """It was killed since it made no progress."""
    why: str = ""
    """How alone."""
    status: int | None = None
    """Of the process; None where nobody knows, or it is still there."""

    def poisoned(self, deaths: int) -> FailureReport:
        """What is told of a batch or sample that has killed so many workers."""
        which = "Look at that sample alone" if self.index is not None else "Which sample is not known; look at them"
        error = PoisonedTicket(
            f"this batch has killed {deaths} workers; the last: {self.how}. {which}, "
            f"with worker_per_consumer=0{f'. Its last stack:{chr(10)}{self.stack}' if self.stack else ''}"
        )
        return FailureReport.of(self.told_to(error), "make the batch", self.index)

    def told_to(self, error: WorkerError) -> WorkerError:
        """The error, with what is known of the process."""
        error.how, error.stack = self.why, self.stack
        if self.status is not None and self.status >= 0:
            error.exit_status = self.status
        elif self.status is not None:
            error.signal = signal_name(-self.status)
        return error


def signal_name(number: int) -> str:
    """A signal, as the system calls it."""
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals, of which only the first and the last have names
        return f"signal {number}"
