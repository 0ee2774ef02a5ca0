"""The catalog of a set, `index.swift`: which shards there are, how many samples each has, where its table is. Pure.

The bytes are told in docs/shard_format.md. A catalog that was read is a view of the bytes it was read from, which may
be a mapped file: a million shards are opened in a fraction of a second.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import wide_digest_of
from swift_loader.shards.fields import MOST_NAME_NBYTES, trouble_with_path
from swift_loader.shards.table import MOST_SAMPLES, MOST_TABLE_NBYTES, is_sealed, sealed

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "index.swift"
HEADER_NBYTES = 4096
VERSION = 1
#: Flags.
COMPLETE, FOREIGN, SIDECARS = 1, 2, 4
MOST_SHARDS = 1 << 31
MOST_META_NBYTES, MOST_META_DEPTH = 1 << 20, 8

_MAGIC = b"SWINDEX\1"
_HEADER = struct.Struct("<8sII5Q16s16s7Q16s")
_BLOCK = 8192
_MOST_OBJECT = 1 << 48
_TOLD = ("count", "object_nbytes", "table_offset", "table_nbytes", "kind", "name_nbytes")
ROW = np.dtype([
    ("first", "<u8"), ("count", "<u8"), ("object_nbytes", "<u8"), ("table_offset", "<u8"), ("table_nbytes", "<u8"),
    ("table_digest", "<u8"), ("payload_digest", "V16"), ("name_offset", "<u8"), ("name_nbytes", "<u2"),
    ("kind", "<u2"), ("flags", "<u4"), ("rows_offset", "<u8"), ("row_nbytes", "<u8"), ("rest", "V32"),
])  # fmt: skip


class Kind(IntEnum):
    """What a shard is."""

    TAR = 0
    """A tar file with its table as last member."""
    SIDECAR = 1
    """A tar file; its table is a file beside it, with `.swift` behind its name."""
    ROWS = 2
    """Records of one size: .bin, .npy."""
    MDS = 3
    LITDATA = 4
    FILE = 5
    """One sample, a file as it is."""
    PARQUET = 6


#: Those whose tables lie in files beside them.
_BESIDE = (Kind.SIDECAR, Kind.ROWS, Kind.MDS, Kind.LITDATA)


@dataclass(frozen=True, slots=True)
class Shard:
    """One line of a catalog."""

    name: str
    """Where it is, from the folder of the catalog."""
    samples: int
    object_nbytes: int
    table_offset: int
    table_nbytes: int
    table_digest: int
    payload_digest: bytes
    kind: int = Kind.TAR
    flags: int = 0
    rows_offset: int = 0
    row_nbytes: int = 0


@dataclass(frozen=True, eq=False)
class Catalog:
    """A generation of a set.

    Attributes:
        generation: 1 for the first; each that shards were added in has the next number.
        recipe: 16 bytes, what decides the bytes of those shards that were added last.
        uuid: 16 bytes, the same in all generations.
        rows: One record of type `ROW` for each shard.
        bounds: Where the samples of each shard begin in the set, and at last how many there are.
        names: The bytes of all names.
        meta_bytes: JSON for people; nothing in it is needed to read samples.
        digest: Of all shards: two catalogs with the same have the same samples.
        data: All of its bytes.
    """

    generation: int
    flags: int
    recipe: bytes
    uuid: bytes
    rows: NDArray[Any]
    bounds: NDArray[np.int64]
    names: memoryview
    meta_bytes: bytes
    digest: bytes
    data: memoryview

    @property
    def samples(self) -> int:
        """How many there are."""
        return int(self.bounds[-1])

    @cached_property
    def nbytes(self) -> int:
        """What all shards take."""
        return int(self.rows["object_nbytes"].sum())

    def locate(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For samples of the set, each one's shard and its place in there."""
        which = np.searchsorted(self.bounds, indices, "right") - 1
        return which, indices - self.bounds[which]

    def name(self, shard: int) -> str:
        """The name of a shard."""
        row = self.rows[shard]
        begin = int(row["name_offset"])
        return bytes(self.names[begin : begin + int(row["name_nbytes"])]).decode()

    def shard(self, number: int) -> Shard:
        """All that is known of a shard."""
        row = self.rows[number]
        return Shard(
            self.name(number), int(row["count"]), int(row["object_nbytes"]), int(row["table_offset"]),
            int(row["table_nbytes"]), int(row["table_digest"]), row["payload_digest"].tobytes(), int(row["kind"]),
            int(row["flags"]), int(row["rows_offset"]), int(row["row_nbytes"]),
        )  # fmt: skip

    @property
    def is_complete(self) -> bool:
        """Whether all samples are there that were to be written."""
        return bool(self.flags & COMPLETE)

    @cached_property
    def meta(self) -> Any:
        """What was noted for people.

        Raises:
            ShardError: if it is no JSON, or is deeper than such notes are.
        """
        try:
            told = json.loads(self.meta_bytes or b"{}")
        except (ValueError, RecursionError) as error:
            raise ShardError.at("the notes of the catalog are no JSON that can be read") from error
        if _depth_of(told) > MOST_META_DEPTH:
            raise ShardError.at("the notes of the catalog are too deep", None, MOST_META_DEPTH)
        return told

    @classmethod
    def read(cls, data: Any) -> Catalog:
        """What these bytes say.

        Raises:
            ShardError: if they are no catalog, or one that says what cannot be.
        """
        view = memoryview(data).cast("B")
        head = bytes(view[:HEADER_NBYTES])
        if len(head) < HEADER_NBYTES or head[:8] != _MAGIC:
            raise ShardError.at("this is no catalog, or one of another version", 0, _MAGIC, head[:8])
        if not is_sealed(head):
            raise ShardError.at("the head of the catalog is damaged: its checksum is wrong", HEADER_NBYTES - 8)
        _, version, header_nbytes, generation, shards, samples, nbytes, flags, recipe, uuid, *places, digest = (
            _HEADER.unpack_from(head)
        )
        if (version, header_nbytes) != (VERSION, HEADER_NBYTES):
            raise ShardError.at("the catalog is of another version", 8, VERSION, version)
        _check_parts(shards, places, view.nbytes)
        if (found := wide_digest_of(view[HEADER_NBYTES:])) != digest:
            raise ShardError.at("the catalog is damaged: its checksum is wrong", 4096, digest.hex(), found.hex())
        rows = np.frombuffer(view, ROW, shards, HEADER_NBYTES)
        names = view[places[2] : places[2] + places[3]]
        bounds, name_ends = _checked(rows)
        _check_names(names, name_ends)
        catalog = cls(generation, flags, recipe, uuid, rows, bounds, names, bytes(view[places[4] :]), digest, view)
        if (samples, nbytes) != (catalog.samples, catalog.nbytes):
            counted = (catalog.samples, catalog.nbytes)
            raise ShardError.at("the catalog counts wrongly", 32, (samples, nbytes), counted)
        return catalog


