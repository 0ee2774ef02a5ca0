"""Tables, catalogs and whole shards, made for tests."""

import numpy as np

from swift_loader.host.xxhash import digest_of, wide_digest_of
from swift_loader.shards import catalog, tar
from swift_loader.shards.catalog import Shard
from swift_loader.shards.fields import COLUMN, Field
from swift_loader.shards.table import FOOTER_FROM_END, MEMBER, Footer, Origin, Table

FIELDS = (Field("cls", "<i8", flags=COLUMN), Field("jpg"), Field("x.npy", "<f4", (2, 3), 128))


def table(samples=5, fields=FIELDS, seed=0, **changed):
    """A table whose samples lie one behind the other, of fields with 1 to 1,000 bytes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 1000, (samples, len(fields))).astype(np.uint64)
    for number, field in enumerate(fields):
        if (field.array_nbytes or 1 << 62) < 1 << 50:
            sizes[:, number] = field.array_nbytes + field.skip
    steps = (512 + -(-sizes // 512) * 512).reshape(-1)
    offsets = (np.cumsum(steps) - steps + 512).reshape(samples, len(fields))
    entries = np.stack((offsets, sizes, rng.integers(0, 1 << 63, sizes.shape).astype(np.uint64)), axis=2)
    keys = [f"k{i:05d}".encode() for i in range(samples)]
    given = {
        "samples": samples, "fields": fields, "payload_nbytes": int(steps.sum()), "payload_digest": bytes(range(16)),
        "entries": entries.astype("<u8"), "columns": {
            field.name: rng.integers(0, 99, samples).astype(field.dtype) for field in fields if field.has_column
        },
        "key_ends": np.cumsum([len(key) for key in keys]).astype("<u8"), "key_bytes": memoryview(b"".join(keys)),
        "origin": Origin(7, 100, bytes(range(16, 32)), is_last=True),
    }  # fmt: skip
    return Table(**{**given, **changed})


def shard(samples, **origin):
    """The bytes of a shard: of keys, each with a dict of bytes by field."""
    payload, entries, names = bytearray(), [], sorted(set().union(*(fields for _, fields in samples)))
    for key, fields in samples:
        for name in names:
            data = fields[name]
            payload += tar.header(f"{key}.{name}".encode(), len(data))
            entries.append((len(payload), len(data), digest_of(data)))
            payload += data + tar.PADDING[-len(data) % 512]
    keys = [key.encode() for key, _ in samples]
    written = Table(
        len(samples), tuple(map(Field, names)), len(payload), wide_digest_of(payload),
        np.array(entries, "<u8").reshape(len(samples), len(names), 3), {},
        np.cumsum([len(key) for key in keys]).astype("<u8"), memoryview(b"".join(keys)), Origin(**origin),
    ).written()  # fmt: skip
    at = len(payload) + 512
    footer = Footer(at, len(written), digest_of(written), at + len(written) + FOOTER_FROM_END, len(samples)).written()
    return bytes(payload) + tar.header(MEMBER, len(written) + 512) + written + footer + tar.END


def lines(count, samples=10):
    """Shards of a catalog."""
    return [
        Shard(f"shard-{k:06d}.tar", samples + k, 10_000 + k, 8000, 488, k, bytes([k % 256] * 16)) for k in range(count)
    ]


def catalog_bytes(count=3, **given):
    return catalog.write(lines(count), **given)
