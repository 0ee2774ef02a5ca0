"""What it takes to build the dataset in a worker, and whether it is as long wherever it is built."""

from __future__ import annotations

from collections.abc import Iterator

from swift_loader.telemetry import words
from swift_loader.testing.lab import Lab
from swift_loader.testing.probe import Seen
from swift_loader.testing.report import Finding
from swift_loader.testing.walk import CannotStart, NotInTime

_SLOW_S = 5.0
_LARGE_NBYTES = 500_000_000
_WORTH_TELLING_NBYTES = 1_000_000


def check_building(lab: Lab) -> Iterator[Finding]:
    """Builds it."""
    try:
        walk = lab.first()
    except CannotStart as error:
        remedy = f"build it by itself: {lab.subject.name}"
        if isinstance(error, NotInTime):
            remedy = "raise seconds=, if it takes its time; every worker that is started builds it"
        yield Finding("building", "problem", str(error), remedy, error.detail)
        return
    if not walk.seen:
        yield Finding("building", "skipped", "sample 0 cannot be had")
        return
    built = walk.seen[0].built
    figures = {"seconds": built.seconds, "nbytes": built.nbytes}
    if lab.subject.source.dataset_class is None:
        yield Finding("building", "ok", "workers get copies of a dataset that exists", figures=figures)
        return
    text = f"{words.seconds(built.seconds)} in a worker"
    if built.nbytes > _WORTH_TELLING_NBYTES:
        text = f"{words.seconds(built.seconds)} and {words.nbytes(built.nbytes)} of memory in a worker"
    if lab.subject.config.share_dataset or (built.seconds < _SLOW_S and built.nbytes < _LARGE_NBYTES):
        yield Finding("building", "ok", text, figures=figures)
        return
    yield Finding(
        "building", "advice", f"{text}, and as much in each that is started",
        "share_dataset=True builds it once, for all workers", figures=figures,
    )  # fmt: skip


def check_length(lab: Lab) -> Iterator[Finding]:
    """Compares what ``len`` says in several workers, and asks for the first and the last sample."""
    seen = lab.first().seen
    if seen and seen[0].built.complaint:
        yield Finding("length", "problem", seen[0].built.complaint, "workers need a whole number from 1 on")
        return
    length = lab.length
    walk = lab.closely()
    lengths = sorted({built.length for built in lab.builds})
    if len(lengths) > 1:
        told = ", ".join(f"{one:,}" for one in lengths[:4])
        yield Finding(
            "length", "problem", f"len() is not the same wherever it is built: {told}",
            "make it a function of the arguments: list files in sorted order, draw nothing, count what cannot change",
        )  # fmt: skip
        return
    beyond = [one for one in walk.seen if is_beyond(one, length)]
    if beyond:
        text = f"len() is {length:,}, but sample {beyond[0].index} is not there: {_failure_of(beyond[0])}"
        yield Finding("length", "problem", text, "let len() say how many samples can be asked for")
        return
    yield Finding("length", "ok", f"{length:,} samples wherever it is built", figures={"samples": length})


def _failure_of(seen: Seen) -> str:
    assert seen.failure is not None
    return f"{seen.failure.type_name}: {seen.failure.text}"


def is_beyond(seen: Seen, length: int) -> bool:
    """Whether the last sample is one too many."""
    failure = seen.failure
    return seen.index == length - 1 and failure is not None and failure.type_name in ("IndexError", "KeyError")
