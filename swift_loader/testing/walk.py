"""Going through a dataset in workers, for no longer than was said, whatever it does there."""

from __future__ import annotations

import _thread
import contextlib
import os
import re
import sysconfig
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from swift_loader.errors import FailureReport, LoaderClosed, SwiftLoaderError, WorkerError
from swift_loader.loader import SwiftLoader
from swift_loader.plan.plan import Fingerprint
from swift_loader.testing.probe import Look, Probe, Seen, as_they_are
from swift_loader.testing.subject import Subject
from swift_loader.travel.payload import Unsendable, pack
from swift_loader.travel.preload import modules_to_preload
from swift_loader.worker.patience import asks_singly

#: After so many samples that cost a worker its life nothing new is learnt.
_MOST_LOSSES = 3
COMMON_HASH_SEED = "1"


class Blocked(Exception):
    """What was asked for cannot be looked at; says why."""


class CannotStart(Blocked):
    """The dataset could not be built in a worker."""

    def __init__(self, text: str, detail: str) -> None:
        place = place_in(detail)
        super().__init__(f"{text}{f', at {place}' if place else ''}")
        self.detail = detail


class NotInTime(CannotStart):
    """The dataset was not built when the time was up."""


@dataclass(frozen=True)
class Visits:
    """A plan: which samples are looked at, epoch by epoch."""

    epochs: tuple[tuple[int, ...], ...]
    size: int = 1

    def step_count(self, epoch: int, consumer: int) -> int:  # noqa: ARG002 - there is one consumer
        return -(-len(self._of(epoch)) // self.size)

    def indices(self, epoch: int, consumer: int, first: int, count: int) -> list[list[int]]:  # noqa: ARG002 - as above
        of, size = self._of(epoch), self.size
        return [list(of[at : at + size]) for at in range(first * size, len(of), size)][:count]

    def fingerprint(self) -> Fingerprint:
        return {"plan": "Visits"}

    def _of(self, epoch: int) -> tuple[int, ...]:
        return self.epochs[epoch] if epoch < len(self.epochs) else ()


@dataclass(frozen=True, slots=True)
class Loss:
    """A sample that cost a worker its life."""

    index: int
    how: str
    """Such as "was killed by SIGSEGV"."""
    detail: str


@dataclass(slots=True)
class Walk:
    """What was seen on the way."""

    seen: list[Seen] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    is_whole: bool = False
    """It came to its end."""

    def of(self, epoch: int) -> list[Seen]:
        """What came of one epoch, without the samples that raised."""
        return [one for one in self.seen if one.epoch == epoch and one.failure is None]


@dataclass(frozen=True, slots=True)
class Manner:
    """How to go."""

    workers: int = 1
    threads: int = 1
    look: Look = field(default_factory=Look)
    meanwhile: Callable[[SwiftLoader, int], None] | None = None
    """Called after each step."""
    hash_seed: str = ""
    """As PYTHONHASHSEED, in interpreters of their own; else all walks have the same."""


def walk(subject: Subject, visits: Visits, manner: Manner, patience_s: float, until_s: float) -> Walk:
    """Looks at the samples of ``visits``; one that does not come for ``patience_s`` costs its worker its life.

    Raises:
        CannotStart: if no worker could build the dataset before ``until_s``, on the monotonic clock.
    """
    settings: dict[str, Any] = {
        **{name: subject.settings[name] for name in _KEPT if name in subject.settings},
        "plan": visits,
        "collate_fn": as_they_are,
        "random_per": "sample",
        "worker_threads": manner.threads,
        "timeout_s": patience_s,
        "max_attempts": 1,
        "validate": False,
        "benchmark": False,
    }
    if subject.config.start_method == "auto":  # looked at as where no copy of the script can be made
        settings["start_method"] = "forkserver"
    if manner.hash_seed:
        settings["start_method"] = "spawn"
    if manner.meanwhile is not None:
        settings |= {"data_queue_size": 1, "message_queue_size": 1, "max_buffer_size": 0, "max_attempts": 3}
    singly = manner.threads > 1 or asks_singly(subject.config)  # as the user's own loader would
    kwargs = {"source": subject.source, "modules": _modules(subject), "look": manner.look, "singly": singly}
    found = Walk()
    with (
        quietly(),
        _hashing(manner.hash_seed),
        SwiftLoader(Probe, kwargs, visits.size, 1, manner.workers, **settings) as loader,
    ):
        start(loader, until_s)
        with closed_at(loader, until_s + patience_s):
            found.is_whole = all(_go(loader, manner, found, until_s) for _ in visits.epochs)
    return found


@contextlib.contextmanager
def _hashing(seed: str) -> Iterator[None]:
    """Interpreters that are started meanwhile have this seed of hashes, or the user's, or one that all walks have."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = seed or before or COMMON_HASH_SEED
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before


#: What of the user's settings matters to a dataset alone.
_KEPT = ("seed", "start_method", "share_dataset", "worker_init", "memory_budget")


def _go(loader: SwiftLoader, manner: Manner, found: Walk, until_s: float) -> bool:
    """One epoch; False if there is no going on."""
    batches, step = iter(loader), 0
    while True:
        try:
            found.seen += next(batches)
        except StopIteration:
            return True
        except LoaderClosed:
            return False
        except SwiftLoaderError as error:
            found.losses.append(_loss(error))
        if manner.meanwhile is not None:
            manner.meanwhile(loader, step)
        step += 1
        if monotonic() > until_s or len(found.losses) >= _MOST_LOSSES:
            return False


def start(loader: SwiftLoader, until_s: float) -> None:
    """Starts ``loader`` if that does not take longer than it may.

    Raises:
        CannotStart: if it does, or cannot be done at all.
    """
    begun = monotonic()
    with closed_at(loader, until_s), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", RuntimeWarning)  # ours
        try:
            loader.start(0)
        except LoaderClosed:
            stack = "\n".join(str(one.message) for one in warned)
            told = f"no worker has built it within {monotonic() - begun:.1f} s, all the time there was"
            raise NotInTime(told, stack) from None
        except SwiftLoaderError as error:
            raise CannotStart(first_line(str(error)), f"{error}\n{error.__cause__ or ''}") from error


@contextlib.contextmanager
def closed_at(loader: SwiftLoader, until_s: float) -> Iterator[None]:
    """Has ``loader`` closed by another thread if the block takes longer: then it raises LoaderClosed.

    The thread that waits is none of `threading`'s, which start_method="fork" would refuse: it holds no lock meanwhile,
    nor the loader, which it may outlive by a moment. Only where the time is up it starts one, to close the loader.
    """
    known = weakref.ref(loader)
    leave, left = _thread.allocate_lock(), _thread.allocate_lock()
    leave.acquire(timeout=0)
    left.acquire(timeout=0)
    closers: list[threading.Thread] = []

    def watch() -> None:
        late = None if leave.acquire(timeout=max(0.0, until_s - monotonic())) else known()
        if late is not None:
            closers.append(threading.Thread(target=late.close, name="swift-closer", daemon=True))
            closers[0].start()
        left.release()

    _thread.start_new_thread(watch, ())
    try:
        yield
    finally:
        leave.release()
        left.acquire(timeout=10)
        for closer in closers:
            closer.join(timeout=10)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings of a loader that is made to suffer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def first_line(text: str) -> str:
    """The first line of a message, without the stack behind it, and without numbers that say nothing here."""
    line = text.partition("\n")[0].partition(". Its last stack:")[0].partition(". Its threads")[0]
    line = re.sub(r"swift-worker-\w+( \(pid \d+\))?", "a worker", line)
    return re.sub(r" \(consumer \d+, worker \d+, epoch \d+, step \d+\)", "", line)


def _loss(error: SwiftLoaderError) -> Loss:
    text = str(error)
    place = place_in(text)
    told = (isinstance(error, WorkerError) and error.how) or first_line(text)
    return Loss(-1 if error.index is None else error.index, f"{told}{f', at {place}' if place else ''}", text)


def told_failure(failure: FailureReport) -> str:
    """An error of the user's code, with its line."""
    place = place_in(failure.traceback)
    return f"{failure.type_name}: {failure.text}{f', at {place}' if place else ''}"


_LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib")} | {"<frozen"})


def place_in(stack: str) -> str:
    """The line of the user's code at which a stack of faulthandler's, or a traceback, stands."""
    # faulthandler prints the innermost frame first, a traceback last; ours are around the user's in both.
    frames = re.findall(r'File "([^"]+)", line (\d+)(?:,)? in (\S+)', stack)
    if "most recent call last" in stack:
        frames.reverse()
    frames = [frame for frame in frames if not frame[0].startswith(_LIBRARIES) and "/swift_loader/" not in frame[0]]
    if not frames:
        return ""
    path, line, function = frames[0]
    return f"{path.rpartition('/')[2]}:{line} in {function}"


def _modules(subject: Subject) -> tuple[str, ...]:
    """What the fork server would load ahead for the dataset itself."""
    if subject.config.start_method == "fork":
        return ()
    try:
        packed = pack(subject.recipe)
    except Unsendable:
        return ()
    try:
        return tuple(modules_to_preload(packed))
    finally:
        os.close(packed.fd)
