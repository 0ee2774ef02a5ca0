"""Some samples of a set, picked by what their columns say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.plan.runs import Runs
from swift_loader.shards.numbering import place, places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.shards.dataset import ShardDataset


class Selection:
    """A dataset of those samples of another one that were picked, in its order."""

    def __init__(self, dataset: ShardDataset, indices: NDArray[np.int64]) -> None:
        self.dataset = dataset
        self.indices = indices
        """The picked ones, by their indices in ``dataset``."""

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[place(index, len(self))])]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples at once."""
        return self.dataset.__getitems__(self._of(indices))

    @property
    def read_into(self) -> Callable[[Sequence[int], Any], None]:
        """Writes samples to their rows, where the dataset can."""
        read_into = self.dataset.read_into
        return lambda indices, rows: read_into(self._of(indices), rows)

    def follow(self, plan: Any, consumer: int) -> None:
        """As `ShardDataset.follow`."""
        self.dataset.follow(plan, consumer, self.indices)

    def turn_to(self, epoch: int, step: int) -> None:
        """As `ShardDataset.turn_to`."""
        self.dataset.turn_to(epoch, step)

    def store_statistics(self) -> dict[str, Any] | None:
        """As `ShardDataset.statistics`."""
        return self.dataset.statistics()

    def key(self, index: int) -> str:
        """The key of a sample."""
        return self.dataset.key(int(self.indices[place(index, len(self))]))

    def column(self, name: str) -> NDArray[Any]:
        """A number of each sample."""
        column: NDArray[Any] = self.dataset.column(name)[self.indices]
        return column

    def where(self, **columns: Any) -> Selection:
        """Those of them whose columns are so, as `ShardDataset.where` has it."""
        return Selection(self.dataset, np.intersect1d(self.indices, self.dataset.where(**columns).indices))

    def runs(self) -> NDArray[np.int64] | Runs:
        """How many of them lie side by side in each stretch of a few megabytes; some have none."""
        of_all = Runs(self.dataset.runs())
        ends = np.searchsorted(self.indices, np.cumsum(of_all.lengths))
        lengths = np.diff(ends, prepend=0)
        return lengths if of_all.groups == 1 else Runs(lengths, of_all.groups)

    def _of(self, indices: Sequence[int]) -> list[int]:
        chosen: list[int] = self.indices[places(indices, len(self))].tolist()
        return chosen

    def __repr__(self) -> str:
        return f"<{len(self):,} samples of {self.dataset!r}>"
