"""In the child: what keeps a worker from outliving, disturbing or slowing its trainer.

Runs first in every worker. Knows nothing of orders and parcels.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEEP_NBYTES = 1 << 30
#: The largest that glibc takes.
_MMAP_NBYTES = 32 << 20
_PR_SET_NAME = 15
#: Of at most 1000; a trainer has 0.
_OOM_SCORE = 500
_STANDARD_INPUT, _STANDARD_ERROR = 0, 2

#: Looked up once, before anything is forked: a process that does it again makes all these objects anew, each time.
_libc = ctypes.CDLL(None)
_mallopt, _prctl, _set_handler = (getattr(_libc, name, None) for name in ("mallopt", "prctl", "signal"))
#: Any function that needs nothing and is safe in a handler of a signal.
_harmless = ctypes.cast(_libc.getpid, ctypes.c_void_p)

#: Ctrl-C, a terminal that is gone, and what schedulers send to every process of a job: that it ends, soon or now.
FOR_THE_TRAINER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


def arm(lifeline: int, name: str) -> None:
    """Makes this process a good worker. ``lifeline`` is the read end of a pipe that only the trainer can write to."""
    die_with(lifeline)
    have_standard_streams()
    leave_signals_to_the_trainer()
    keep_memory_warm()
    be_the_first_to_go()
    set_name(name)


def die_with(lifeline: int) -> None:
    """Has the kernel kill this process when the last write end of the pipe closes, whatever it is doing then.

    With it goes its process group: all that the dataset has started, however deep, and that did not leave the group.

    Neither a watching thread (it needs the interpreter lock, which a long C call holds) nor the parent-death signal
    (our parent is the fork server, or a thread of it) would do.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(lifeline, 0)
    if poll.poll(0):  # the trainer went before the kernel was asked to tell
        os._exit(1)


def have_standard_streams() -> None:
    """Opens the null device where the process was started without standard input, output or error.

    Else the next file has that number, and a library that complains to standard error writes into a batch.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(fd, True)  # noqa: FBT003 - the system's own signature
    os.close(fd)


def leave_signals_to_the_trainer() -> None:
    """What tells a job of its end may be sent to every process there is; only the trainer decides what it means.

    Handlers that do nothing, instead of ignoring: programs that the dataset starts get the default back. That a trainer
    ignores the ends of its children, or blocks signals, is its own business too.
    """
    for number in FOR_THE_TRAINER:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup is for all that follows
            _take_no_notice_of(number)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def drop_what_is_the_trainers() -> None:
    """In a copy of the trainer, while signals are blocked: its handlers do not run here, nor is its terminal read.

    What wakes its event loop is shared with it and would wake it for our signals. And whoever reads a terminal from the
    background is stopped.
    """
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            _take_no_notice_of(number)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, _STANDARD_INPUT)
    os.close(null)


def keep_memory_warm() -> None:
    """Keeps the allocator from giving memory back: taking it again faults every page in anew.

    On a decoding workload that was 1.2 million faults, and 2.7 of 6.3 seconds, in the kernel.
    """
    if _mallopt is not None:  # another C library: slower, nothing else
        _mallopt(_M_MMAP_THRESHOLD, _MMAP_NBYTES)
        _mallopt(_M_TRIM_THRESHOLD, _KEEP_NBYTES)
        _mallopt(_M_TOP_PAD, 1 << 20)


def be_the_first_to_go() -> None:
    """Where memory is short, the kernel is to kill a worker, which is replaced, rather than the trainer."""
    with contextlib.suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        try:
            if int(os.read(fd, 20)) < _OOM_SCORE:  # else whoever has forked this one has seen to it
                os.pwrite(fd, b"%d" % _OOM_SCORE, 0)
        finally:
            os.close(fd)


def set_name(name: str) -> None:
    """What ``ps`` and ``top`` show; fifteen characters of it."""
    if _prctl is not None:
        _prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def flush_streams() -> None:
    """Writes what was printed: before a fork, or both would; before an end that does not. Who reads it may be gone."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _take_no_notice_of(number: int) -> None:
    if signal.getsignal(number) is not _do_nothing:
        signal.signal(number, _do_nothing)
        signal.siginterrupt(number, False)  # noqa: FBT003 - the system's own signature
    # That is what Python knows of it. For the kernel, any function does that needs nothing and is safe in a handler:
    # Python's own handlers run on the small stack that faulthandler sets up, which two signals at once overflow where
    # a processor has many registers to save.
    if _set_handler is not None:  # another C library
        _set_handler(int(number), _harmless)


def _do_nothing(_number: int, _frame: object) -> None:
    pass
