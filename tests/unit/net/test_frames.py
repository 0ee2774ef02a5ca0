"""Frames, and what is said of arrays: what a stranger sends is refused before anything is made for it."""

from __future__ import annotations

import math
import os
import pickle
import random
import socket
import struct
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader import ProtocolError
from swift_loader.net import arrays, schema
from swift_loader.net import link as link_module
from swift_loader.net.frames import BATCH, BEAT, HEAD, HELLO, MAGIC, STRANGER, Limits, read_head, write_head
from swift_loader.net.link import Link, LinkLost
from swift_loader.net.receiver import SMALL_BUFFER_NBYTES, Receiver

WIDE = Limits(1 << 20, 1 << 30)
DTYPES = ("<f4", "|b1", "|u1", ">i8", "<c16", "<U3", "|S5", "<M8[ns]", "<f2")


KINDS = st.sampled_from([BATCH, BEAT, HELLO])


@given(KINDS, st.integers(0, 1 << 20), st.integers(0, 2**64 - 1), st.integers(0, 1 << 30))
def test_a_head_is_read_as_it_was_written(kind: int, meta: int, seq: int, bulk: int):
    assert read_head(write_head(kind, meta, seq, bulk), WIDE) == (kind, meta, seq, bulk)


@pytest.mark.parametrize(
    "head",
    [
        HEAD.pack(MAGIC + 1, BEAT, 0, 0, 0, 0), HEAD.pack(MAGIC, 99, 0, 0, 0, 0), HEAD.pack(MAGIC, BEAT, 1, 0, 0, 0),
        HEAD.pack(MAGIC, HELLO, 0, 5000, 0, 0), HEAD.pack(MAGIC, HELLO, 0, 0, 0, 1),
        HEAD.pack(MAGIC, HELLO, 0, 0xFFFFFFFF, 0, 2**63), b"GET / HTTP/1.1\r\nHost: a\r\n", bytes(24), b"\x16\x03" * 12,
    ],
)  # fmt: skip
def test_what_is_no_head_for_a_stranger_is_refused(head: bytes):
    with pytest.raises(ProtocolError):
        read_head(head, STRANGER)


@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=4), st.booleans()), max_size=4))
def test_arrays_come_back_as_they_were(given_ones):
    made = []
    for dtype, shape, is_fortran in given_ones:
        data = np.frombuffer(random.Random(1).randbytes(4096), np.uint8)
        array = np.zeros(shape, dtype, order="F" if is_fortran else "C")
        array.reshape(-1, order="A").view(np.uint8)[:] = data[: array.nbytes] % 2 if array.nbytes else 0
        made.append(array)
    told = [arrays.described(array) for array in made]
    placed = arrays.places(told)
    bulk = bytearray(arrays.total_nbytes(placed))
    for array, place in zip(made, placed, strict=True):
        assert place.start % arrays.ALIGNMENT == 0
        bulk[place.start : place.start + place.nbytes] = array.tobytes("A")
    for before, after in zip(made, arrays.taken(told, memoryview(bulk)), strict=True):
        assert (before.dtype, before.shape) == (after.dtype, after.shape)
        assert before.tobytes() == after.tobytes()


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("|O", [1]), ("<V8", [1]), ("<f3", [1]), ("__import__('os')", [1]), ("<f4,<f4", [1]), ("<f4", [-1]),
        ("<f4", [2**62, 2**62]), ("<f8", [2**61]), ("<f4", [1] * 33), ("<f4", [0, 2**62, 2**62]), ("", [1]),
        ("<U999999999", [2**40]), ("<M8[zz]", [1]),
    ],
)  # fmt: skip
def test_arrays_that_cannot_be_are_refused(dtype: str, shape: list[int]):
    with pytest.raises(ProtocolError):
        arrays.taken([arrays.Described(dtype, tuple(shape), False)], memoryview(bytes(64)))


def test_arrays_that_do_not_fill_what_came_are_refused():
    with pytest.raises(ProtocolError, match="8 bytes were announced, and 64 came"):
        arrays.taken([arrays.Described("<f4", (2,), False)], memoryview(bytes(64)))


