"""What shards of all forms are written with: the columns of their tables, and all that comes behind their samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import digest_of
from swift_loader.shards import tar
from swift_loader.shards.catalog import Shard
from swift_loader.shards.table import FOOTER_FROM_END, FOOTER_NBYTES, MEMBER, Footer, Table

if TYPE_CHECKING:
    from swift_loader.shards.store import Draft

#: Up to here a float is any whole number.
_EXACT = 1 << 53


def sealed_shard(draft: Draft, name: str, table: Table) -> Shard:
    """Writes the table and the end behind a shard's samples; the shard's line in a catalog."""
    data = table.written()
    table_offset = table.payload_nbytes + tar.BLOCK
    nbytes = table_offset + len(data) + FOOTER_FROM_END
    footer = Footer(table_offset, len(data), digest_of(data), nbytes, table.samples)
    draft.write([tar.header(MEMBER, len(data) + FOOTER_NBYTES), data, footer.written(), tar.END])
    return Shard(name, table.samples, nbytes, table_offset, len(data), footer.table_digest, table.payload_digest)


def check_names(names: Sequence[str], key: bytes) -> None:
    """Raises `ShardError` unless these are the fields of a sample: at least one, in order, none of them twice."""
    if not names:
        raise ShardError("a sample has no field").within(key=key.decode())
    for left, right in pairwise(names):
        if left >= right:
            raise ShardError(
                f"a sample has two fields {left!r}: name each, as in fields={{'a.npy': 0, 'b.npy': 1}}"
            ).within(key=key.decode())


def exact_column(numbers: Sequence[int | float]) -> Any:
    """Numbers as an array; None where it would not be the numbers themselves."""
    whole = [number for number in numbers if type(number) is int]
    if len(whole) == len(numbers):
        return np.array(numbers, "<i8")
    return np.array(numbers, "<f8") if all(abs(number) <= _EXACT for number in whole) else None


def column_of(name: str, numbers: Sequence[int | float]) -> Any:
    """The same, of numbers that stand nowhere else."""
    column = exact_column(numbers)
    if column is None:
        raise ShardError(
            f"field {name!r} has whole numbers above 2**53 beside real ones, which no column holds: write it as text"
        )
    return column
