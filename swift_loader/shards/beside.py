"""The line of a shard in a catalog: by the table at its own end, by one that lies beside it, or by one made now.

A table beside a shard has its name and `.swift` behind it; where nothing can be written there it lies in another
folder, under the same name. It is written once and never again: who finds it there takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from swift_loader.errors import ConfigError, ShardError
from swift_loader.host.mapping import HeldFile, MappedFile
from swift_loader.host.xxhash import digest_of
from swift_loader.shards.catalog import Kind, Shard
from swift_loader.shards.folder import Folder
from swift_loader.shards.foreign import foreign_table
from swift_loader.shards.layouts import Layout
from swift_loader.shards.opening import describe, has_footer, refuse_large
from swift_loader.shards.rows import RawRows, checked_rows
from swift_loader.shards.table import Rows, Table

if TYPE_CHECKING:
    from swift_loader.shards.store import Store
    from swift_loader.stores.fetched import Fetched

ENDING = ".swift"
_PACKED = (".tar.gz", ".tgz", ".tar.zst", ".tar.zstd", ".tar.bz2", ".tar.xz", ".tar.lz4")


class Asked(NamedTuple):
    """A shard that is looked for."""

    name: str
    samples: int = 0
    first: int = 0
    """How many it has, and the first one's number in the set, where it is of another library."""


class Beside(NamedTuple):
    """Where shards are, and where the tables are that they do not have themselves."""

    shards: Folder | Fetched
    tables: Store
    layout: Layout | RawRows | None = None
    """How samples lie, in files that do not tell it."""

    def found(self, name: str) -> Shard | None:
        """The line of a shard that has a table; None if there is none.

        Raises:
            ConfigError: if there is no such shard.
            ShardError: if its table is damaged, or of another shard.
        """
        nbytes = self._nbytes(name)
        try:
            data = self.tables.whole(name + ENDING)
        except FileNotFoundError:
            is_ours = self.layout is None and name.endswith(".tar") and has_footer(self.shards, name, nbytes)
            return describe(self.shards, name, nbytes).shard if is_ours else None
        try:
            return self._line(name, nbytes, memoryview(data))
        except ShardError as error:
            raise error.within(name + ENDING, self.tables.where) from None

    def found_or_made(self, one: Asked) -> Shard:
        """The same; if it has no table, the shard is gone through, and one is put beside it."""
        return self.found(one.name) or self._made(one)

    def _made(self, one: Asked) -> Shard:
        name = one.name
        nbytes = self._nbytes(name)
        try:
            table = self._table(one)
        except ShardError as error:
            raise error.within(name, self.shards.where) from None
        data = table.written()
        draft = self.tables.draft(name + ENDING)
        try:
            draft.write([data])
            draft.publish()
        except FileExistsError:  # another process was quicker
            return self.found_or_made(one)
        finally:
            draft.discard()
        return self._line(name, nbytes, memoryview(data))

    def _table(self, one: Asked) -> Table:
        if self.layout is None and one.name.endswith(".tar"):
            return foreign_table(memoryview(self.shards.whole(one.name)))
        if isinstance(self.layout, Layout) and not isinstance(self.shards, Folder):
            held = HeldFile(self.shards.whole(one.name))
            return self.layout.checked_table(held, one.samples, one.first)
        if not isinstance(self.shards, Folder):
            raise ConfigError(
                f"{self.shards.where}/{one.name} has no table, and is not gone through from here: index it"
            )
        file = MappedFile(self.shards.open(one.name))
        if isinstance(self.layout, Layout):
            return self.layout.checked_table(file, one.samples, one.first)
        return checked_rows(file, self.layout)

    def _line(self, name: str, nbytes: int, data: memoryview) -> Shard:
        refuse_large(data.nbytes)
        table = Table.read(data, nbytes)
        if table.payload_nbytes != nbytes:
            text = "this is the table of another file: remove it, and make it anew"
            raise ShardError.at(text, 24, table.payload_nbytes, nbytes)
        kind = Kind.SIDECAR if self.layout is None else self.layout.kind
        rows = table.rows or Rows(0, 0)
        return Shard(
            name, table.samples, nbytes, 0, data.nbytes, digest_of(data), table.payload_digest,
            Kind.ROWS if table.rows else kind, 0, rows.offset, rows.nbytes,
        )  # fmt: skip

    def _nbytes(self, name: str) -> int:
        try:
            return self.shards.nbytes(name)
        except FileNotFoundError:
            raise ConfigError(f"there is no shard {name!r} in {self.shards.where}") from None


def refuse_packed(name: str) -> None:
    """Raises `ConfigError` at a name of what must be unpacked from its beginning to reach any of its samples."""
    if name.lower().endswith(_PACKED):
        raise ConfigError(
            f"{name} is compressed as a whole: none of its samples can be reached without all before it. Unpack it "
            "(gzip -d, zstd -d), or write its samples anew"
        )
