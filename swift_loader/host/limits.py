"""Why the system has refused another process or thread, and what to do about it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from collections.abc import Iterator

from swift_loader.errors import WorkerStartFailed
from swift_loader.host.cgroup import folders, number


@contextlib.contextmanager
def refusals_told() -> Iterator[None]:
    """What the system refuses inside is a `WorkerStartFailed` that names the limit."""
    try:
        yield
    except OSError as error:
        raise WorkerStartFailed(why_no_process(error.errno)) from error


@contextlib.contextmanager
def file_sizes_told() -> Iterator[None]:
    """A file in memory that may not become so large is a `WorkerStartFailed` that names the limit."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise WorkerStartFailed(
            f"what workers share with this process lies in files in memory, and {limit_of_file_size()}: raise it, or "
            "set worker_per_consumer=0"
        ) from error


def limit_of_file_size() -> str:
    """In words."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return f"files that this process writes may have at most {limit:,} bytes (ulimit -f)"


def why_no_process(number: int | None) -> str:
    """In words, for the error number of a fork or an exec."""
    text = f"cannot start a worker process: {_named(number)}"
    if number == errno.EAGAIN:
        return f"{text}: {_limits()}"
    return f"{text}: {_limit_of_files()}" if number == errno.EMFILE else text


def begin(thread: threading.Thread) -> None:
    """Starts a thread.

    Raises:
        WorkerStartFailed: if the system refuses another one.
    """
    try:
        thread.start()
    except RuntimeError as error:  # there is only one reason
        raise WorkerStartFailed(f"cannot start a thread: {_named(errno.EAGAIN)}: {_limits()}") from error


def _named(number: int | None) -> str:
    return f"{errno.errorcode.get(number or 0, number)}, {os.strerror(number or 0)}"


def _limits() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    named = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    return (
        f"the limit of this user's processes and threads is {named} (ulimit -u){_limit_of_control_group()}. Ask for "
        "fewer workers (worker_per_consumer), end other processes, or raise the limit"
    )


def _limit_of_files() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"the limit of this process's open files is {limit} (ulimit -n). Close files, or raise the limit"


def _limit_of_control_group() -> str:
    limits = [most for group in folders("pids") if (most := number(group / "pids.max")) is not None]
    return f", that of its control group {min(limits)} (pids.max)" if limits else ""