def write(
    shards: Iterable[Shard], *, generation: int = 1, flags: int = COMPLETE, recipe: bytes = bytes(16),
    uuid: bytes | None = None, meta: Mapping[str, Any] | None = None,
) -> bytes:  # fmt: skip
    """The bytes of a catalog. Without ``uuid`` it is made of these shards: the same samples have the same."""
    lines = list(shards)
    names = [shard.name.encode() for shard in lines]
    rows = np.zeros(len(lines), ROW)
    rows["count"] = [shard.samples for shard in lines]
    for key in (
        "object_nbytes",
        "table_offset",
        "table_nbytes",
        "table_digest",
        "kind",
        "flags",
        "rows_offset",
        "row_nbytes",
    ):
        rows[key] = [getattr(shard, key) for shard in lines]
    rows["payload_digest"] = np.frombuffer(b"".join(shard.payload_digest for shard in lines), "V16")
    rows["name_nbytes"] = [len(name) for name in names]
    rows["name_offset"] = np.cumsum(rows["name_nbytes"], dtype=np.uint64) - rows["name_nbytes"]
    rows["first"] = np.cumsum(rows["count"], dtype=np.uint64) - rows["count"]
    told = json.dumps(meta, sort_keys=True, ensure_ascii=False).encode() if meta else b""
    behind = b"".join((rows.tobytes(), *names, told))
    begin, names_nbytes = HEADER_NBYTES, sum(map(len, names))
    places = (begin, rows.nbytes, begin + rows.nbytes, names_nbytes, begin + rows.nbytes + names_nbytes, len(told))
    head = _HEADER.pack(
        _MAGIC, VERSION, HEADER_NBYTES, generation, len(lines), int(rows["count"].sum()),
        int(rows["object_nbytes"].sum()), flags, recipe, uuid or wide_digest_of(recipe + rows.tobytes()), *places,
        begin + len(behind), wide_digest_of(behind),
    )  # fmt: skip
    return sealed(head + bytes(HEADER_NBYTES - len(head))) + behind


def generation_name(generation: int) -> str:
    """What the catalog of a generation is called."""
    return f"index-{generation:06d}.swift"


def _check_parts(shards: int, places: list[int], nbytes: int) -> None:
    """Raises unless the parts lie one behind the other, and all that there is is theirs."""
    rows_at, rows_nbytes, names_at, names_nbytes, meta_at, meta_nbytes, file_nbytes = places
    if file_nbytes != nbytes:
        raise ShardError.at("the catalog has another size", 136, file_nbytes, nbytes)
    ends = (rows_at + rows_nbytes, names_at + names_nbytes, meta_at + meta_nbytes)
    if rows_nbytes != shards * ROW.itemsize or (HEADER_NBYTES, *ends) != (rows_at, names_at, meta_at, nbytes):
        raise ShardError.at("the parts of the catalog are not where they should be", 88, nbytes, places)
    if not 1 <= shards <= MOST_SHARDS:
        raise ShardError.at("the number of shards cannot be", 24, MOST_SHARDS, shards)
    if meta_nbytes > MOST_META_NBYTES:
        raise ShardError.at("the notes of the catalog are too large", 120, MOST_META_NBYTES, meta_nbytes)


