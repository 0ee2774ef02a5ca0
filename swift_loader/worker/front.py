"""What writes the samples of a batch to their rows by itself, instead of giving them one by one.

A dataset's own ``read_into``, torch's TensorDataset, a cache. Needs a layout, so never makes the first batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from swift_loader.worker.reuse import as_kept
from swift_loader.worker.tensor_rows import tensor_rows_of

if TYPE_CHECKING:
    from swift_loader.batch.collate import RowWriter
    from swift_loader.batch.layout import BatchSpec
    from swift_loader.reuse.kept import Kept
    from swift_loader.settings.loader import LoaderConfig


class Front(Protocol):
    """Reads whole batches."""

    def find(self, indices: list[int], spec: BatchSpec) -> Any:
        """What `read_into` needs for these samples; None where it cannot have them in such rows."""
        ...

    def read_into(self, found: Any, writer: RowWriter, count: int) -> bool:
        """Writes so many samples to the first rows; False where they must be fetched one by one after all."""
        ...


def front_of(dataset: Any, config: LoaderConfig) -> Front | None:
    """The front of ``dataset``, if it has one and nobody stands between the samples and their rows."""
    if config.collate_fn or config.check_finite:
        return None
    if (kept := as_kept(dataset)) is not None:
        return _Kept(kept)
    if config.random_per == "sample":
        return None
    reader = dataset if hasattr(dataset, "read_into") else tensor_rows_of(dataset)
    return None if reader is None else _OfUser(reader, is_patient=config.retries > 0 or config.on_error == "skip")


class _OfUser:
    """The public ``dataset.read_into(indices, rows)``."""

    def __init__(self, reader: Any, *, is_patient: bool) -> None:
        self._reader = reader
        self._is_patient = is_patient

    def find(self, indices: list[int], spec: BatchSpec) -> list[int]:  # noqa: ARG002 - it can have any
        return indices

    def read_into(self, found: list[int], writer: RowWriter, count: int) -> bool:
        try:
            self._reader.read_into(found, writer.rows(count))
        except Exception:
            if not self._is_patient:
                raise
            return False  # which sample it was, and whether it comes another time, is seen when each is asked for alone
        return True


class _Kept:
    """Samples that are kept, where all of a batch are, and alike."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def find(self, indices: list[int], spec: BatchSpec) -> Any:
        return self._kept.reads_into(indices, spec)

    def read_into(self, found: Any, writer: RowWriter, count: int) -> bool:
        return self._kept.read_into(found, writer.leaves(count))
