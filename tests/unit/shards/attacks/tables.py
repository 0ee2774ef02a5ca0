"""Tables and footers that are made to harm who reads them, with checksums that are right."""

import dataclasses

import numpy as np

from swift_loader.shards.fields import Field
from swift_loader.shards.table import ABSENT, Rows, sealed
from tests.unit.shards.made import table

HUGE = (1 << 64) - 1


def _head(at, value, width=8):
    data = bytearray(table().written())
    data[at : at + width] = value.to_bytes(width, "little")
    return sealed(bytes(data[:192])) + bytes(data[192:])


def _entry(sample, field, **changed):
    made = table()
    for name, value in changed.items():
        made.entries[sample, field, {"offset": 0, "nbytes": 1}[name]] = value
    return made.written()


def _fields(*fields):
    return table(3, fields).written()


ATTACKS = {
    "two_billion_samples": _head(16, 1 << 31),
    "more_samples_than_there_are_numbers": _head(16, HUGE),
    "no_samples": _head(16, 0),
    "four_billion_fields": _head(12, (1 << 32) - 1, 4),
    "no_fields": _head(12, 0, 4),
    "another_header": _head(8, 64, 4),
    "samples_part_of_an_exabyte": _head(24, 1 << 60),
    "a_position_that_overflows": _head(32, HUGE),
    "fields_over_the_header": _head(72, 0),
    "entries_over_fields": _head(80, 192),
    "columns_behind_the_end": _head(88, 1 << 62),
    "keys_over_entries": _head(96, 384),
    "keys_before_the_table": _head(104, HUGE - 100),
    "an_end_behind_the_end": _head(112, HUGE),
    "flags_of_tomorrow": _head(120, 1 << 63),
    "rows_without_rows": _head(120, 1),
    "a_sample_behind_the_end": _entry(4, 2, offset=1 << 50),
    "a_sample_of_an_exabyte": _entry(1, 1, nbytes=1 << 60),
    "a_sample_whose_end_overflows": _entry(4, 1, nbytes=HUGE - 1),
    "a_sample_whose_end_comes_round": _entry(4, 1, offset=HUGE - 100, nbytes=200),
    "a_sample_over_another": _entry(2, 1, offset=512),
    "samples_that_go_back": _entry(0, 1, offset=40_000),
    "an_array_larger_than_its_member": _entry(0, 2, nbytes=10),
    "all_absent_but_one_that_is_elsewhere": dataclasses.replace(
        table(), entries=np.full((5, 3, 3), ABSENT - 1, "<u8")
    ).written(),
    "an_array_of_an_exabyte": _fields(Field("x.npy", "<f8", (1 << 31, 1 << 31, 1 << 31, 1 << 31))),
    "an_array_of_objects": _fields(Field("x.npy", "|O", (1,))),
    "a_dtype_of_code": _fields(Field("x.npy", "<f4", (1,))).replace(b"<f4\0\0\0\0\0", b"os.exit\0"),
    "five_dimensions": _fields(Field("x.npy", "<f4", (1, 1, 1, 1))).replace(b"\4\0\0\0", b"\5\0\0\0", 1),
    "a_field_that_is_a_path": _fields(Field("../../etc/passwd")),
    "a_field_with_an_end_of_line": _fields(Field("a\nb")),
    "a_field_twice": _fields(Field("a"), Field("a")),
    "keys_that_go_back": table(key_ends=np.array([6, 12, 11, 24, 30], "<u8")).written(),
    "keys_of_an_exabyte": table(key_ends=np.array([6, 12, 18, 24, 1 << 60], "<u8")).written(),
    "an_empty_key": table(key_ends=np.array([0, 12, 18, 24, 30], "<u8")).written(),
    "rows_behind_the_end": table(
        6, (Field("x", "<u2", (512,)),), rows=Rows(1 << 60, 1 << 60), entries=np.zeros((6, 1, 1), "<u8")
    ).written(),
    "rows_of_nothing": table(
        6, (Field("x", "<u2", (512,)),), rows=Rows(0, 0), entries=np.zeros((6, 1, 1), "<u8")
    ).written(),
    "nothing": b"",
    "a_header_alone": table().written()[:192],
    "noise": bytes(range(256)) * 8,
}  # fmt: skip