def _checked(rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where samples and names of each shard end, with a zero before; raises at a shard that cannot be."""
    bounds, name_ends = np.zeros(len(rows) + 1, np.int64), np.zeros(len(rows) + 1, np.int64)
    # Some at a time, since each column that is looked at goes through the memory of all.
    for begin in range(0, len(rows), _BLOCK):
        block, here = rows[begin : begin + _BLOCK], slice(begin + 1, begin + _BLOCK + 1)
        counts, lengths = block["count"], block["name_nbytes"].astype(np.uint64)
        _check_sizes(block, counts, begin)
        _refuse((lengths < 1) | (lengths > MOST_NAME_NBYTES), "a shard has no name, or too long a one", block, begin)
        bounds[here] = bounds[begin] + np.cumsum(counts.astype(np.int64))
        name_ends[here] = name_ends[begin] + np.cumsum(lengths.astype(np.int64))
        starts, name_starts = bounds[begin : begin + len(block)], name_ends[begin : begin + len(block)]
        _refuse(block["first"] != starts.view(np.uint64), "shards' samples do not follow each other", block, begin)
        loose = block["name_offset"] != name_starts.view(np.uint64)
        _refuse(loose, "shards' names do not follow each other", block, begin)
    return bounds, name_ends


def _check_sizes(block: NDArray[Any], counts: NDArray[np.uint64], begin: int) -> None:
    nbytes, kind = block["object_nbytes"], block["kind"]
    offset, table = block["table_offset"], block["table_nbytes"]
    inside = (table <= nbytes) & (offset <= nbytes) & (offset + table <= nbytes)
    possible = (counts >= 1) & (counts <= MOST_SAMPLES) & (nbytes < _MOST_OBJECT) & (table <= MOST_TABLE_NBYTES)
    _refuse(kind > max(Kind), "a shard is of a kind that is not known", block, begin)
    _refuse(~possible | ~(inside | np.isin(kind, _BESIDE)), "a shard has sizes that cannot be", block, begin)
    spans = block["row_nbytes"].astype(np.float64) * counts + block["rows_offset"]
    _refuse((block["row_nbytes"] > 0) & (spans > nbytes), "rows go on behind the end of their file", block, begin)


def _refuse(wrong: NDArray[np.bool_], text: str, block: NDArray[Any], begin: int) -> None:
    if wrong.any():
        number = int(np.argmax(wrong))
        found = {name: block[number][name].item() for name in _TOLD}
        raise ShardError.at(f"in the catalog {text}", HEADER_NBYTES + (begin + number) * ROW.itemsize, None, found)


def _check_names(names: memoryview, ends: NDArray[np.int64]) -> None:
    """Raises at names that might lead anywhere else, or are another shard's too."""
    if int(ends[-1]) != names.nbytes:
        raise ShardError.at("the catalog's names have another size", 112, int(ends[-1]), names.nbytes)
    text = bytes(names)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise ShardError.at("the names of the catalog's shards are no UTF-8") from error
    if bool(((np.frombuffer(text, np.uint8)[ends[:-1]] & 0xC0) == 0x80).any()):
        raise ShardError.at("a name of the catalog's shards begins inside a letter")
    if b"\0" in text or b"\\" in text:
        raise ShardError.at("a name of the catalog's shards has a zero byte or a backslash")
    if not _are_plain(text, ends):
        listed = [text[b:e] for b, e in pairwise(ends.tolist())]
        for name in listed:
            if trouble := trouble_with_path(name):
                raise ShardError.at(f"a shard cannot be called {name.decode()!r}: {trouble}")
        if len(set(listed)) != len(listed):
            raise ShardError.at("two shards of the catalog have one name")


def _are_plain(text: bytes, ends: NDArray[np.int64]) -> bool:
    """Whether it is seen at once that no name leads anywhere and none is there twice, as with those that we write."""
    length = int(ends[1])
    if length == 1 or b"/" in text or b".." in text or bool((np.diff(ends) != length).any()):
        return False
    fixed = np.frombuffer(text, f"S{length}")
    return bool((fixed[1:] > fixed[:-1]).all())


def _depth_of(told: Any) -> int:
    """How deep it is; what is deeper than is allowed is not gone down into."""
    level, depth = [told], 0
    while level and depth <= MOST_META_DEPTH:
        inside = [item for item in level if isinstance(item, dict | list)]
        depth += bool(inside)
        level = [part for item in inside for part in (item.values() if isinstance(item, dict) else item)]
        if not inside:
            break
    return depth
