"""A batch in its slot, and how what is no column gets there: pickles of objects, and bytes of the user's encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.batch.blame import blame
from swift_loader.batch.codec import encode
from swift_loader.batch.layout import ENCODED, BatchSpec, aligned
from swift_loader.errors import DataError, FailureReport
from swift_loader.wire.messages import FREE, Cost
from swift_loader.worker.unmade import MakeFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from swift_loader.worker.behind import Behind
    from swift_loader.worker.berth import Berth

#: A batch's pickled objects up to this size go with the parcel, larger ones behind the columns in the slot.
_STREAM_NBYTES = 32 * 1024


@dataclass(slots=True)
class Made:
    """A batch in its slot."""

    spec: BatchSpec
    rows: int
    nbytes: int
    stream: bytes | None
    spans: list[tuple[int, int]]
    skipped: list[tuple[int, FailureReport]]
    cost: Cost = FREE

    def lay(self, objects: list[list[Any]], berth: Berth, behind: Behind, kept: Sequence[int] = ()) -> None:
        """Puts the objects behind the columns. ``kept``: the samples that the rows hold.

        Raises:
            MakeFailed: where one cannot be sent.
        """
        try:
            encoded = encode(objects)
        except Exception as error:
            report = FailureReport.of(error, "encode")
            unsendable = DataError(
                f"{blame(self.spec, objects, kept)}, which cannot be sent from a worker ({report.type_name}: "
                f"{report.text}). Convert it in the dataset, or in the collate_fn"
            )
            unsendable.__cause__ = error
            raise MakeFailed(FailureReport.of(unsendable, "encode")) from error
        start, stream = max(self.spec.nbytes, behind.end), encoded.stream
        self.spans, end = encoded.spans(start, behind.spare)
        large = len(stream) > _STREAM_NBYTES
        memory = berth.room(end + (aligned(len(stream)) if large else 0), keep=start).memory
        encoded.lay(memory, self.spans, start)
        self.nbytes = end + len(stream)
        if large:
            memory[end : end + len(stream)] = np.frombuffer(stream, np.uint8)
            self.spans.append((end, len(stream)))
        else:
            self.stream = stream


def encoded_by(encoder: Callable[[Any], Any], batch: Any, berth: Berth) -> Made:
    """The batch as the user's encoder writes it. Raises as `Made.lay` does."""
    try:
        data = np.frombuffer(encoder(batch), np.uint8)
    except Exception as error:
        raise MakeFailed(FailureReport.of(error, "batch_encoder")) from error
    berth.room(data.nbytes).memory[: data.nbytes] = data
    return Made(ENCODED, 0, data.nbytes, None, [(0, data.nbytes)], [])
