"""One sample, as it was asked for: seeded by itself, tried again, looked at, or left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from swift_loader.batch.finite import refuse_what_is_not_finite
from swift_loader.errors import FailureReport
from swift_loader.worker.unmade import MakeFailed

if TYPE_CHECKING:
    from swift_loader.settings.loader import LoaderConfig
    from swift_loader.worker.info import WorkerInfo


@dataclass(frozen=True, slots=True)
class Skipped:
    """Stands for a sample that is left out. A thread gives it back: by then the batch may be one that nobody wants."""

    report: FailureReport


def asks_singly(config: LoaderConfig) -> bool:
    """Whether samples are to be seeded, tried again, looked at or left out one by one."""
    return config.retries > 0 or config.on_error == "skip" or config.random_per == "sample" or config.check_finite


class Patience:
    """With one dataset. May be used by several threads."""

    def __init__(self, dataset: Any, config: LoaderConfig, info: WorkerInfo) -> None:
        self._dataset = dataset
        self._info = info
        self._attempts = config.retries + 1
        self._checks = config.check_finite
        self._skips = config.on_error == "skip"
        # Threads share the process's own generators: those are seeded once for all of them.
        self._seeds = config.random_per == "sample" and config.worker_threads == 1
        self.is_needed = asks_singly(config)
        """Whether samples must be asked for here; else ``dataset[index]`` will do."""
        # In a worker only the end of the process passes; where there is none, so does the user's Ctrl-C.
        self.passes = (SystemExit,) if config.worker_count else (SystemExit, KeyboardInterrupt)
        self.sample_count: int | None = None
        """What ``len()`` said, where that is known."""
        self.left_out: dict[int, FailureReport] = {}
        """Samples that are not asked for, since they have killed workers; only with ``on_error="skip"``."""

    def sample(self, index: int) -> Any:
        """The sample, or a `Skipped`.

        Raises:
            MakeFailed: where it cannot be had, and is not to be left out.
        """
        if index in self.left_out:
            return Skipped(self.left_out[index])
        for left in reversed(range(self._attempts)):
            try:
                return self._once(index)
            except self.passes:
                raise
            except BaseException as error:
                if left:
                    continue
                report = self.report(error, index)
                if self._skips:
                    return Skipped(report)
                raise MakeFailed(report) from error
        raise AssertionError("the last attempt returns or raises")

    def report(self, error: BaseException, index: int | None) -> FailureReport:
        """What to tell of an error of the dataset's."""
        report = FailureReport.of(error, "fetch", index)
        if isinstance(error, IndexError) and index is not None and self.sample_count is not None:
            should = "should be there" if index < self.sample_count else "was asked for by the plan"
            told = f"{report.text} (len() was {self.sample_count}, so sample {index} {should})"
            report = replace(report, text=told)
        return report

    def _once(self, index: int) -> Any:
        self._info.turn_to_sample(index)
        if self._seeds:
            self._info.seed_generators(index)
        sample = self._dataset[index]
        if self._checks:
            refuse_what_is_not_finite(sample, index)
        return sample
