"""The default collate: samples -> rows of the slot, by the shortest way that the dataset allows.

    the dataset, or a cache, writes all rows itself                                     `Front`
    one loop fetches samples and stores them, or stores all of them together            `Fetcher.fill`
    a sample is fetched, then written                                                   what is left

Each falls back on the next. Which it was makes no difference to the batch.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from swift_loader.batch.collate import RowWriter, column_views, spec_of
from swift_loader.batch.misfit import Misfit, Rounded, Unbatchable, explained
from swift_loader.batch.rowcode import fill_together
from swift_loader.batch.tree import Mismatch
from swift_loader.errors import FailureReport, LayoutError
from swift_loader.worker.behind import Behind
from swift_loader.worker.front import front_of
from swift_loader.worker.reuse import as_kept
from swift_loader.worker.steady import Steadiness
from swift_loader.worker.unmade import MakeFailed

if TYPE_CHECKING:
    from swift_loader.batch.layout import BatchSpec, Column
    from swift_loader.settings.loader import LoaderConfig
    from swift_loader.worker.berth import Berth
    from swift_loader.worker.fetch import Fetcher

#: So many layouts are remembered. Most datasets have one; where every batch has its own, none is worth keeping.
_MANY = 32


class Rows:
    """Of one dataset's batches."""

    def __init__(self, dataset: Any, config: LoaderConfig, fetcher: Fetcher) -> None:
        self._batch_size = config.batch_size
        self._makes_lists = config.ragged == "list"
        self._fetcher = fetcher
        self._front = front_of(dataset, config)
        reads_back = not (config.collate_fn or config.check_finite or config.batch_encoder)
        self.behind = Behind(as_kept(dataset) if reads_back else None)
        self._steadiness = Steadiness()
        self._spec: BatchSpec | None = None
        self._specs: dict[BatchSpec, BatchSpec] = {}

    def collate(self, indices: list[int], berth: Berth) -> tuple[BatchSpec, int, list[list[Any]]]:
        """Makes the batch: its layout, how many rows it has, and the leaves that are objects, by column.

        Raises:
            MakeFailed: where it cannot be made.
            TakenBack: where it is not wanted any more.
        """
        self.behind.begin()
        spec = self._spec
        if spec is not None and self._read_into(spec, indices, berth):
            return spec, len(indices), []
        writer, row, odd = self._filled(spec, indices, berth)
        if spec is not None and row == len(indices):
            return spec, row, []
        left = indices[row + len(odd) :]
        rest = self._fetcher.samples(left, berth.wanted) if left else ()
        held: list[Any] | None = None
        try:
            for sample in itertools.chain(odd, rest):
                if writer is None:
                    writer = self._writer_for(sample, indices, berth)
                    held = self._steadiness.held_for(writer)
                writer.write(row, sample)
                row += 1
                if held is not None:
                    held.append(sample)
        except (Misfit, Rounded, Unbatchable, Mismatch) as error:
            kept = self._fetcher.kept(indices)
            text, row = explained(error, kept, ragged=self._makes_lists)
            raise MakeFailed(FailureReport.of(LayoutError(text), "collate", kept[row])) from error
        if writer is None:
            raise MakeFailed(self._fetcher.nothing_of(indices))
        if held:
            self._steadiness.look(writer, held)
        spec, objects = writer.finish()
        if writer.is_apart:
            writer.lay(berth.room(spec.nbytes, keep=writer.end).memory)
        self.behind.saw(spec)
        # Where a batch has turned a column into another, its layout was made for this batch alone.
        return spec if spec is self._spec else self._interned(spec), row, objects

    def arrays(self, indices: list[int], berth: Berth) -> Any:
        """The batch as arrays of its own, for the user's encoder. Raises as `collate` does."""
        spec, rows, objects = self.collate(indices, berth)
        lists = iter(objects)
        views = column_views(spec, berth.room(spec.nbytes).memory)
        leaves: Iterator[Any] = (
            [_seen(value, column) for value in next(lists)] if view is None else _seen(view[:rows].copy(), column)
            for column, view in zip(spec.columns, views, strict=True)
        )
        return spec.structure.build(leaves)

    def _read_into(self, spec: BatchSpec, indices: list[int], berth: Berth) -> bool:
        """Has the batch written to its rows as a whole; False where it must be made sample by sample after all."""
        front = self._front
        fits = spec.object_count == 0 and spec.capacity >= len(indices)
        if front is None or not fits or self._fetcher.takes_singly(indices):
            return False
        found = front.find(indices, spec)
        if found is None:
            return False
        writer = self._writer(spec, berth)
        return bool(self._fetcher.timed(lambda: front.read_into(found, writer, len(indices))))

    def _filled(
        self, spec: BatchSpec | None, indices: list[int], berth: Berth
    ) -> tuple[RowWriter | None, int, Sequence[Any]]:
        """Has samples stored as they are fetched: the writer, how many rows it has, and samples that did not fit."""
        fetcher = self._fetcher
        if spec is None or spec.capacity < len(indices) or not (fetcher.fills or fetcher.is_whole):
            return None, 0, ()
        writer = self._writer(spec, berth)
        writer.begin()
        if fetcher.is_whole:
            samples = fetcher.whole(indices, berth.wanted)
            return (writer, len(samples), ()) if writer.gather and writer.gather(samples) else (None, 0, samples)
        gather = self._steadiness.gather_of(writer)
        fill = writer.fill if gather is None else fill_together
        if fill is None or self._steadiness.is_due(writer):
            return None, 0, ()
        row, odd = fetcher.fill(indices, berth.wanted, fill, gather)
        if gather is not None and odd:
            self._steadiness.did_not_fit()
        return (writer if row else None), row, odd

    def _writer_for(self, first: Any, indices: list[int], berth: Berth) -> RowWriter:
        spec, rows = self._spec, len(indices)
        if spec is None or spec.capacity < rows or not self._writer(spec, berth).fits(first):
            spec = self._interned(spec_of(first, max(rows, self._batch_size)))
        self.behind.open(spec, indices, berth)
        writer = self._writer(spec, berth)
        self._spec = spec  # not before there is room for it: the next batch may be smaller
        writer.begin(self.behind.spare)
        return writer

    def _interned(self, spec: BatchSpec) -> BatchSpec:
        if len(self._specs) >= _MANY:
            self._specs.clear()
        return self._specs.setdefault(spec, spec)

    def _writer(self, spec: BatchSpec, berth: Berth) -> RowWriter:
        slot = berth.room(spec.nbytes)
        writer = slot.views.get(spec.key)
        if writer is None:
            if len(slot.views) >= _MANY:
                slot.views.clear()
            writer = slot.views[spec.key] = RowWriter(spec, slot.memory, ragged=self._makes_lists)
        return writer


def _seen(value: Any, column: Column) -> Any:
    """A leaf as an encoder should see it: bits that are a dtype of torch's alone go as its tensors, not as integers."""
    if not column.viewed_as:
        return value
    torch = sys.modules["torch"]  # the dataset has brought it
    return torch.from_numpy(value).view(getattr(torch, column.viewed_as))
