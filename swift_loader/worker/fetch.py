"""Index -> sample, in the order of the batch: one by one, whole batches, or by several threads.

Seeds, retries and leaves out as it was set; measures what each sample took. Knows the dataset; does not know what is
done with the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from swift_loader.batch.rowcode import Watch
from swift_loader.errors import DataError, FailureReport
from swift_loader.settings.loader import LoaderConfig
from swift_loader.wire.page import INDEX, ROW, Cell
from swift_loader.worker.crew import Crew
from swift_loader.worker.info import WorkerInfo
from swift_loader.worker.patience import Patience, Skipped
from swift_loader.worker.stopwatch import Stopwatch
from swift_loader.worker.unmade import MakeFailed, TakenBack
from swift_loader.worker.whole import as_given, drawn, samples_of, whole_batches_of

if TYPE_CHECKING:
    from swift_loader.batch.gathercode import Gather
    from swift_loader.batch.rowcode import Fill
    from swift_loader.worker.berth import Wanted


class Fetcher:
    """Fetches the samples of one batch after the other."""

    def __init__(self, dataset: Any, config: LoaderConfig, info: WorkerInfo, cell: Cell) -> None:
        self._dataset = dataset
        self._info = info
        self._cell = cell
        self._patience = Patience(dataset, config, info)
        self._crew = Crew(config.worker_threads, self._in_thread) if config.worker_threads > 1 else None
        self._seeds_samples = config.random_per == "sample"
        self._measures = config.measures
        self.watch = Stopwatch(measures=config.measures)
        self.following: Sequence[int] = ()
        """Samples that will probably be wanted after those of the batch."""
        self.skipped: list[tuple[int, FailureReport]] = []
        self.careful = False
        """One of the batch's samples has killed a worker: each is fetched alone, so that the cell tells which."""
        # As torch's loader does.
        self._fetch_all = whole_batches_of(dataset) if self.fills else None

    def begin(self, epoch: int, step: int, count: int) -> None:
        """Forgets the batch before and seeds the generators for this one, of ``count`` samples."""
        self.following = ()
        self.watch.begin(count)
        self.skipped = []
        if self._crew is not None and epoch != self._info.epoch:
            self._crew.forget()  # the same samples may come first again, but not as they were in another epoch
        self._info.turn_to_batch(epoch, step)
        # Threads share the process's own generators, so they are seeded once for all of them.
        if not self._seeds_samples or self._crew is not None:
            self._info.seed_generators()

    def samples(self, indices: list[int], wanted: Wanted) -> Iterator[Any]:
        """The samples, in order.

        Raises:
            MakeFailed: where a sample cannot be had.
            TakenBack: where the batch is not wanted any more.
        """
        if self.is_whole:
            return iter(self.whole(indices, wanted))
        if self._crew is not None and not self.careful:
            return self._by_crew(indices, wanted, self._crew)
        return self._one_by_one(indices, wanted)

    @property
    def is_whole(self) -> bool:
        """Whether the dataset gives all samples of a batch at once."""
        return self._fetch_all is not None

    def whole(self, indices: list[int], wanted: Wanted) -> Sequence[Any]:
        """The samples, as the dataset gives them at once; raises as `samples` does."""
        return self._whole(indices, wanted, samples_of)  # type: ignore[no-any-return] # a sequence, as was looked at

    def expect(self, sample_count: int | None) -> None:
        """So many samples are there, where that is known."""
        self._patience.sample_count = sample_count

    def leave_out(self, reports: dict[int, FailureReport]) -> None:
        """From now on these samples are left out of every batch, for these reasons."""
        self._patience.left_out.update(reports)

    def takes_singly(self, indices: list[int]) -> bool:
        """Whether these may not be asked for as a whole."""
        return self.careful or not self._patience.left_out.keys().isdisjoint(indices)

    @property
    def fills(self) -> bool:
        """Whether samples may be had by `fill`."""
        return self._crew is None and not self._patience.is_needed

    def fill(
        self, indices: list[int], wanted: Wanted, fill: Fill, gather: Gather | None = None
    ) -> tuple[int, Sequence[Any]]:
        """Has the samples fetched and stored in one loop; gives back how many, and those that it could not store."""
        watch = Watch(
            wanted.word, wanted.seq, self._cell.words, INDEX, self._failed, self.watch.is_close, self._patience.passes,
            gather=gather,
        )  # fmt: skip
        started = perf_counter_ns()
        count = fill(self._dataset, indices, watch)
        passed_ns = perf_counter_ns() - started
        self.watch.stored(passed_ns, watch.fetch_ns, watch.slowest_ns, watch.slowest_index)
        return count, watch.odd

    def nothing_of(self, indices: list[int]) -> FailureReport:
        """Why no sample of the batch is there, where all were left out."""
        index, first = self.skipped[0]
        text = f"all {len(indices)} samples of the batch failed, so on_error='skip' leaves nothing of it"
        return FailureReport.of(DataError(f"{text}; the first: {first.describe()}"), "fetch", index)

    def kept(self, indices: list[int]) -> list[int]:
        """Those that were not left out."""
        skipped = {index for index, _ in self.skipped}
        return [index for index in indices if index not in skipped] if skipped else indices

    def timed(self, action: Callable[[], Any]) -> Any:
        """Runs ``action``, which fetches many samples at once; its time is fetching, its error the dataset's."""
        begun = perf_counter_ns()
        try:
            return action()
        except self._patience.passes:
            raise
        except BaseException as error:
            raise self._failed(error, None) from error
        finally:
            self.watch.took(perf_counter_ns() - begun, 0)

    def close(self) -> None:
        """Ends the threads."""
        if self._crew is not None:
            self._crew.close()

    def _one_by_one(self, indices: list[int], wanted: Wanted) -> Iterator[Any]:
        dataset, cell, word, seq = self._dataset, self._cell.words, wanted.word, wanted.seq
        patience, passes = self._patience if self._patience.is_needed else None, self._patience.passes
        looks, begun, fetch_ns, slowest_ns, slowest_index = self.watch.is_close, 0, 0, 0, -1
        started = perf_counter_ns()
        for row, index in enumerate(indices):
            # The next two lines are `not wanted` and `cell.at`: for small samples the calls would cost as much again.
            if word[0] != seq:
                raise TakenBack
            cell[ROW], cell[INDEX] = row, index
            if looks:
                begun = perf_counter_ns()
            if patience is None:
                try:
                    sample = dataset[index]
                except passes:
                    raise
                except BaseException as error:
                    raise self._failed(error, index) from error
            else:
                sample = patience.sample(index)
            if looks:
                took = perf_counter_ns() - begun
                fetch_ns += took
                if took > slowest_ns:
                    slowest_ns, slowest_index = took, index
            if type(sample) is not Skipped:
                yield sample
            else:
                self.skipped.append((index, sample.report))
        self.watch.stored(perf_counter_ns() - started, fetch_ns, slowest_ns, slowest_index)

    def batch(self, indices: list[int], wanted: Wanted) -> Any:
        """What a collate of the user's is given: the list of samples, or what ``__getitems__`` made of all of them."""
        if self._fetch_all is None:
            return list(self.samples(indices, wanted))
        return self._whole(indices, wanted, as_given)

    def _whole(self, indices: list[int], wanted: Wanted, take: Callable[[Any, int], Any]) -> Any:
        if not wanted:
            raise TakenBack
        fetch_all = self._fetch_all
        assert fetch_all is not None
        given = self.timed(lambda: drawn(fetch_all(indices)))
        try:
            return take(given, len(indices))
        except DataError as error:
            raise MakeFailed(FailureReport.of(error, "fetch")) from error

    def _by_crew(self, indices: list[int], wanted: Wanted, crew: Crew) -> Iterator[Any]:
        results = crew.results(indices, self.following)
        for row, index in enumerate(indices):
            if not wanted:
                results.close()
                raise TakenBack
            self._cell.at(row, index)
            begun = perf_counter_ns() if self._measures else 0
            sample, took = next(results)
            if self._measures:
                self.watch.took(perf_counter_ns() - begun, took, index)
            if type(sample) is not Skipped:
                yield sample
            else:
                self.skipped.append((index, sample.report))
        next(results, None)  # so that it ends as whole, and keeps what it has asked for the batch after this one

    def _in_thread(self, index: int) -> tuple[Any, int]:
        self._info.turn_to_sample(index)
        begun = perf_counter_ns() if self._measures else 0
        sample = self._patience.sample(index)
        return sample, perf_counter_ns() - begun if self._measures else 0

    def _failed(self, error: BaseException | None, index: int | None) -> Exception:
        return TakenBack() if error is None else MakeFailed(self._patience.report(error, index))
