"""A delivery becomes cargo, and cargo a batch: for the consumer's thread, the landing thread and the replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swift_loader.device.stage import Cargo, Laps
from swift_loader.orders.tickets import Delivery, Failed, Full

if TYPE_CHECKING:
    from collections.abc import Callable

    from swift_loader.consumer.source import Source
    from swift_loader.device.stage import Stage


def landed(delivery: Full, stage: Stage, *, looks: bool) -> Any:
    """The batch, made here and now; with ``looks``, what that took is noted in the delivery."""
    cargo, done = _unloaded(delivery, looks=looks)
    try:
        return stage.land(cargo)
    finally:
        done()


class Dock:
    """A source, as it is seen by the thread that lands its deliveries. See `swift_loader.device.landing.Deliveries`."""

    def __init__(self, source: Source, stage: Stage, *, looks: bool) -> None:
        self._source = source
        self._settle = stage.settle
        self._looks = looks

    def take(self) -> Delivery:
        """See `Deliveries`."""
        return self._source.take(self._settle)

    def number(self, delivery: Delivery) -> int:
        """See `Deliveries`."""
        return delivery.ticket.seq

    def unload(self, delivery: Delivery) -> tuple[Cargo, Callable[[], None]] | None:
        """See `Deliveries`."""
        return None if isinstance(delivery, Failed) else _unloaded(delivery, looks=self._looks)

    def leave(self) -> None:
        """See `Deliveries`."""
        self._source.abandon()


def _unloaded(delivery: Full, *, looks: bool) -> tuple[Cargo, Callable[[], None]]:
    parcel = delivery.parcel
    hold, delivery.hold = delivery.hold, None  # from here on it is the batch's alone, however long the delivery stays
    assert parcel.spec is not None
    assert hold is not None
    attached = parcel.attachment
    stream, spans = (None, []) if attached is None else (attached.stream, attached.spans)
    if looks:
        delivery.laps = Laps()
    cargo = Cargo(
        parcel.spec, parcel.rows, hold.memory, hold.views, stream, spans, hold.array, hold.room, delivery.laps
    )  # fmt: skip
    return cargo, hold.landed
