"""Layouts of batches: sent once by each worker that uses one, and named by a number from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_loader.batch.layout import BatchSpec
    from swift_loader.orders.book import Book
    from swift_loader.wire.messages import Parcel

_KNOWN = 256


class Specs:
    """Those of one pool, each kept once however many workers have sent it. Under the exchange's lock."""

    def __init__(self) -> None:
        self._kept: dict[BatchSpec, BatchSpec] = {}

    def read(self, parcel: Parcel, book: Book) -> None:
        """A parcel has come: finds its layout."""
        attached = parcel.attachment
        if attached is not None and attached.spec is not None:
            book.specs[parcel.spec_id] = self._kept_as(attached.spec)
        parcel.spec = book.specs[parcel.spec_id]

    def _kept_as(self, spec: BatchSpec) -> BatchSpec:
        if len(self._kept) >= _KNOWN:
            self._kept.clear()
        return self._kept.setdefault(spec, spec)
