"""The board on which a loader shows how it does, for `swift-loader top`: a page of memory that has no name.

The trainer holds its descriptor, so whoever may look at the trainer's descriptors finds it there (`/proc/PID/fd`): this
user, and root. It is gone with the trainer, however that ends. The page is written as a whole with a checksum before
it: a reader who meets a writer reads again. Knows nothing of what is shown.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from dataclasses import dataclass, fields
from typing import Any

from swift_loader.host.memfile import memory_file

#: What `/proc` shows the descriptor as.
NAME = "swift-board"
_NBYTES = 64 * 1024
_HEAD = struct.Struct("<II")
#: A reader that meets a writer so often has met a page that is no board.
_TRIES = 50


@dataclass(frozen=True, slots=True)
class WorkerShown:
    """One worker."""

    number: int
    pid: int
    """0: there is none now."""
    state: str
    stage: str
    index: int
    """The sample in hand; -1: none."""
    ordered: int
    unmerged: int
    """Its batches that wait for earlier ones."""
    still_s: float
    """For how long it has made no progress, though it should."""
    deaths: int
    last_death: str
    server: str
    """Where it is, if it stands for a server,"""
    transit_s: float
    """and how long batches are on their way from there, of late."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One loader. Times are of the monotonic clock, which all processes of a host share."""

    pid: int
    consumer: int
    consumer_count: int
    dataset: str
    batch_size: int
    is_measured: bool
    """Batches are counted: ``benchmark`` is on."""
    began_ns: int
    posted_ns: int
    epoch: int
    step: int
    """What is handed out next."""
    step_count: int
    batches: int
    samples: int
    nbytes: int
    wait_s: float
    recent_s: float
    """The counts that follow are of so long a time before the last batch."""
    recent_batches: int
    recent_samples: int
    recent_nbytes: int
    recent_wait_s: float
    is_waiting: bool
    """The consumer waits for a batch."""
    since_ns: int
    """Since when it does so, or does something else."""
    ready: int
    ready_most: int
    slots: dict[str, int]
    control_fd: int
    """The shared page, in which the workers write what they are at."""
    workers: list[WorkerShown]
    last: list[str]
    """What went wrong last."""
    store: str = ""
    """What was fetched from one, as it was told last."""


class Board:
    """The writer's side. Posting takes no lock: whoever posts sees to it that nobody else does."""

    def __init__(self) -> None:
        fd = memory_file(NAME)
        try:
            os.ftruncate(fd, _NBYTES)
            # Written through a mapping, since a descriptor may be another file's by the time at which it is written to.
            # The mapping keeps one of its own, which is what readers find.
            self._page = mmap.mmap(fd, _NBYTES)
        finally:
            os.close(fd)

    def post(self, shown: Shown) -> None:
        """Shows this from now on."""
        told = _told(shown)
        text = json.dumps(told).encode()
        if len(text) > _NBYTES - _HEAD.size:  # hundreds of workers
            text = json.dumps({**told, "workers": [], "last": []}).encode()
        if not self._page.closed:
            self._page[: _HEAD.size + len(text)] = _HEAD.pack(len(text), zlib.crc32(text)) + text

    def close(self) -> None:
        """Takes it down; may be called twice."""
        self._page.close()


def read(fd: int) -> Shown | None:
    """What is shown there; None if that is not to be had, or was written by another version."""
    for _ in range(_TRIES):
        page = os.pread(fd, _NBYTES, 0)
        if len(page) < _HEAD.size:
            return None
        nbytes, checksum = _HEAD.unpack_from(page)
        text = page[_HEAD.size : _HEAD.size + nbytes]
        if len(text) == nbytes and nbytes and zlib.crc32(text) == checksum:
            return _shown(json.loads(text))
    return None


_NAMES, _NAMES_OF_WORKER = (tuple(field.name for field in fields(kind)) for kind in (Shown, WorkerShown))


def _told(shown: Shown) -> dict[str, Any]:
    """For JSON; a fifth of what `dataclasses.asdict` takes, which copies all that it meets."""
    workers = [{name: getattr(worker, name) for name in _NAMES_OF_WORKER} for worker in shown.workers]
    return {**{name: getattr(shown, name) for name in _NAMES}, "workers": workers}


def _shown(told: Any) -> Shown | None:
    if not isinstance(told, dict) or set(told) != set(_NAMES):
        return None
    try:
        return Shown(**{**told, "workers": [WorkerShown(**worker) for worker in told["workers"]]})
    except TypeError:
        return None
