"""Whether a sample is the same whoever makes it, and when: what resuming, replacing workers and debugging rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from swift_loader.testing.lab import Lab, failures
from swift_loader.testing.probe import Built, Seen
from swift_loader.testing.report import Finding, name_of
from swift_loader.testing.walk import Blocked, NotInTime, Walk, told_failure

NAME = "determinism"
_MOST = 3
_WHEN_BUILT = ("__init__", "__setstate__")
_RNG = (
    "draw from swift_loader.worker_info().rng, from random, numpy.random or torch, or from a generator that the "
    "dataset holds: all are seeded for you"
)


def check(lab: Lab) -> Iterator[Finding]:
    """Compares samples of the same epoch that were made twice by one worker, and by others."""
    here = lab.closely()
    again = differing(here.of(0), here.of(0))
    if again:
        yield _finding(again, "not the same when one worker makes it twice", *_why_in_one_worker(lab.builds))
        return
    try:
        apart = lab.apart()
    except NotInTime:
        yield Finding(NAME, "skipped", "the same twice in one worker; to build it in others there was no time left")
        return
    except Blocked as reason:
        yield Finding(NAME, "skipped", f"only in one worker, where nothing differed: {reason}")
        return
    if apart.losses or failures([apart]):
        yield _fails_elsewhere(apart)
        return
    others = apart.of(0)
    elsewhere = differing(here.of(0), others)
    if elsewhere:
        yield _finding(elsewhere, "not the same in another worker", *_why_elsewhere(lab.builds))
        return
    if not others:
        raise Blocked("no sample came")
    yield _repeats(here.of(0), here.of(1))


def differing(some: Iterable[Seen], others: Iterable[Seen]) -> dict[str, list[int]]:
    """The paths of what differs, each with the samples in which it does."""
    known: dict[int, dict[str, int]] = {}
    for one in some:
        known.setdefault(one.index, one.crcs)
    found: dict[str, list[int]] = {}
    for other in others:
        crcs = known.get(other.index, other.crcs)
        for path in crcs.keys() | other.crcs.keys():
            if crcs.get(path) != other.crcs.get(path) and other.index not in found.setdefault(path, []):
                found[path].append(other.index)
    return {path: indices for path, indices in sorted(found.items()) if indices}


def told(paths: dict[str, list[int]]) -> str:
    """What differs, in words."""
    names = [name_of(path) for path in paths]
    more = f" and {len(names) - _MOST} more leaves" if len(names) > _MOST else ""
    indices = sorted({index for of_path in paths.values() for index in of_path})
    leaves = "" if names == ["sample"] else f"{', '.join(names[:_MOST])}{more} of "
    return f"{leaves}{_samples(indices)}"


def _samples(indices: list[int]) -> str:
    if len(indices) == 1:
        return f"sample {indices[0]}"
    more = f" and {len(indices) - _MOST} more" if len(indices) > _MOST else ""
    return f"samples {', '.join(map(str, indices[:_MOST]))}{more}"


def _finding(paths: dict[str, list[int]], what: str, why: str, remedy: str) -> Finding:
    return Finding(NAME, "problem", f"{told(paths)}: {what}. {why}", remedy)


def _fails_elsewhere(apart: Walk) -> Finding:
    what = "with workers killed on the way, "
    remedy = "see that nothing a killed worker leaves behind (a lock file, half a file) is in the way of the others"
    if apart.losses:
        loss = apart.losses[0]
        return Finding(NAME, "problem", f"{what}a worker {loss.how}, at sample {loss.index}", remedy, loss.detail)
    index, one = next(iter(failures([apart]).items()))
    assert one.failure is not None
    return Finding(
        NAME, "problem", f"{what}sample {index} raised {told_failure(one.failure)}", remedy, one.failure.traceback
    )


def _why_in_one_worker(builds: list[Built]) -> tuple[str, str]:
    built = builds[0]
    calls = [call for call in built.calls if not call.endswith(_WHEN_BUILT)]
    if calls:
        return f"Its code has {', '.join(calls[:2])}, which gives something else each time", _RNG
    remedy = f"make it a function of the index. If it draws: {_RNG}"
    if built.ways:
        remedy += f". A transform that the dataset does not hold can be seeded before it is used: {built.ways[0]}"
    why = "It keeps something from sample to sample, reads what changes, or draws from a generator that is not seeded: "
    return why + "one that neither it nor the code of its own modules holds", remedy


def _why_elsewhere(builds: list[Built]) -> tuple[str, str]:
    calls = [call for call in builds[0].calls if call.endswith(_WHEN_BUILT)]
    code = f": its code has {', '.join(calls[:2])}" if calls else ""
    why = f"So what __init__ makes differs from worker to worker{code}. Usual reasons: random numbers or the time, or "
    why += "files that were not sorted"
    remedy = "have __init__ make the same wherever it runs: sort, and draw with a fixed seed that is an argument"
    if builds[0].generators:
        why += f"; or what is drawn once, at first use, from {builds[0].generators[0]}, which is seeded for each sample"
        remedy += ". What all samples share is drawn in __init__ or in set_epoch"
    return why, remedy


def _repeats(first: list[Seen], next_epoch: list[Seen]) -> Finding:
    text = f"the same bytes twice in one worker, and in others while workers were killed ({len(first)} samples)"
    drawn = sorted({name for one in first for name in one.drew_from})
    if not drawn:
        return Finding(NAME, "ok", text)
    names = " and ".join(drawn)
    if next_epoch and not differing(first, next_epoch):
        return Finding(
            NAME, "advice", f"{text}. It draws from {names}, and yet the next epoch is the same: it seeds by itself",
            "take that seeding out, and each epoch gets numbers of its own, which can be had again",
        )  # fmt: skip
    return Finding(NAME, "ok", f"{text}; it draws from {names}, anew in each epoch")
