"""Whether a dataset leaves its samples as they are until their batch is whole, so that they may be stored together.

Some datasets fill the same memory anew for each sample. That cannot be known of a tensor, but it can be seen: the rows
of a batch that was stored sample by sample are compared with what its samples are at the end of it. So it is done with
the first batch, and with one in so many from then on; where any sample has changed, each is stored as it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.batch.collate import RowWriter
from swift_loader.errors import DataError, FailureReport
from swift_loader.worker.unmade import MakeFailed

if TYPE_CHECKING:
    from swift_loader.batch.gathercode import Gather

#: After so many quick batches one is looked at; after more and more of them, where samples cannot be stored together.
_UNSEEN, _MOST_UNSEEN = 32, 1024


class Steadiness:
    """Of one dataset, as one worker has seen it."""

    def __init__(self) -> None:
        self._is_seen = False
        """No sample of the batch that was looked at last had changed."""
        self._left = 0
        self._pause = _UNSEEN

    def gather_of(self, writer: RowWriter) -> Gather | None:
        """How the samples of a quick batch may be stored together, if they may."""
        self._left -= 1
        return writer.gather if self._is_seen and self._left > 0 else None

    def is_due(self, writer: RowWriter) -> bool:
        """Whether this batch must be stored sample by sample, to be looked at."""
        return self._left <= 0 and writer.gather is not None

    def did_not_fit(self) -> None:
        """Samples could not be stored together: those after them are stored one by one, until one is looked at."""
        self._is_seen = False

    def held_for(self, writer: RowWriter) -> list[Any] | None:
        """Where the samples of a batch are to be kept for `look`, while they are stored; None where they need not."""
        return [] if self.is_due(writer) else None

    def look(self, writer: RowWriter, samples: Sequence[Any]) -> None:
        """The samples were stored one by one: are they what they were?

        Raises:
            MakeFailed: if one has changed, and batches were made in the belief that none does.
        """
        rows = writer.leaves(len(samples))
        stored = [column.copy() for column in rows]
        believed, self._is_seen, self._left = self._is_seen, False, self._pause
        is_together = writer.gather is not None and writer.gather(samples)
        changed = _first_difference(stored, rows) if is_together else None
        if changed is not None or not is_together:
            for column, one in zip(rows, stored, strict=True):
                column[...] = one
        if not is_together:
            self._pause = self._left = min(2 * self._pause, _MOST_UNSEEN)
            return
        self._is_seen, self._pause = changed is None, _UNSEEN
        if believed and changed is not None:
            error = DataError(
                f"the dataset has written to the memory of row {changed} while it fetched the rows after it, and there "
                "may be such rows in batches before this one. Have __getitem__ return a copy, such as tensor.clone()"
            )
            raise MakeFailed(FailureReport.of(error, "fetch")) from error


def _first_difference(columns: Sequence[Any], others: Sequence[Any]) -> int | None:
    """The first row whose bytes differ."""
    differ = np.zeros(len(columns[0]), bool)
    for column, other in zip(columns, others, strict=True):
        if column.nbytes:
            of_rows = [one.view(np.uint8).reshape(len(one), -1) for one in (column, other)]
            differ |= (of_rows[0] != of_rows[1]).any(axis=1)
    return int(differ.argmax()) if differ.any() else None
