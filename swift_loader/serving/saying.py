"""A delivery becomes a frame: its columns as they lie in memory, its objects said in plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.batch.codec import decode
from swift_loader.batch.layout import aligned
from swift_loader.errors import FailureReport
from swift_loader.net import schema
from swift_loader.net.batches import said_of
from swift_loader.net.frames import FAILED, LENT, PARCEL, write_head
from swift_loader.net.values import Unsayable, write

if TYPE_CHECKING:
    from swift_loader.orders.tickets import Full

Parts = list[bytes | memoryview]
_REASON_LENGTH = 300


def batch_frame(delivery: Full, seq: int, held_ns: int = 0, *, is_lent: bool = False) -> Parts:
    """A batch, as it is sent: good for as long as its slot is held. Of one that is lent, all but its columns.

    Raises:
        Unsayable: if it holds what is not sent.
    """
    parcel, hold = delivery.parcel, delivery.hold
    assert parcel.spec is not None
    assert hold is not None
    spec, memory = parcel.spec, memoryview(hold.memory).cast("B")
    objects = write(_objects_of(delivery)) if spec.object_count else b""
    attached = parcel.attachment
    skipped = [] if attached is None else [(index, text[:_REASON_LENGTH]) for index, text in attached.skipped]
    ticket = delivery.ticket
    meta = schema.write(
        schema.Parcel(
            ticket.epoch, ticket.step, parcel.rows, len(objects), list(parcel.cost[:-1]), held_ns, skipped,
            said_of(spec),
        )
    )  # fmt: skip
    if is_lent:
        return [write_head(LENT, len(meta), seq, len(objects)) + meta, objects]
    bulk_nbytes = aligned(spec.nbytes) + len(objects) if objects else spec.nbytes
    parts: Parts = [write_head(PARCEL, len(meta), seq, bulk_nbytes) + meta, memory[: spec.nbytes]]
    return [*parts, bytes(aligned(spec.nbytes) - spec.nbytes), objects] if objects else parts


def failure_frame(report: FailureReport, seq: int, epoch: int, step: int) -> Parts:
    """Why a batch cannot be made."""
    said = schema.Failure(
        epoch, step, report.stage[:200], report.type_name[:4096], report.text, report.traceback, report.index
    )  # fmt: skip
    meta = schema.write(said)
    return [write_head(FAILED, len(meta), seq) + meta]


def unsayable(error: Unsayable) -> FailureReport:
    """What to tell of a batch that cannot be sent."""
    return FailureReport.of(
        TypeError(
            f"a batch cannot be sent to another machine: {error}. Over the network go dicts, lists and tuples of "
            "arrays, tensors, numbers, texts and bytes: convert it in the dataset, or in the collate_fn"
        ),
        "encode",
    )


def _objects_of(delivery: Full) -> Any:
    """As the trainer would read them."""
    attached, hold = delivery.parcel.attachment, delivery.hold
    assert attached is not None
    assert hold is not None
    spans, stream = attached.spans, attached.stream
    if stream is None:
        *spans, (start, nbytes) = spans
        stream = hold.memory[start : start + nbytes].tobytes()
    return decode(stream, [np.array(hold.memory[start : start + nbytes]) for start, nbytes in spans])
