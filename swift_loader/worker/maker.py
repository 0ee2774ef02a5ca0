"""Ticket -> batch in a slot: steps D of the data path, apart from who asks and who is told.

    indices -> fetch -> default collate, straight into the slot
                     -> the user's collate -> pickle or the user's encoder -> slot

Runs in a worker, or in the consumer's own thread where there are no workers. Knows the plan, the dataset and the
slot; does not know channels.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from swift_loader.batch.layout import OBJECT
from swift_loader.errors import FailureReport
from swift_loader.wire.messages import Cost
from swift_loader.wire.page import COLLATES, ENCODES, FETCHES, Cell
from swift_loader.worker.fetch import Fetcher
from swift_loader.worker.made import Made, encoded_by
from swift_loader.worker.reuse import as_repeated, have_follow, turn_to_of
from swift_loader.worker.rows import Rows
from swift_loader.worker.unmade import MakeFailed

if TYPE_CHECKING:
    from swift_loader.plan.ahead import Ahead
    from swift_loader.wire.recipe import Recipe
    from swift_loader.worker.berth import Berth
    from swift_loader.worker.info import WorkerInfo


class BatchMaker:
    """Makes the batches of one consumer."""

    def __init__(self, recipe: Recipe, dataset: Any, ahead: Ahead, info: WorkerInfo, cell: Cell) -> None:
        self._config = recipe.config
        self.looks_ahead = recipe.config.worker_threads > 1
        """Whether it helps to know which batch follows."""
        self.measures = recipe.config.measures
        """Whether it is told what each sample and each batch cost."""
        self._ahead = info.ahead = ahead
        self._cell = cell
        self._generators = info.generators
        self._fetcher = Fetcher(dataset, recipe.config, info, cell)
        self._fetcher.expect(getattr(ahead.plan, "sample_count", None))
        self._rows = Rows(dataset, recipe.config, self._fetcher)
        self._repeated = as_repeated(dataset)
        have_follow(dataset, ahead.plan, ahead.consumer)
        self._turn_to = turn_to_of(dataset)

    def make(self, seq: int, epoch: int, step: int, berth: Berth) -> Made:
        """Makes one batch.

        Raises:
            MakeFailed: where it cannot be made.
            TakenBack: where it is not wanted any more.
        """
        return self._generators.whole(self._made, seq, epoch, step, berth)

    def leave_out(self, reports: dict[int, FailureReport]) -> None:
        """From now on these samples are left out of every batch."""
        self._fetcher.leave_out(reports)

    def close(self) -> None:
        """Ends the fetching threads."""
        self._fetcher.close()
        if self._repeated is not None:
            self._repeated.close()

    def _made(self, seq: int, epoch: int, step: int, berth: Berth) -> Made:
        self._cell.enter(FETCHES, seq)
        indices = self._ahead.indices(epoch, step)
        fetcher = self._fetcher
        fetcher.begin(epoch, step, len(indices))
        fetcher.careful = berth.careful
        if self.looks_ahead and berth.following is not None:
            fetcher.following = self._ahead.indices(epoch, berth.following)
        if self._repeated is not None:
            self._repeated.turn_to(seq, epoch, step)
        begun = perf_counter_ns()
        if (turn_to := self._turn_to) is not None:
            fetcher.timed(lambda: turn_to(epoch, step))
        if self._config.collate_fn is not None:
            collated = self._user_collated(indices, berth)
        elif self._config.batch_encoder is not None:
            collated = self._rows.arrays(indices, berth)
        else:
            return self._in_place(indices, berth, begun)
        gathered = perf_counter_ns()
        self._cell.enter(ENCODES, seq)
        made = self._encoded(collated, berth)
        made.rows = len(indices) - len(fetcher.skipped)
        return self._timed(made, berth, gathered - begun, perf_counter_ns() - gathered)

    def _in_place(self, indices: list[int], berth: Berth, begun: int) -> Made:
        spec, rows, objects = self._rows.collate(indices, berth)
        made = Made(spec, rows, spec.nbytes, None, [], [])
        gathered = perf_counter_ns()
        if not objects:
            return self._timed(made, berth, gathered - begun, 0)
        made.lay(objects, berth, self._rows.behind, self._fetcher.kept(indices))
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

    def _user_collated(self, indices: list[int], berth: Berth) -> Any:
        samples = self._fetcher.batch(indices, berth.wanted)
        if type(samples) is list and not samples:
            raise MakeFailed(self._fetcher.nothing_of(indices))
        self._cell.enter(COLLATES, self._cell.seq)
        collate = self._config.collate_fn
        assert collate is not None
        try:
            return collate(samples)
        except Exception as error:
            raise MakeFailed(FailureReport.of(error, "collate_fn")) from error

    def _encoded(self, batch: Any, berth: Berth) -> Made:
        if self._config.batch_encoder is not None:
            return encoded_by(self._config.batch_encoder, batch, berth)
        made = Made(OBJECT, 0, 0, None, [], [])
        made.lay([[batch]], berth, self._rows.behind)
        return made
