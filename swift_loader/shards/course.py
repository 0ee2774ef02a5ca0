"""Which steps of a plan an iteration takes: all of an epoch, some of them, or those of several epochs. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeAlias

from swift_loader.errors import ConfigError


class Part(NamedTuple):
    """Some steps of what comes before."""

    start: int | None
    stop: int | None
    stride: int | None


class Times(NamedTuple):
    """All steps of what comes before, several times; each time is an epoch of it."""

    epochs: int


class Cut(NamedTuple):
    """So many steps at a time of what comes before, one epoch of it after the other."""

    length: int


Bend: TypeAlias = Part | Times | Cut


@dataclass(frozen=True, slots=True)
class Course:
    """Immutable.

    Example:
        >>> course = Course().sliced(2, 8, 2).times(2)
        >>> course.count(10), course.at(10, epoch=1, place=4)
        (6, (3, 4))
    """

    bends: tuple[Bend, ...] = ()

    def sliced(self, *bounds: int | None) -> Self:
        """As `itertools.islice` takes its bounds."""
        given: list[object] = [bound for bound in bounds if bound is not None]
        if not 1 <= len(bounds) <= 3 or not all(type(bound) is int and bound >= 0 for bound in given):
            raise ConfigError(f"slice takes whole numbers from 0 on, as itertools.islice does, not {bounds!r}")
        whole = slice(*bounds)
        if whole.step == 0:
            raise ConfigError("a slice's step is at least 1")
        return self._with(Part(whole.start, whole.stop, whole.step))

    def times(self, count: int) -> Self:
        """See `Times`."""
        return self._with(Times(count))

    def cut(self, count: int) -> Self:
        """See `Cut`."""
        return self._with(Cut(count))

    def count(self, steps: int) -> int:
        """How many it takes, of a plan with so many in each epoch."""
        for bend in self.bends:
            steps = _count(bend, steps)
        return steps

    def at(self, steps: int, epoch: int, place: int) -> tuple[int, int]:
        """The plan's epoch and step that stand at a place of an iteration."""
        counts = [steps]
        for bend in self.bends:
            counts.append(_count(bend, counts[-1]))
        for bend, before in zip(reversed(self.bends), reversed(counts[:-1]), strict=True):
            match bend:
                case Part():
                    place = range(before)[slice(*bend)][place]
                case Times(epochs):
                    epoch, place = epoch * epochs + place // before, place % before
                case Cut(length):
                    epoch, place = divmod(epoch * length + place, before)
        return epoch, place

    def _with(self, bend: Bend) -> Self:
        return replace(self, bends=(*self.bends, bend))


#: All of an epoch.
WHOLE = Course()


def _count(bend: Bend, before: int) -> int:
    match bend:
        case Part():
            return len(range(before)[slice(*bend)])
        case Times(epochs):
            return epochs * before
        case Cut(length):
            return length if before else 0
