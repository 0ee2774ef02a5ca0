"""Any other device, and any device where the user's own function moves the batch: as a training script would do it.

That is when the batch is asked for, on the consumer's thread and its current stream.

What such a copy reads may be read after the call has returned. So it is held until an event of the device behind it has
fired; where a device has no events, the call does not return before it has read.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

from swift_loader.device.host import HostStage
from swift_loader.device.moving import by_itself, mapped
from swift_loader.device.underway import Underway, held_arrays

if TYPE_CHECKING:
    from swift_loader.device.pagelock import PageLocks
    from swift_loader.device.stage import Array, Cargo, Event

#: Batches whose copies may be under way before the oldest is waited for: each keeps a slot from the workers.
_MOST_UNDERWAY = 2


class PlainStage:
    """Lands batches on a device through ``.to``, or through the user's own function.

    Args:
        work: The device, as far as it must be known.
        decoder: The user's ``batch_decoder``.
        to_device: The user's function, in the place of ``.to``. What it copies it must leave on the current stream, or
            have that wait for it: what it reads is held until the current stream has got there.
        locks: What page-locks slots for the function's copies, where the device does that.
    """

    def __init__(
        self,
        work: Work,
        decoder: Callable[[bytes], Any] | None,
        to_device: Callable[[Any, Any], Any] | None,
        locks: PageLocks | None = None,
    ) -> None:
        self._work = work
        self._to_device = to_device
        self._locks = locks
        self._host = HostStage(decoder, None, None)
        self._underway = Underway()

    def open(self) -> None:
        """See `Stage`."""
        self._work.open()
        if self._locks is not None:
            self._locks.open()

    def land(self, cargo: Cargo) -> Any:
        """See `Stage`."""
        self._underway.let_go()
        self._underway.settle(leave=_MOST_UNDERWAY - 1)
        if self._locks is not None and cargo.room is not None and cargo.spec.kind != "encoded":
            self._locks.cover(cargo.room)
            self._locks.tell()
        work = self._work
        read: list[Array | torch.Tensor] = []
        arrays = held_arrays(cargo)
        batch = self._host.land(cargo)
        begun = 0 if cargo.laps is None else perf_counter_ns()

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            read.append(tensor)
            return tensor.to(work.device, non_blocking=work.has_events)

        try:
            if self._to_device is not None:
                return self._to_device(batch, work.device)
            return mapped(batch, moved, by_itself(work.device, non_blocking=work.has_events))
        finally:
            read += arrays
            if work.has_events:
                self._underway.add(work.record(), read)
            elif self._to_device is not None:
                work.synchronize()
            if cargo.laps is not None:
                cargo.laps.transfer_ns = perf_counter_ns() - begun

    def settle(self) -> None:
        """See `Stage`."""
        self._underway.settle()

    def close(self) -> None:
        """See `Stage`."""
        self._underway.end()


class Work:
    """What a device is doing, through its module in torch; none for a device that has nothing but shapes."""

    def __init__(self, device: torch.device, module: Any) -> None:
        self.device = device
        self._module = module
        self.has_events = hasattr(module, "Event")
        self._has_streams = hasattr(module, "current_stream")

    def open(self) -> None:
        """Called once, on the consumer's thread: which device is the current one is known now."""
        index: Any = self.device.index
        if index is None and hasattr(self._module, "current_device"):
            self.device = torch.device(self.device.type, self._module.current_device())

    def record(self) -> Event:
        """An event that fires when all that this thread gave to the device so far is done."""
        event = self._module.Event()
        if self._has_streams:
            event.record(self._module.current_stream(self.device))
        else:
            event.record()
        return event  # type: ignore[no-any-return] # as torch's events are

    def synchronize(self) -> None:
        """Waits for all work of the device: what is left where the user's function copies and there are no events."""
        if hasattr(self._module, "synchronize"):
            self._module.synchronize()
