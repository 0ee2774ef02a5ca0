"""Room in the slot behind the rows, where leaves of different shapes are read back to: they are sent from there.

Without it a batch of ragged samples that are kept costs a worker one and a half times as much: each would be read to
memory of its own first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swift_loader.batch.layout import ALIGNMENT
from swift_loader.batch.spare import Spare
from swift_loader.errors import NoRoom

if TYPE_CHECKING:
    from swift_loader.batch.layout import BatchSpec
    from swift_loader.reuse.kept import Kept
    from swift_loader.worker.berth import Berth


class Behind:
    """Of one batch after the other. Without ``kept`` there is never any."""

    def __init__(self, kept: Kept | None) -> None:
        self._kept = kept
        self._lists: frozenset[int] = frozenset()
        """The columns that were lists of arrays in the batch before, since their shapes differed."""
        self.spare: Spare | None = None

    @property
    def end(self) -> int:
        """Where what was read there ends."""
        return 0 if self.spare is None else self.spare.end

    def begin(self) -> None:
        """A batch begins: the slot is not known yet."""
        self._read_to(None)

    def open(self, spec: BatchSpec, indices: list[int], berth: Berth) -> None:
        """Has the samples from here on read behind rows of ``spec``, if there is reason to."""
        self._read_to(self._spare_for(spec, indices, berth))

    def saw(self, spec: BatchSpec) -> None:
        """A batch was made, with this layout."""
        self._lists = frozenset(at for at, one in enumerate(spec.columns) if one.kind == "objects" and one.dtype)

    def _spare_for(self, spec: BatchSpec, indices: list[int], berth: Berth) -> Spare | None:
        if self._kept is None or not self._lists:
            return None
        count, nbytes = self._kept.nbytes_of(indices)
        to_rows = sum(column.row_nbytes for at, column in enumerate(spec.columns) if at not in self._lists)
        nbytes += count * (ALIGNMENT * len(self._lists) - to_rows)
        try:
            return Spare(berth.room(spec.nbytes + nbytes).memory, spec.nbytes, self._lists) if nbytes > 0 else None
        except NoRoom:  # it may be enough for what is sent in the end
            return None

    def _read_to(self, spare: Spare | None) -> None:
        self.spare = spare
        if self._kept is not None:
            self._kept.empty = None if spare is None else spare.empty
