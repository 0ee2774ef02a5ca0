"""Catalogs that are made to harm who reads them, with checksums that are right."""

import numpy as np

from swift_loader.host.xxhash import wide_digest_of
from swift_loader.shards.catalog import ROW, Shard, write
from swift_loader.shards.table import sealed
from tests.unit.shards.made import catalog_bytes, lines

HUGE = (1 << 64) - 1


def resealed(data):
    """The same bytes with checksums that are right."""
    data = bytearray(data)
    data[144:160] = wide_digest_of(data[4096:])
    data[:4096] = sealed(bytes(data[:4096]))
    return bytes(data)


def _head(at, value):
    data = bytearray(catalog_bytes())
    data[at : at + 8] = value.to_bytes(8, "little")
    return resealed(data)


def _row(**changed):
    data = bytearray(catalog_bytes())
    rows = np.frombuffer(data, ROW, 3, 4096)
    for name, value in changed.items():
        rows[name][1] = value
    return resealed(data)


def named(name):
    """A catalog whose last shard is called so."""
    return write([*lines(3), Shard(name, 1, 9000, 8000, 488, 0, bytes(16))])


ATTACKS = {
    "a_name_above": named("../../../etc/passwd"),
    "a_name_from_the_root": named("/etc/passwd"),
    "a_name_above_within": named("a/../../b"),
    "a_name_with_an_end": named("a.tar\0.png"),
    "a_name_of_windows": named("..\\..\\a"),
    "a_name_of_the_folder": named("."),
    "no_name": named(""),
    "a_name_of_ten_kilobytes": named("a" * 10_000),
    "a_name_twice": named("shard-000000.tar"),
    "a_name_that_is_no_text": resealed(named("zzz").replace(b"zzz", b"z\xffz")),
    "a_name_that_begins_inside_a_letter": resealed(
        write([Shard("aä", 1, 9000, 8000, 488, 0, bytes(16)), Shard("äb", 1, 9000, 8000, 488, 0, bytes(16))])
        .replace(b"\x03\0\0\0\0\0\0\0\x03\0", b"\x02\0\0\0\0\0\0\0\x04\0")
    ),
    "more_shards_than_there_are_numbers": _head(24, HUGE),
    "shards_whose_size_comes_round": _head(24, (1 << 57) + 3),
    "no_shards": _head(24, 0),
    "samples_that_are_not_there": _head(32, 1 << 62),
    "rows_over_the_header": _head(88, 0),
    "names_behind_the_end": _head(104, HUGE - 10),
    "names_of_an_exabyte": _head(112, 1 << 60),
    "notes_of_an_exabyte": _head(128, 1 << 60),
    "a_file_of_an_exabyte": _head(136, 1 << 60),
    "a_shard_without_samples": _row(count=0),
    "a_shard_of_many_samples": _row(count=HUGE),
    "a_shard_of_an_exabyte": _row(object_nbytes=1 << 60),
    "a_table_behind_the_end": _row(table_offset=HUGE - 10),
    "a_table_of_an_exabyte": _row(table_nbytes=1 << 60, object_nbytes=(1 << 48) - 1),
    "samples_that_do_not_follow": _row(first=HUGE),
    "a_kind_of_tomorrow": _row(kind=60_000),
    "rows_behind_the_end": _row(kind=2, rows_offset=HUGE, row_nbytes=HUGE),
    "nothing": b"",
    "a_header_alone": catalog_bytes()[:4096],
    "noise": bytes(range(256)) * 40,
}  # fmt: skip
