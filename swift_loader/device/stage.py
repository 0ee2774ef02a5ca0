"""What a stage is given, and what it must do: make a batch of a slot that is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from swift_loader.batch.layout import BatchSpec

    Array: TypeAlias = npt.NDArray[Any]
    #: Gives an array of this shape and dtype at this offset of the slot, which holds the slot while it lives.
    Hold: TypeAlias = Callable[[tuple[int, ...], str, int], Array]


@dataclass(slots=True)
class Cargo:
    """A full slot, and how to read it."""

    spec: BatchSpec
    rows: int
    memory: npt.NDArray[np.uint8]
    views: dict[Any, Any]
    """Where a stage may keep arrays on this slot's memory, for the next batch in it."""
    stream: bytes | None
    spans: list[tuple[int, int]]
    hold: Hold


class Stage(Protocol):
    """Makes batches of cargo."""

    def land(self, cargo: Cargo) -> Any:
        """The batch. What it needs of the slot later, it holds; all else was copied out."""
        ...

    def close(self) -> None:
        """Lets go of what belongs to the device."""
        ...
