"""Where in a shard samples lie, from their first byte to behind their last one: what is fetched of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from swift_loader.shards.table import ABSENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from swift_loader.shards.table import Table


def spans(table: Table, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each of these samples begins and ends."""
    if table.rows is not None:
        begins = samples * table.rows.nbytes + table.rows.offset
        return begins, begins + table.rows.nbytes
    entries = table.entries[samples]
    offsets, sizes = entries[..., 0], entries[..., 1]
    is_absent = sizes == ABSENT
    begins = np.where(is_absent, np.uint64(ABSENT), offsets).min(axis=1).astype(np.int64)
    ends = np.where(is_absent, np.uint64(0), offsets + sizes).max(axis=1).astype(np.int64)
    return np.where(ends > 0, begins, 0), ends


def span(table: Table, first: int, count: int) -> tuple[int, int]:
    """Where so many samples that lie side by side begin and end together."""
    begins, ends = spans(table, np.arange(first, first + count))
    there = ends > begins
    return (int(begins[there].min()), int(ends[there].max())) if there.any() else (0, 0)
