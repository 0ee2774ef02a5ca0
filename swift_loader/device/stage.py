"""What a stage is given, and what it must do: make a batch of a slot that is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from swift_loader.batch.layout import BatchSpec

    Array: TypeAlias = npt.NDArray[Any]
    #: Gives an array of this shape and dtype at this offset of the slot, which holds the slot while it lives.
    Hold: TypeAlias = Callable[[tuple[int, ...], str, int], Array]


@dataclass(slots=True)
class Laps:
    """How long it took to land a batch: decoding it, and moving it to a device."""

    decode_ns: int = 0
    transfer_ns: int = 0
    """Host time: where the device copies by itself, only what it took to tell it so."""
    device: DeviceTimer | None = None
    """And what the device then took, where it has a clock."""


class DeviceTimer(Protocol):
    """Measures what a stream of a device does between two moments, by the device's own clock."""

    def stop(self) -> None:
        """What was given to the stream since this was made is what counts."""
        ...

    def elapsed_ns(self) -> int | None:
        """How long that took; None while it goes on. Does not wait."""
        ...


class Room(Protocol):
    """A slot that is filled again and again, as a stage knows it."""

    memory: npt.NDArray[np.uint8]
    page_lock: Any
    """Where a stage keeps what it did to the slot's memory as a whole. Nobody else looks at it; goes with the slot."""


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
    room: Room | None = None
    """The slot; None for memory that holds this batch and never another."""
    laps: Laps | None = None
    """Where to note how long landing took, if somebody wants to know."""


class Stage(Protocol):
    """Makes batches of cargo, on the consumer's thread."""

    def open(self) -> None:
        """Called once, on the consumer's thread, before the first batch and after all workers were started."""
        ...

    def land(self, cargo: Cargo) -> Any:
        """The batch. What it needs of the slot later, it holds; all else was copied out."""
        ...

    def settle(self) -> None:
        """Waits for the copies under way, and lets go of the slots that they read."""
        ...

    def close(self) -> None:
        """Lets go of what belongs to the device."""
        ...


@runtime_checkable
class StageAhead(Stage, Protocol):
    """One whose landing has two halves, the first of which another thread may do, long before."""

    ahead: int
    """How many batches are to be landed ahead of the one in use."""

    def begin(self, cargo: Cargo) -> Any:
        """Begins to bring the batch to the device: what is given back is for `hand_out`."""
        ...

    def hand_out(self, begun: Any) -> Any:
        """The batch. On the consumer's thread, whose current stream may use it from now on."""
        ...

    def let_go(self) -> None:
        """Lets go of the slots whose copies are done; does not wait."""
        ...

    @property
    def is_copying(self) -> bool:
        """Whether there is a slot that `settle` would let go of."""
        ...


class Event(Protocol):
    """A point in a device's work."""

    def query(self) -> bool:
        """Whether the device has got there."""
        ...

    def synchronize(self) -> None:
        """Waits until it has."""
        ...
