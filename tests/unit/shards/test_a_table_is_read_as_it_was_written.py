"""Tables and footers: what is written is read again, and what cannot be is refused."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.errors import ShardError
from swift_loader.host.xxhash import digest_of
from swift_loader.shards.fields import Field
from swift_loader.shards.table import ABSENT, Footer, Rows, Table, is_sealed, sealed
from tests.unit.shards.made import FIELDS, table

ROOM = 1 << 40


def same(one, other):
    for field in dataclasses.fields(Table):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)
        elif field.name == "columns":
            assert {k: v.tolist() for k, v in a.items()} == {k: v.tolist() for k, v in b.items()}
        else:
            assert a == b, field.name


@given(st.integers(1, 200), st.sets(st.sampled_from((*FIELDS, Field("txt"))), min_size=1), st.booleans())
def test_what_is_written_is_read_again(samples, fields, has_keys):
    keyless = {} if has_keys else {"key_ends": np.empty(0, "<u8"), "key_bytes": memoryview(b"")}
    made = table(samples, tuple(sorted(fields, key=lambda field: field.name)), **keyless)
    data = made.written()
    assert len(data) % 512 == 0
    read = Table.read(data, made.payload_nbytes, digest_of(data))
    same(made, read)
    assert read.key(samples - 1) == (f"k{samples - 1:05d}" if has_keys else f"{7 + samples - 1:09d}")
    assert read.written() == data


def test_a_table_that_was_read_copies_nothing_and_cannot_be_written_to():
    data = np.frombuffer(table().written(), np.uint8)
    read = Table.read(data, ROOM)
    assert np.shares_memory(read.entries, data)
    with pytest.raises(ValueError, match="read-only"):
        read.entries[0] = 0


def test_a_sample_may_lack_a_field():
    made = table()
    made.entries[2, 1] = (0, ABSENT, 0)
    same(made, Table.read(made.written(), ROOM))


def test_fields_of_a_sample_may_lie_in_any_order():
    made = table()
    made.entries[3, [0, 1]] = made.entries[3, [1, 0]]
    same(made, Table.read(made.written(), ROOM))


def test_rows_have_no_entries_but_their_checksums():
    made = table(
        6, (Field("x", "<u2", (512,)), Field("y", "|u1", (4,), 1024)), rows=Rows(64, 1028),
        entries=np.arange(6, dtype="<u8").reshape(6, 1, 1), payload_nbytes=64 + 6 * 1028,
    )  # fmt: skip
    same(made, Table.read(made.written(), made.payload_nbytes))


def _with_entry(sample, field, **changed):
    made = table()
    for name, value in changed.items():
        made.entries[sample, field, {"offset": 0, "nbytes": 1}[name]] = value
    return made.written()


REFUSED = {
    "overlaps": lambda: _with_entry(1, 1, offset=512),
    "ends_behind": lambda: _with_entry(4, 1, nbytes=1 << 40),
    "overflows": lambda: _with_entry(4, 1, nbytes=ABSENT - 1),
    "overflows_to_within": lambda: _with_entry(4, 1, nbytes=(1 << 64) - 1000),
    "array_of_another_size": lambda: _with_entry(0, 2, nbytes=151),
    "rows_behind": lambda: table(
        6, (Field("x", "<u2", (512,)),), rows=Rows(0, 1 << 60), entries=np.zeros((6, 1, 1), "<u8")
    ).written(),
    "no_such_dtype": lambda: table(3, (Field("x.npy", "O", ()),)).written(),
    "huge_shape": lambda: table(3, (Field("x.npy", "<f8", (1 << 31, 1 << 31)),)).written(),
    "field_twice": lambda: table(3, (Field("a"), Field("a"))).written(),
    "field_is_a_path": lambda: table(3, (Field("../x"),)).written(),
    "keys_go_back": lambda: table(key_ends=np.array([6, 12, 11, 24, 30], "<u8")).written(),
    "keys_go_behind": lambda: table(key_ends=np.array([6, 12, 18, 24, 31], "<u8")).written(),
    "unknown_flags": lambda: table(flags=1 << 40).written(),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name):
    with pytest.raises(ShardError):
        Table.read(REFUSED[name](), table().payload_nbytes)


@pytest.mark.parametrize(("at", "value"), [(8, 191), (12, 0), (12, 65), (16, 0), (16, 1 << 31), (72, 128), (80, 0)])
def test_a_head_that_cannot_be_is_refused(at, value):
    data = bytearray(table().written())
    width = 4 if at in (8, 12) else 8
    data[at : at + width] = value.to_bytes(width, "little")
    data[:192] = sealed(bytes(data[:192]))
    with pytest.raises(ShardError):
        Table.read(data, ROOM)


def test_each_bit_of_the_head_counts():
    data = table().written()
    for bit in range(192 * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ShardError):
            Table.read(flipped, ROOM)


def test_a_table_with_another_checksum_is_refused():
    with pytest.raises(ShardError, match="damaged") as caught:
        Table.read(table().written(), ROOM, 1)
    assert caught.value.expected == f"{1:016x}"


def test_a_footer_is_read_as_it_was_written():
    footer = Footer(8192, 1024, 77, 8192 + 1024 + 1536, 5)
    data = footer.written()
    assert is_sealed(data)
    assert Footer.read(data) == Footer.read(data, footer.object_nbytes) == footer
    with pytest.raises(ShardError, match="another size"):
        Footer.read(data, footer.object_nbytes + 1)


@pytest.mark.parametrize("changed", [{"table_nbytes": 1 << 33}, {"table_offset": 0}, {"object_nbytes": 100}])
def test_a_footer_that_points_elsewhere_is_refused(changed):
    footer = dataclasses.replace(Footer(8192, 1024, 77, 8192 + 1024 + 1536, 5), **changed)
    with pytest.raises(ShardError):
        Footer.read(footer.written())


def test_each_bit_of_a_footer_counts():
    data = Footer(8192, 1024, 77, 8192 + 1024 + 1536, 5).written()
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ShardError):
            Footer.read(bytes(flipped))
