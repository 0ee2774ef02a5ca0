"""LitData's own form of lists and dicts: what its writer writes is read by other tests; here what it does not write."""

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.errors import DataError
from swift_loader.shards.nested import read_nested
from tests.unit.shards.attacked import prompt_and_small


def text(value):
    return struct.pack("<I", len(value.encode())) + value.encode()


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1]}', {"a": [1]}),
        (b"\x00" + text("[1, null]"), [1, None]),
        (b"\x07" + text("ä"), "ä"),
        (b"\x08" + struct.pack("<q", -5), -5),
        (b"\x09" + struct.pack("<d", 0.5), 0.5),
        (b"\x0a\x01", True),
        (b"\x0b", None),
        (b"\x01" + bytes(4), []),
    ],
)
def test_each_form_is_read(data, value):
    assert read_nested(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0c",
        b"\x01\xff\xff\xff\xff",
        b"\x02\xff\xff\xff\x0f",
        b"\x06\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x06\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00",
        b"\x05\xff\xff\xff\x00",
        b"\x08\x00",
        b"\x07\x05\x00\x00\x00a",
        (b"\x05\x01\x00\x00\x00" + text("")) * 1000 + b"\x0b",
        b"\x06\x01\x00\x00\x00\x01\x00\x00\x00" + text("a") + b"\x15",
    ],
)
def test_what_cannot_be_is_refused_before_room_is_made_for_it(data):
    tracemalloc.start()
    try:
        with pytest.raises((DataError, ValueError)):
            read_nested(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 11))
def test_s8_whatever_it_holds_is_read_or_refused_at_once(data, tag):
    with prompt_and_small(), contextlib.suppress(DataError, ValueError):
        read_nested(bytes([tag]) + data)
