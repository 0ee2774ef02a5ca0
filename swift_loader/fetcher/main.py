"""The fetcher's life: it becomes a process of nobody's, answers, and ends when nobody has been there for a while."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket

from swift_loader.stores.link import NAME

_LINGER_S = 10.0
_PR_SET_NAME = 15
_MOST_FDS = 4096
_QUEUE = 256


def main(listening_fd: int) -> None:
    """Answers those who ask at this socket."""
    if os.fork():
        os._exit(0)  # who has started us waits for this one alone, and nobody for us
    os.setsid()
    os.chdir("/")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME.encode(), 0, 0, 0)
    os.closerange(3, listening_fd)
    os.closerange(listening_fd + 1, _MOST_FDS)
    os.set_inheritable(listening_fd, False)  # noqa: FBT003 - as it is called
    listening = socket.socket(fileno=listening_fd)
    listening.listen(_QUEUE)  # so that those who connect see who we are
    listening.setblocking(False)  # noqa: FBT003 - as it is called
    from swift_loader.fetcher.service import Service  # noqa: PLC0415 - others connect meanwhile

    linger_s = float(os.environ.get("SWIFT_LOADER_FETCHER_LINGER_S", _LINGER_S))
    asyncio.run(Service(listening, linger_s).run())
    os._exit(0)  # threads of requests that nobody wants any more are not waited for
