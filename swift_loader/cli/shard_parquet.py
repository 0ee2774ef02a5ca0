"""The rows of Parquet files as a dataset: a row group is unpacked at once, so they are cheap in their order alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.parquet

from swift_loader.cli.shard_rows import sample_of

#: Of each process.
_GROUPS_OPEN = 4


class ParquetRows:
    """Each row is a dict."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = list(paths)
        groups: list[tuple[int, int]] = []
        lengths: list[int] = []
        for number, path in enumerate(self._paths):
            with pyarrow.parquet.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    groups.append((number, group))
                    lengths.append(file.metadata.row_group(group).num_rows)
        self._groups, self._ends = groups, np.cumsum(lengths, dtype=np.int64)
        self._lengths = lengths
        self._open: OrderedDict[int, Any] = OrderedDict()

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def runs(self) -> list[int]:
        """Rows of each group."""
        return self._lengths

    def __getitem__(self, index: int) -> dict[str, Any]:
        number = int(np.searchsorted(self._ends, index, "right"))
        group = self._open.get(number)
        if group is None:
            file, place = self._groups[number]
            with pyarrow.parquet.ParquetFile(self._paths[file]) as opened:
                group = self._open[number] = opened.read_row_group(place)
            if len(self._open) > _GROUPS_OPEN:
                self._open.popitem(last=False)
        at = index - int(self._ends[number]) + self._lengths[number]
        return sample_of(group.slice(at, 1).to_pylist()[0])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": OrderedDict()}
