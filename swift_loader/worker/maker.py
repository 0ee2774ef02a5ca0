"""Ticket -> batch in a slot: steps D of the data path, apart from who asks and who is told.

    indices -> fetch -> default collate, straight into the slot
                     -> the user's collate -> pickle or the user's encoder -> slot

Runs in a worker, or in the consumer's own thread where there are no workers. Knows the plan, the dataset and the
slot; does not know channels.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from swift_loader.batch.blame import blame
from swift_loader.batch.codec import encode
from swift_loader.batch.collate import RowWriter, column_views, spec_of
from swift_loader.batch.layout import ALIGNMENT, ENCODED, OBJECT, BatchSpec, Column, aligned
from swift_loader.batch.misfit import Misfit, Rounded, Unbatchable, explained
from swift_loader.batch.rowcode import fill_together
from swift_loader.batch.spare import Spare
from swift_loader.batch.tree import Mismatch
from swift_loader.errors import DataError, FailureReport, LayoutError, NoRoom
from swift_loader.plan.plan import Plan
from swift_loader.wire.messages import FREE, Cost
from swift_loader.wire.page import COLLATES, ENCODES, FETCHES, Cell
from swift_loader.wire.recipe import Recipe
from swift_loader.worker.berth import Berth
from swift_loader.worker.fetch import Fetcher, MakeFailed
from swift_loader.worker.info import WorkerInfo
from swift_loader.worker.reuse import as_kept, as_repeated
from swift_loader.worker.steady import Steadiness
from swift_loader.worker.tensor_rows import tensor_rows_of

#: A batch's pickled objects up to this size go with the parcel, larger ones behind the columns in the slot.
_STREAM_NBYTES = 32 * 1024
#: Indices are asked of the plan in blocks of about this many samples.
_BLOCK_SAMPLES = 4096
#: So many layouts are remembered. Most datasets have one; where every batch has its own, none is worth keeping.
_MANY = 32


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


class BatchMaker:
    """Makes the batches of one consumer."""

    def __init__(self, recipe: Recipe, dataset: Any, plan: Plan, info: WorkerInfo, cell: Cell) -> None:
        self._config = recipe.config
        self.looks_ahead = recipe.config.worker_threads > 1
        """Whether it helps to know which batch follows."""
        self.measures = recipe.config.measures
        """Whether it is told what each sample and each batch cost."""
        self._consumer = recipe.consumer
        self._plan = plan
        self._cell = cell
        self._generators = info.generators
        self._fetcher = Fetcher(dataset, recipe.config, info, cell)
        self._fetcher.sample_count = getattr(plan, "sample_count", None)
        self._steadiness = Steadiness()
        self._spec: BatchSpec | None = None
        self._specs: dict[BatchSpec, BatchSpec] = {}
        self._block: tuple[int, int, list[list[int]]] = (-1, 0, [])
        # Rows that the dataset writes itself need a known layout, and nobody in between.
        alone = not (recipe.config.collate_fn or recipe.config.check_finite)
        self._keeps = as_kept(dataset) if alone else None
        self._lists: frozenset[int] = frozenset()
        """The columns that were lists of arrays in the batch before, since their shapes differed."""
        self._spare: Spare | None = None
        self._repeated = as_repeated(dataset)
        singly = self._keeps is not None or recipe.config.random_per == "sample"
        reader = dataset if hasattr(dataset, "read_into") else tensor_rows_of(dataset)
        self._reader = reader if alone and not singly else None
        """Writes the samples of a batch to their rows itself."""

    def make(self, seq: int, epoch: int, step: int, berth: Berth) -> Made:
        """Makes one batch.

        Raises:
            MakeFailed: where it cannot be made.
            TakenBack: where it is not wanted any more.
        """
        return self._generators.whole(self._made, seq, epoch, step, berth)

    def _made(self, seq: int, epoch: int, step: int, berth: Berth) -> Made:
        self._cell.enter(FETCHES, seq)
        indices = self._indices(epoch, step)
        fetcher = self._fetcher
        fetcher.begin(epoch, step, len(indices))
        fetcher.careful = berth.careful
        self._read_to(None)
        if self.looks_ahead and berth.following is not None:
            fetcher.following = self._indices(epoch, berth.following)
        if self._repeated is not None:
            self._repeated.turn_to(seq, epoch, step)
        begun = perf_counter_ns()
        if self._config.collate_fn is not None:
            collated = self._user_collated(indices, berth)
        elif self._config.batch_encoder is not None:
            collated = self._arrays(indices, berth)
        else:
            return self._in_place(indices, berth, begun)
        gathered = perf_counter_ns()
        self._cell.enter(ENCODES, seq)
        made = self._encoded(collated, berth)
        made.rows = len(indices) - len(fetcher.skipped)
        return self._timed(made, berth, gathered - begun, perf_counter_ns() - gathered)

    def leave_out(self, reports: dict[int, FailureReport]) -> None:
        """From now on these samples are left out of every batch."""
        self._fetcher.left_out.update(reports)

    def close(self) -> None:
        """Ends the fetching threads."""
        self._fetcher.close()
        if self._repeated is not None:
            self._repeated.close()

    def _in_place(self, indices: list[int], berth: Berth, begun: int) -> Made:
        spec, rows, objects = self._default_collated(indices, berth)
        made = Made(spec, rows, spec.nbytes, None, [], [])
        gathered = perf_counter_ns()
        if not objects:
            return self._timed(made, berth, gathered - begun, 0)
        self._lay(made, objects, berth, self._kept(indices))
        return self._timed(made, berth, gathered - begun, perf_counter_ns() - gathered)

    def _timed(self, made: Made, berth: Berth, gather_ns: int, encode_ns: int) -> Made:
        watch, slot_ns = self._fetcher.watch, berth.slot_ns
        collate_ns = max(0, gather_ns - watch.fetch_ns)  # threads fetch more time than passes
        if slot_ns:  # made while the first sample, or the first object, was stored
            encode_ns = max(0, encode_ns - max(0, slot_ns - collate_ns))
            collate_ns = max(0, collate_ns - slot_ns)
        made.cost = Cost(watch.fetch_ns, collate_ns, encode_ns, slot_ns, watch.slowest_ns, watch.slowest_index)
        made.skipped = self._fetcher.skipped
        return made

    def _default_collated(self, indices: list[int], berth: Berth) -> tuple[BatchSpec, int, list[list[Any]]]:
        spec = self._spec
        fits = spec is not None and spec.object_count == 0 and spec.capacity >= len(indices)
        reads = self._reader is not None or self._keeps is not None
        singly = not reads or not fits or self._fetcher.takes_singly(indices)
        if spec is not None and not singly and self._read_into(spec, indices, berth):
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
            kept = self._kept(indices)
            text, row = explained(error, kept, ragged=self._config.ragged == "list")
            raise MakeFailed(FailureReport.of(LayoutError(text), "collate", kept[row])) from error
        if writer is None:
            raise MakeFailed(self._all_skipped(indices))
        if held:
            self._steadiness.look(writer, held)
        spec, objects = writer.finish()
        if writer.is_apart:
            writer.lay(berth.room(spec.nbytes, keep=writer.end).memory)
        self._lists = frozenset(at for at, one in enumerate(spec.columns) if one.kind == "objects" and one.dtype)
        # Where a batch has turned a column into another, its layout was made for this batch alone.
        return spec if spec is self._spec else self._interned(spec), row, objects

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

    def _read_into(self, spec: BatchSpec, indices: list[int], berth: Berth) -> bool:
        """Has the batch written to its rows as a whole; False where it must be made sample by sample after all."""
        kept = self._keeps
        if kept is None:
            reader, rows = self._reader, self._writer(spec, berth).rows(len(indices))
            assert reader is not None
            self._fetcher.timed(lambda: reader.read_into(indices, rows), None)
            return True
        found = kept.reads_into(indices, spec)
        if found is None:
            return False
        begun = perf_counter_ns()
        whole = kept.read_into(found, self._writer(spec, berth).leaves(len(indices)))
        self._fetcher.watch.took(perf_counter_ns() - begun, 0)
        return whole

    def _writer_for(self, first: Any, indices: list[int], berth: Berth) -> RowWriter:
        spec, rows = self._spec, len(indices)
        if spec is None or spec.capacity < rows or not self._writer(spec, berth).fits(first):
            spec = self._interned(spec_of(first, max(rows, self._config.batch_size)))
        self._read_to(self._spare_for(spec, indices, berth))
        writer = self._writer(spec, berth)
        self._spec = spec  # not before there is room for it: the next batch may be smaller
        writer.begin(self._spare)
        return writer

    def _spare_for(self, spec: BatchSpec, indices: list[int], berth: Berth) -> Spare | None:
        """Room behind the rows, where lists are sent from, for what is read back from here on."""
        if self._keeps is None or not self._lists or self._config.batch_encoder is not None:
            return None
        count, nbytes = self._keeps.nbytes_of(indices)
        to_rows = sum(column.row_nbytes for at, column in enumerate(spec.columns) if at not in self._lists)
        nbytes += count * (ALIGNMENT * len(self._lists) - to_rows)
        try:
            return Spare(berth.room(spec.nbytes + nbytes).memory, spec.nbytes, self._lists) if nbytes > 0 else None
        except NoRoom:  # it may be enough for what is sent in the end
            return None

    def _read_to(self, spare: Spare | None) -> None:
        self._spare = spare
        if self._keeps is not None:
            self._keeps.empty = None if spare is None else spare.empty

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
            writer = slot.views[spec.key] = RowWriter(spec, slot.memory, ragged=self._config.ragged == "list")
        return writer

    def _user_collated(self, indices: list[int], berth: Berth) -> Any:
        samples = self._fetcher.batch(indices, berth.wanted)
        if type(samples) is list and not samples:
            raise MakeFailed(self._all_skipped(indices))
        self._cell.enter(COLLATES, self._cell.seq)
        collate = self._config.collate_fn
        assert collate is not None
        try:
            return collate(samples)
        except Exception as error:
            raise MakeFailed(FailureReport.of(error, "collate_fn")) from error

    def _arrays(self, indices: list[int], berth: Berth) -> Any:
        """The default batch as arrays of its own, for the user's encoder."""
        spec, rows, objects = self._default_collated(indices, berth)
        lists = iter(objects)
        views = column_views(spec, berth.room(spec.nbytes).memory)
        leaves: Iterator[Any] = (
            [_seen(value, column) for value in next(lists)] if view is None else _seen(view[:rows].copy(), column)
            for column, view in zip(spec.columns, views, strict=True)
        )
        return spec.structure.build(leaves)

    def _encoded(self, batch: Any, berth: Berth) -> Made:
        encoder = self._config.batch_encoder
        if encoder is None:
            made = Made(OBJECT, 0, 0, None, [], [])
            self._lay(made, [[batch]], berth)
            return made
        try:
            data = np.frombuffer(encoder(batch), np.uint8)
        except Exception as error:
            raise MakeFailed(FailureReport.of(error, "batch_encoder")) from error
        berth.room(data.nbytes).memory[: data.nbytes] = data
        return Made(ENCODED, 0, data.nbytes, None, [(0, data.nbytes)], [])

    def _lay(self, made: Made, objects: list[list[Any]], berth: Berth, kept: Sequence[int] = ()) -> None:
        """Puts the objects behind the columns. ``kept``: the samples that the rows hold."""
        try:
            encoded = encode(objects)
        except Exception as error:
            report = FailureReport.of(error, "encode")
            unsendable = DataError(
                f"{blame(made.spec, objects, kept)}, which cannot be sent from a worker ({report.type_name}: "
                f"{report.text}). Convert it in the dataset, or in the collate_fn"
            )
            unsendable.__cause__ = error
            raise MakeFailed(FailureReport.of(unsendable, "encode")) from error
        start, stream = max(made.spec.nbytes, 0 if self._spare is None else self._spare.end), encoded.stream
        made.spans, end = encoded.spans(start, self._spare)
        large = len(stream) > _STREAM_NBYTES
        memory = berth.room(end + (aligned(len(stream)) if large else 0), keep=start).memory
        encoded.lay(memory, made.spans, start)
        made.nbytes = end + len(stream)
        if large:
            memory[end : end + len(stream)] = np.frombuffer(stream, np.uint8)
            made.spans.append((end, len(stream)))
        else:
            made.stream = stream

    def _indices(self, epoch: int, step: int) -> list[int]:
        of_epoch, first, batches = self._block
        if epoch != of_epoch or not first <= step < first + len(batches):
            count = max(1, _BLOCK_SAMPLES // self._config.batch_size)
            first = step - step % count
            count = min(count, self._plan.step_count(epoch, self._consumer) - first)
            batches = self._plan.indices(epoch, self._consumer, first, count)
            self._block = (epoch, first, batches)
        return batches[step - first]

    def _all_skipped(self, indices: list[int]) -> FailureReport:
        reports = self._fetcher.skipped
        text = f"all {len(indices)} samples of the batch failed, so on_error='skip' leaves nothing of it"
        return FailureReport.of(DataError(f"{text}; the first: {reports[0][1].describe()}"), "fetch", reports[0][0])

    def _kept(self, indices: list[int]) -> list[int]:
        if not self._fetcher.skipped:
            return indices
        skipped = {index for index, _ in self._fetcher.skipped}
        return [index for index in indices if index not in skipped]


def _seen(value: Any, column: Column) -> Any:
    """A leaf as an encoder should see it: bits that are a dtype of torch's alone go as its tensors, not as integers."""
    if not column.viewed_as:
        return value
    torch = sys.modules["torch"]  # the dataset has brought it
    return torch.from_numpy(value).view(getattr(torch, column.viewed_as))