def test_objects_and_records_are_not_described():
    assert arrays.described(np.array([None])) is None
    assert arrays.described(np.zeros(2, [("a", "<f4")])) is None


class Touching:
    def __reduce__(self):
        return os.mkdir, ("/tmp/never",)


@pytest.mark.parametrize("kind", [schema.Hello, schema.Batch, schema.Failure, schema.Welcome, schema.Refused])
def test_what_is_no_such_word_is_refused(kind):
    for meta in (b"", b"\x93", pickle.dumps(Touching()), b"\xc1", b"\x91" * 5000, schema.write(schema.End(1, 2)) * 2):
        with pytest.raises(ProtocolError):
            schema.read(kind, meta)
    assert not os.path.exists("/tmp/never")


def test_a_hello_of_a_later_version_is_understood():
    import msgspec

    later = msgspec.msgpack.encode(
        {"lowest": 1, "highest": 9, "package": "7.0", "asks_for": "stream", "news": [1, {"a": None}]}
    )
    assert schema.common_version(schema.read(schema.Hello, later)) == schema.HIGHEST
    too_late = schema.Hello(schema.HIGHEST + 1, schema.HIGHEST + 2, "9", "stream")
    assert schema.common_version(too_late) is None


def fed(data: bytes, limits: Limits, chance: random.Random) -> list:
    """What a receiver makes of these bytes, as they come in pieces."""
    ours, theirs = socket.socketpair()
    receiver = Receiver(Link(ours, "a test"), limits, buffer_nbytes=chance.choice((SMALL_BUFFER_NBYTES, 1 << 16)))
    frames = []
    with ours, theirs:
        at = 0
        while at < len(data):
            size = chance.choice((1, 7, 100, 5000, 40_000))
            theirs.sendall(data[at : at + size])
            at += size
            while (frame := receiver.read()) is not None:
                frames.append((frame.kind, frame.seq, bytes(frame.meta), bytes(frame.bulk)))
    return frames


@pytest.mark.parametrize("seed", range(5))
def test_frames_come_whole_however_their_bytes_come(seed: int):
    chance = random.Random(seed)
    sizes = (0, 1, 100, 16_383, 16_384, 70_000)
    sent = [
        (BATCH, number, chance.randbytes(chance.choice(sizes)), chance.randbytes(chance.choice((*sizes, 300_000))))
        for number in range(12)
    ]
    data = b"".join(write_head(kind, len(meta), seq, len(bulk)) + meta + bulk for kind, seq, meta, bulk in sent)
    assert fed(data, WIDE, chance) == sent


def test_a_batch_of_made_up_arrays_is_read_or_refused():
    chance = random.Random(2)
    for _ in range(3_000):
        dtype = chance.choice(("<f4", "|O", "<U4", "|S0", "<M8[D]", "x" * chance.randrange(50)))
        shape = [chance.choice((0, 1, 3, 2**31, 2**62)) for _ in range(chance.randrange(5))]
        meta = bytearray(schema.write(schema.Batch(1, 2, [(dtype, shape, chance.random() < 0.5)])))
        if chance.random() < 0.5:
            meta[chance.randrange(len(meta))] = chance.randrange(256)
        try:
            arrays.taken(schema.described(schema.read(schema.Batch, bytes(meta))), memoryview(bytes(48)))
        except ProtocolError:
            continue


def test_who_sends_waits_for_ever_where_that_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(link_module, "_LONGEST_WAIT_S", 0.01)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link, sent = Link(ours, "a test"), bytes(4 << 20)
        with pytest.raises(LinkLost, match=r"taken nothing for 0\.02 s"):
            link.send([sent], 0.02)
        reader = threading.Timer(0.1, lambda: [theirs.recv(1 << 20) for _ in range(400)])
        reader.start()
        link.send([sent], math.inf)
        ours.close()
        reader.join(10)


def test_heads_are_as_long_as_they_are_told_to_be():
    assert HEAD.size == 24
    assert struct.calcsize(HEAD.format) == 24
