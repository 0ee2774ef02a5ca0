"""Whole sets in a folder, made byte by byte for tests, of samples that any dataset might have."""

import io

import numpy as np
from PIL import Image

from swift_loader.host.xxhash import digest_of, wide_digest_of
from swift_loader.shards import catalog, tar
from swift_loader.shards.catalog import Shard
from swift_loader.shards.fields import COLUMN, Field
from swift_loader.shards.table import ABSENT, FOOTER_FROM_END, MEMBER, Footer, Origin, Table


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def png(number):
    file = io.BytesIO()
    Image.new("RGB", (4, 3), (number % 256, 7, 9)).save(file, "png")
    return file.getvalue()


def sample(number):
    """A sample with a field of each sort; every fifth has no text."""
    return {
        "cls": str(number % 10).encode(),
        "json": f'{{"number": {number}}}'.encode(),
        "png": png(number),
        **({} if number % 5 == 4 else {"txt": f"text {number}".encode()}),
        "x.npy": npy(np.full((2, 3), number, np.float32)),
    }


FIELDS = (
    Field("cls", "<i8", flags=COLUMN), Field("json"), Field("png"), Field("txt"), Field("x.npy", "<f4", (2, 3), 128),
)  # fmt: skip


def shard_bytes(samples, first, fields=FIELDS):
    """A shard of these samples, from the key ``first`` on; and its line of a catalog, without a name."""
    payload, entries, keys = bytearray(), [], b""
    ends = []
    for number, each in enumerate(samples, first):
        key = f"{number:09d}".encode()
        keys += key
        ends.append(len(keys))
        for field in fields:
            data = each.get(field.name)
            if data is None:
                entries.append((0, ABSENT, 0))
                continue
            payload += tar.header(key + b"." + field.name.encode(), len(data))
            entries.append((len(payload), len(data), digest_of(data)))
            payload += data + tar.PADDING[-len(data) % 512]
    columns = {
        field.name: np.array([int(each[field.name]) for each in samples], "<i8") for field in fields if field.has_column
    }
    table = Table(
        len(samples), fields, len(payload), wide_digest_of(payload),
        np.array(entries, "<u8").reshape(len(samples), len(fields), 3), columns, np.array(ends, "<u8"),
        memoryview(keys), Origin(first),
    )  # fmt: skip
    written = table.written()
    at = len(payload) + 512
    size = at + len(written) + FOOTER_FROM_END
    footer = Footer(at, len(written), digest_of(written), size, len(samples)).written()
    data = bytes(payload) + tar.header(MEMBER, len(written) + 512) + written + footer + tar.END
    return data, ("", len(samples), size, at, len(written), digest_of(written), table.payload_digest)


def write_set(folder, count=23, per_shard=7, make=sample, fields=FIELDS, *, with_catalog=True):
    """A set of ``count`` samples in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for first in range(0, count, per_shard):
        name = f"shard-{len(lines):06d}.tar"
        data, line = shard_bytes([make(at) for at in range(first, min(first + per_shard, count))], first, fields)
        (folder / name).write_bytes(data)
        lines.append(Shard(name, *line[1:]))
    if with_catalog:
        (folder / "index.swift").write_bytes(catalog.write(lines))
        (folder / "index-000001.swift").write_bytes(catalog.write(lines))
    return folder
