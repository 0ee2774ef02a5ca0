"""Whether the real loader, with the real settings, delivers all of it while its workers are killed and stopped."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from time import monotonic
from typing import Any

from swift_loader.errors import SwiftLoaderError
from swift_loader.host.procfs import open_files
from swift_loader.loader import SwiftLoader
from swift_loader.telemetry import words
from swift_loader.testing.lab import Lab
from swift_loader.testing.nemesis import Nemesis
from swift_loader.testing.oracle import Delivered, delivered, differences
from swift_loader.testing.report import Finding
from swift_loader.testing.subject import Subject
from swift_loader.testing.walk import Blocked, CannotStart, NotInTime, closed_at, first_line, place_in, quietly, start

NAME = "faults"
_FEWEST, _MOST = 6, 24


@dataclass(slots=True)
class _Run:
    batches: list[Delivered] = field(default_factory=list)
    error: str = ""
    detail: str = ""
    longest_s: float = 0.0
    close_s: float = 0.0
    left: list[str] = field(default_factory=list)


def check(lab: Lab) -> Iterator[Finding]:
    """Delivers some batches in peace, and the same again under fire."""
    count = max(_FEWEST, min(_MOST, int(0.1 * lab.left_s / max(1e-6, lab.sample_s * lab.subject.batch_size))))
    peace = _run(lab, count, workers=1, is_under_fire=False, share=0.4)
    if peace.error and lab.told & {"length", "samples", "determinism"}:
        raise Blocked("batches cannot be made of such samples")
    if peace.error:
        yield Finding(NAME, "problem", f"batches cannot be made: {peace.error}", "see samples", peace.detail)
        return
    if len(peace.batches) < 3:
        raise Blocked(f"{len(peace.batches)} batches came in the time there was: raise seconds=")
    fire = _run(lab, len(peace.batches), workers=2, is_under_fire=True, share=0.9)
    if fire.error and "length" in lab.told:
        raise Blocked("a loader refuses workers that differ in length")
    if fire.error:
        told = f"with workers killed and stopped: {fire.error}"
        yield Finding(NAME, "problem", told, "a worker may be replaced at any moment: see that nothing it leaves "
                      "behind (a lock file, half a file) is in the way of the next", fire.detail)  # fmt: skip
        return
    yield _judged(lab, peace, fire)


def _judged(lab: Lab, peace: _Run, fire: _Run) -> Finding:
    figures = {"longest_wait_s": fire.longest_s, "close_s": fire.close_s}
    wrong = differences(fire.batches, peace.batches)
    if lab.told & {"determinism", "threads"}:
        wrong = [told for told in wrong if "bytes" not in told]  # told already
    wrong += [f"close() left {one}" for one in fire.left]
    if wrong:
        text = f"with workers killed and stopped, {'; '.join(wrong)}"
        return Finding(NAME, "problem", text, "see determinism", figures=figures)
    text = (
        f"{len(fire.batches)} batches came complete and in order while a worker was killed, then all of them, then "
        f"one stopped; the longest wait was {words.seconds(fire.longest_s)}, close() took "
        f"{words.seconds(fire.close_s)} and left nothing"
    )
    return Finding(NAME, "ok", text, figures=figures)


def _run(lab: Lab, count: int, *, workers: int, is_under_fire: bool, share: float) -> _Run:
    until_s = lab.until(share)
    settings: dict[str, Any] = {**lab.subject.settings, "timeout_s": lab.patience_s, "benchmark": False}
    if is_under_fire:  # so that faults meet work that is still to be done
        settings |= {"data_queue_size": 1, "message_queue_size": 1, "max_buffer_size": 0}
    run = _Run()
    with quietly(), _leftovers(run):
        with _loader(lab.subject, workers, settings) as loader:
            _go(loader, count, run, (until_s, until_s + lab.patience_s), is_under_fire=is_under_fire)
            begun = monotonic()
            loader.close()
            run.close_s = monotonic() - begun
        del loader
        gc.collect()  # a loader that was closed still holds what its batches may need
    return run


def _go(loader: SwiftLoader, count: int, run: _Run, until_s: tuple[float, float], *, is_under_fire: bool) -> None:
    soft_s, hard_s = until_s
    try:
        start(loader, soft_s)
        with closed_at(loader, hard_s):
            _take(loader, count, run, soft_s, is_under_fire=is_under_fire)
    except NotInTime:
        raise
    except (CannotStart, SwiftLoaderError) as error:
        _note(run, error)


def _loader(subject: Subject, workers: int, settings: dict[str, Any]) -> SwiftLoader:
    source, size = subject.source, subject.batch_size
    if source.dataset_class is None:
        return SwiftLoader.from_dataset(source.dataset, size, 1, workers, **settings)
    return SwiftLoader(source.dataset_class, source.dataset_kwargs, size, 1, workers, **settings)


def _note(run: _Run, error: Exception) -> None:
    if isinstance(error, CannotStart):
        run.error, run.detail = str(error), error.detail
        return
    run.detail = f"{error}\n{error.__cause__ or ''}"
    place = place_in(run.detail)
    run.error = f"{first_line(str(error))}{f', at {place}' if place else ''}"


def _take(loader: SwiftLoader, count: int, run: _Run, until_s: float, *, is_under_fire: bool) -> None:
    kill, stop = Nemesis(loader, seed=1), Nemesis(loader, faults=["stop"], seed=2)
    strikes = {count // 6: (kill, 1), count // 3: (kill, 2), 2 * count // 3: (stop, 1)} if is_under_fire else {}
    batches = chain.from_iterable(repeat(loader))
    asked = monotonic()
    for step, batch in enumerate(batches):
        now = monotonic()
        run.longest_s = max(run.longest_s, now - asked if step else 0.0)
        run.batches.append(delivered(0, step, batch))
        if step + 1 == count or now > until_s:
            return
        if step in strikes:
            nemesis, victims = strikes[step]
            nemesis.strike(victims)
        asked = monotonic()


@contextmanager
def _leftovers(run: _Run) -> Iterator[None]:
    """Looks at what is there after the loader that was not before it."""
    descriptors, threads = _descriptors(), set(threading.enumerate())
    yield
    run.left += [f"a descriptor of {what}" for what in sorted(_descriptors() - descriptors)]
    run.left += [
        f"the thread {thread.name}"
        for thread in set(threading.enumerate()) - threads
        if thread.name.startswith("swift-")
    ]


def _descriptors() -> set[str]:
    """What this process has open, each with its number, but for the server that all loaders share."""
    from swift_loader.engines.nursery import shared  # noqa: PLC0415 - other systems lack what it takes

    return {f"{what} ({number})" for number, what in open_files().items() if number not in shared.fds}
