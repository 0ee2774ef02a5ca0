"""The samples of a set as a source of another one, each checked where it was read.

Of tar files they keep their keys and their bytes (`Copied`). Of other libraries' sets images keep their bytes, and what
else there is is encoded anew, since nobody else knows their encodings (`Unpacked`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards.decode import Decode, Decoding
from swift_loader.shards.encode import Encoded, npy_head
from swift_loader.shards.encodings import decoder_of
from swift_loader.shards.fields import Field, field_of, key_of
from swift_loader.shards.opened import OpenShard, OpenShards
from swift_loader.shards.prepared import Ready
from swift_loader.shards.sets import open_set

#: Encodings that are bytes of files, and how these end.
_FILES = {"jpeg": "jpg", "png": "png"}


def samples_of(
    url: str,
    *,
    generation: int | None = None,
    index: str | None = None,
    fields: Mapping[str, str] | None = None,
    own_keys: bool = True,
) -> Copied | Unpacked:
    """All samples of a set, as a source.

    Args:
        url: A folder that has a catalog or is another library's set, or a pattern of shards that have tables.
        generation: Which generation; the newest if not given.
        index: The folder of the catalog and the tables, where they are not beside the shards.
        fields: Which fields, and what each is called there: ``{"jpg": "image.jpg"}``. By default all of them.
        own_keys: Whether samples keep their keys; else, and where there are none, nine digits of the sample's index.
    """
    there = _Set(url, generation, index)
    if there.layout is None:
        return Copied(there, fields, own_keys=own_keys)
    return Unpacked(there, None if fields is None else set(fields.values()))


class _Set:
    """A set, opened anew in each process that it comes to."""

    def __init__(self, url: str, generation: int | None, index: str | None) -> None:
        self._url, self._index = url, index
        opened = open_set(url, generation, index)
        self.catalog, self.layout = opened.catalog, opened.layout
        self._shards = OpenShards(opened)

    def place(self, index: int) -> tuple[OpenShard, int]:
        """The shard of a sample, and its number in there."""
        which, inside = self.catalog.locate(np.array([index]))
        return self._shards[int(which[0])], int(inside[0])

    def __reduce__(self) -> Any:
        return _Set, (self._url, self.catalog.generation or None, self._index)


class Copied:
    """Samples of tar files: see `samples_of`."""

    def __init__(self, there: _Set, fields: Mapping[str, str] | None, *, own_keys: bool) -> None:
        self._set, self._own_keys = there, own_keys
        self._fields = None if fields is None else {field_of(name): there for name, there in sorted(fields.items())}

    def __len__(self) -> int:
        return self._set.catalog.samples

    def __getitem__(self, index: int) -> Ready:
        shard, number = self._set.place(index)
        has_keys = shard.table.rows is None or len(shard.table.key_ends) > 0
        key = key_of(shard.table.key(number)) if self._own_keys and has_keys else b"%09d" % index
        return Ready(key, self._encoded(shard, number))

    def _encoded(self, shard: OpenShard, number: int) -> list[Encoded]:
        table = shard.table
        found = []
        for name, there in (self._fields or {name: name for name in table.field_numbers}).items():
            at = table.field_numbers.get(there)
            if at is not None and table.rows is not None and not table.fields[at].has_column:
                found.append(_row(name, shard, number, at))
                continue
            data = None if at is None else shard.read(number, at)
            if data is None or at is None:
                if self._fields is not None:
                    raise shard.told(ShardError(f"the sample has no field {there!r}"), number)
                continue
            column = table.columns.get(there)
            value = None if column is None else column[number].item()
            found.append(Encoded(name, data.data, value, _array(table.fields[at])))
        return found


class Unpacked:
    """Samples of a set that another library wrote, as dicts: see `samples_of`."""

    def __init__(self, there: _Set, names: set[str] | None) -> None:
        self._set, self._names = there, names
        _ = self._ways

    def __len__(self) -> int:
        return self._set.catalog.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        shard, number = self._set.place(index)
        sample = {}
        for name, (ending, decode) in self._ways.items():
            data = shard.read(number, shard.table.field_numbers[name])
            sample[name if self._names or not ending else f"{name}.{ending}"] = decode(data)
        return sample

    @cached_property
    def _ways(self) -> dict[str, tuple[str, Decode]]:
        assert self._set.layout is not None
        encodings = self._set.layout.encodings
        wanted = encodings if self._names is None else [name for name in encodings if name in self._names]
        return {name: _way(name, encodings[name]) for name in wanted}

    def __getstate__(self) -> dict[str, Any]:
        return {"_set": self._set, "_names": self._names}


def _way(name: str, encoding: str) -> tuple[str, Decode]:
    """What a field's name is to end with, and what becomes of its bytes."""
    kind, _, rest = encoding.partition(":")
    if kind in _FILES or (kind == "image" and rest):
        return _FILES.get(kind, rest), bytes
    if kind == "pkl":
        raise ConfigError(f"field {name!r} is pickled, and reading it runs what stands in it: name fields without it")
    return "", decoder_of(encoding, Decoding("pil" if kind == "pil" else None))


def _row(name: str, shard: OpenShard, number: int, at: int) -> Encoded:
    """An array of a row gets a head, and a name that says what it is."""
    field = shard.table.fields[at]
    head = npy_head(np.dtype(field.dtype), field.shape)
    ended = name if name.rpartition(".")[2] == "npy" else f"{name}.npy"
    return Encoded(ended, head + shard.read(number, at).tobytes(), None, replace(field, name="npy", skip=len(head)))


def _array(field: Field) -> Field | None:
    """What the writer is told of an array: that of other samples may be another."""
    return Field("npy", field.dtype, field.shape, field.skip) if field.array_nbytes else None
