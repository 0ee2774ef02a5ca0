"""Whether samples come, and whether batches can be made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from swift_loader.batch.layout import Column
from swift_loader.batch.promote import promoted
from swift_loader.telemetry import words
from swift_loader.testing.building import is_beyond
from swift_loader.testing.lab import Lab, failures
from swift_loader.testing.probe import Seen
from swift_loader.testing.report import Finding, name_of
from swift_loader.testing.walk import Loss, Walk, told_failure

NAME = "samples"
_MOST = 3


def check(lab: Lab) -> Iterator[Finding]:
    """Looks at chosen samples one by one."""
    first = lab.first()
    if first.losses and not first.seen:
        yield _lost(lab, first.losses)
        return
    walk = lab.closely()
    bad = [*_what_does_not_come(lab, walk), *_what_does_not_fit(lab, walk)]
    yield from bad
    good = walk.of(0)
    if good:
        yield from _what_is_not_finite(lab, good)
    if good and not bad:
        yield _made_of(lab, good)
    if not bad and not good:
        yield Finding(NAME, "skipped", f"none came within {lab.seconds:g} s", "raise seconds=")


def _what_does_not_come(lab: Lab, walk: Walk) -> Iterator[Finding]:
    seen = failures([lab.first(), walk])
    raised = {index: one for index, one in seen.items() if not is_beyond(one, lab.length)}
    if raised:
        index, one = next(iter(raised.items()))
        assert one.failure is not None
        told = f"sample {index} raises {told_failure(one.failure)}"
        if len(raised) > 1:
            told += f"; {len(raised)} of {len({seen.index for seen in walk.seen})} samples raise"
        remedy = "mend or leave out what cannot be read; on_error='skip' leaves such samples out of their batches"
        yield Finding(NAME, "problem", told, remedy, one.failure.traceback)
    if walk.losses:
        yield _lost(lab, walk.losses)


def _lost(lab: Lab, losses: list[Loss]) -> Finding:
    by_index = {loss.index: f"at sample {loss.index} a worker {loss.how}" for loss in losses}
    told = "; ".join(list(by_index.values())[:_MOST])
    hung = any("no progress" in loss.how for loss in losses)
    remedy = f"look at it alone: dataset[{losses[0].index}]"
    if hung:
        remedy += f". A sample that takes longer than {lab.patience_s:g} s counts as hung here: raise seconds="
    return Finding(NAME, "problem", told, remedy, losses[0].detail)


def _what_does_not_fit(lab: Lab, walk: Walk) -> Iterator[Finding]:
    if lab.subject.config.collate_fn is not None:
        return  # it decides; the batches that it makes are looked at by the check of faults
    good = walk.of(0)
    for one in good:
        if one.unbatchable is not None:
            path, found = one.unbatchable
            text = f"{name_of(path)} of sample {one.index} is a {found}, of which the default collate makes no batch"
            yield Finding(NAME, "problem", text, "give arrays, numbers, text or None, or a collate_fn")
            return
    if good:
        yield from _misfits(lab, good)


def _misfits(lab: Lab, good: list[Seen]) -> Iterator[Finding]:
    first = good[0]
    for one in good[1:]:
        if list(one.columns) != list(first.columns) and set(one.columns) != set(first.columns):
            odd = sorted(set(one.columns) ^ set(first.columns))
            names = ", ".join(map(name_of, odd[:_MOST]))
            text = f"samples {first.index} and {one.index} are not made alike: only one of them has {names}"
            yield Finding(NAME, "problem", text, "give every sample the same keys and lengths, or a collate_fn")
            return
    for path, column in first.columns.items():
        for one in good[1:]:
            if (two := _difference(column, one.columns[path])) is None:
                continue
            where = f"{name_of(path)} has {two[0]} in sample {first.index} and {two[1]} in sample {one.index}"
            if together := _promoted(column, one.columns[path]):
                remedy = f"a batch of both is {together} and one of samples alike is not: make it the same"
                yield Finding(NAME, "advice", where, remedy)
                break
            is_shape = two[0].startswith("shape")
            if is_shape and lab.subject.config.ragged == "list":
                break
            remedy = (
                "ragged='list' makes lists of such leaves; or pad in a collate_fn" if is_shape else "make it the same"
            )
            yield Finding(NAME, "problem", where, remedy)
            break


def _difference(one: Column, other: Column) -> tuple[str, str] | None:
    numbers = {"int64", "float64"}  # Python's, which nobody writes alike
    same_kind = one.name == other.name or (one.shape == other.shape == () and {one.name, other.name} == numbers)
    if one.kind != other.kind or not same_kind:
        return _type_of(one), _type_of(other)
    return None if one.shape == other.shape else (f"shape {one.shape}", str(other.shape))


def _promoted(one: Column, other: Column) -> str | None:
    """What a batch of both is, if they differ in dtype alone and go together."""
    return promoted(one.name, other.name) if one.name != other.name and one.shape == other.shape else None


def _type_of(column: Column) -> str:
    return "text or None" if column.kind == "objects" else f"dtype {column.name}"


def _what_is_not_finite(lab: Lab, good: list[Seen]) -> Iterator[Finding]:
    odd = [one for one in good if one.not_finite]
    if odd and not lab.subject.config.check_finite:
        count = len({one.index for one in odd})
        more = f"; {count} of {len({one.index for one in good})} samples do" if count > 1 else ""
        yield Finding(
            NAME, "advice", f"{odd[0].not_finite}{more}",
            "if that is not meant: check_finite=True makes it an error, and on_error='skip' leaves such samples out",
        )  # fmt: skip


def _made_of(lab: Lab, good: list[Seen]) -> Finding:
    first, size = good[0], lab.subject.batch_size
    nbytes = sum(one.nbytes for one in good) / len(good)
    parts = ", ".join(_part(path, column) for path, column in islice(first.columns.items(), _MOST))
    if len(first.columns) > _MOST:
        parts += f" and {len(first.columns) - _MOST} more"
    count = len({one.index for one in good})
    text = f"{count} looked at, {words.nbytes(nbytes)} each, {words.nbytes(nbytes * size)} a batch of {size}"
    if parts:
        text += f": {parts}"
    return Finding(NAME, "ok", text, figures={"nbytes": nbytes, "batch_nbytes": nbytes * size, "looked_at": count})


def _part(path: str, column: Column) -> str:
    name = "" if path == "sample" else name_of(path)
    what = "text or None" if column.kind == "objects" else f"{column.name} {_shape(column.shape)}"
    return f"{name} {what}".strip()


def _shape(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))
