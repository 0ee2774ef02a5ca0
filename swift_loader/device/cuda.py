"""A device with streams of its own: batches are copied on a side stream, straight from page-locked slots, ahead of use.

    landing thread     begin     arrays on the slot -> copies on the side stream -> one event behind them
                       let_go    the event has fired: the arrays are dropped, and with the last one the slot goes home
    consumer's thread  hand_out  the current stream waits for the event; the batch's memory is recorded on it

Three parties use the same memory behind Python's back, and each is waited for in one place:
- the side stream reads the slot: its arrays are kept until the event has fired, and only then may a worker fill it;
- the consumer's stream reads what the side stream writes: it waits for the event;
- new batches are written by the side stream where dropped ones were: not before the consumer's stream is done with
  these (torch's allocator sees to it, for memory that was made on one stream and recorded on another).

What has a `.to` of its own is left where it is until `hand_out`, and moved there, on the consumer's stream: its memory
could not be recorded, since we cannot look into it. What it reads is held until an event behind that has fired.

torch's allocator knows nothing of a slot, since we lock it ourselves: the event is all that protects it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from swift_loader.device.host import HostStage
from swift_loader.device.moving import by_itself, mapped
from swift_loader.device.pagelock import PageLocks
from swift_loader.device.underway import Underway, held_arrays

if TYPE_CHECKING:
    import torch

    from swift_loader.device.driver import Driver
    from swift_loader.device.stage import Array, Cargo, Event, Laps


@dataclass(slots=True)
class Begun:
    """A batch on its way."""

    batch: Any
    event: Event
    tensors: list[torch.Tensor]
    """What lies on the device."""
    arrays: list[Array] | None = None
    """The arrays on the slot, if something in the batch is still to move itself."""


class CudaStage:
    """Lands batches on a device that has streams.

    Args:
        driver: The device.
        decoder: The user's ``batch_decoder``, called on the landing thread.
        ahead: How many batches are to be landed ahead.
    """

    def __init__(self, driver: Driver, decoder: Callable[[bytes], Any] | None, ahead: int) -> None:
        self.ahead = ahead
        self._driver = driver
        self._host = HostStage(decoder, None, None, copy_nbytes=-1)  # nothing is copied out on the way
        self._locks = PageLocks(driver)
        self._underway = Underway()

    @property
    def is_copying(self) -> bool:
        """See `StageAhead`."""
        return len(self._underway) > 0

    def open(self) -> None:
        """See `Stage`."""
        self._driver.open()
        self._stream = self._driver.new_stream()

    def land(self, cargo: Cargo) -> Any:
        """See `Stage`. Without a landing thread, a batch's copies may run while the next one is made, not longer."""
        self._underway.settle(leave=1)
        return self.hand_out(self.begin(cargo))

    def begin(self, cargo: Cargo) -> Begun:
        """See `StageAhead`."""
        driver = self._driver
        tensors: list[torch.Tensor] = []
        read: list[torch.Tensor] = []
        to_move: list[Any] = []
        arrays = held_arrays(cargo)
        with driver.using(self._stream):
            is_staged = not self._may_be_read(cargo)

            def copied(tensor: torch.Tensor) -> torch.Tensor:
                source = driver.staged(tensor) if is_staged and tensor.device.type == "cpu" else tensor
                read.append(source)
                tensors.append(driver.copy(source))
                return tensors[-1]

            try:
                batch = self._copied(self._host.land(cargo), copied, to_move, cargo.laps)
                event = driver.record(self._stream)
            except BaseException:
                # The copies that began before this one failed still read the slot, which goes home with this error.
                driver.record(self._stream).synchronize()
                raise
        self._underway.add(event, read)
        return Begun(batch, event, tensors, arrays if to_move else None)

    def _copied(
        self, batch: Any, copied: Callable[[torch.Tensor], torch.Tensor], to_move: list[Any], laps: Laps | None
    ) -> Any:
        def left(value: Any) -> Any:
            to_move.append(value)
            return value

        if laps is None:
            return mapped(batch, copied, left)
        begun = perf_counter_ns()
        timer = laps.device = self._driver.timer(self._stream)
        moved = mapped(batch, copied, left)
        if timer is not None:
            timer.stop()
        laps.transfer_ns = perf_counter_ns() - begun
        return moved

    def hand_out(self, begun: Begun) -> Any:
        """See `StageAhead`."""
        driver = self._driver
        stream = driver.current_stream()
        driver.wait(stream, begun.event)
        for tensor in begun.tensors:
            driver.used_on(tensor, stream)
        self._locks.tell()
        if begun.arrays is None:
            return begun.batch
        try:
            return mapped(begun.batch, lambda tensor: tensor, by_itself(driver.device))
        finally:
            self._underway.add(driver.record(stream), begun.arrays)

    def let_go(self) -> None:
        """See `StageAhead`."""
        self._underway.let_go()

    def settle(self) -> None:
        """See `Stage`."""
        self._underway.settle()

    def close(self) -> None:
        """See `Stage`."""
        self._underway.end()

    def _may_be_read(self, cargo: Cargo) -> bool:
        # Memory for this one batch, or that a decoder makes its own from, torch copies through the driver's, and waits
        # until it is there.
        return cargo.room is None or cargo.spec.kind == "encoded" or self._locks.cover(cargo.room)
