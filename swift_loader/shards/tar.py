"""Members of tar files: their headers written from a template, and read from files of anybody's. Pure.

What is written is plain ustar, with a pax record where a name is too long for it. What is read is that, and GNU's long
names. Nothing is ever extracted: a member's name is text, and no path of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from zlib import adler32

from swift_loader.errors import ShardError

BLOCK = 512
#: What ends a tar file.
END = bytes(2 * BLOCK)
#: Zeros behind a member's bytes, by how many there are.
PADDING = tuple(bytes(count) for count in range(BLOCK))

_MOST_NBYTES = 8**11 - 1
_MOST_MEMBERS = 1 << 31
_MOST_PAX_NBYTES = 64 << 10
_NAME, _PREFIX = 100, 155
#: Mode 0444, nobody's, of the time 0: the same samples are the same bytes, whoever writes them and when.
_BEFORE_SIZE = b"0000444\0" + b"0000000\0" * 2
_BEFORE_SUM = b"00000000000\0"
_MAGIC = b"ustar\x0000"
_BEHIND_SUM = bytes(100) + _MAGIC + bytes(64) + b"0000000\0" * 2
_REST = bytes(12)
#: The sum over all that is the same in each header, with spaces for the sum itself.
_BASE = sum(_BEFORE_SIZE) + sum(_BEFORE_SUM) + sum(_BEHIND_SUM) + 8 * ord(" ")
_PLAIN_BASE = _BASE + ord("0") - 1
_PLAIN_END = b"0" + _BEHIND_SUM + bytes(_PREFIX) + _REST
_FILES = b"0\0007"
_ZEROS = bytes(BLOCK)
#: Size, time, sum and kind of a file, as everybody writes them.
_PLAIN = re.compile(rb"([0-7]{11})[\0 ].{12}([0-7]{6})\0 [0\0]", re.DOTALL)
_HIDDEN = re.compile(rb"__[^/]*__(?:/|$)")


class Member(NamedTuple):
    """A file in a tar file."""

    name: bytes
    offset: int
    """Of its first byte; its header is before it."""
    nbytes: int


def header(name: bytes, nbytes: int) -> bytes:
    """What stands before a file of so many bytes: one block, or three where the name needs a record of its own."""
    if nbytes > _MOST_NBYTES:
        raise ShardError.at(
            "a member is too large for a tar file, which may have 8 GiB of it", None, _MOST_NBYTES, nbytes
        )
    if len(name) <= _NAME:
        size = b"%011o\0" % nbytes
        # Of a few bytes this is one more than their sum, several times as fast as `sum`.
        total = _PLAIN_BASE + (adler32(size, adler32(name)) & 0xFFFF)
        return b"%b%b%b%b%06o\0 %b" % (name.ljust(_NAME, b"\0"), _BEFORE_SIZE, size, _BEFORE_SUM, total, _PLAIN_END)
    cut = name.rfind(b"/", 0, _PREFIX + 1)
    if cut > 0 and len(name) - cut - 1 <= _NAME:
        return _block(name[cut + 1 :], nbytes, b"0", name[:cut])
    record = _pax_record(b"path", name)
    return b"".join((
        _block(b"././@PaxHeader", len(record), b"x", b""), record, PADDING[-len(record) % BLOCK],
        _block(name[:_NAME], nbytes, b"0", b""),
    ))  # fmt: skip


def header_nbytes(name_nbytes: int) -> int:
    """The most that `header` takes for a name of so many bytes."""
    return BLOCK if name_nbytes <= _NAME else BLOCK * (2 + -(-(name_nbytes + 16) // BLOCK))


def padded(nbytes: int) -> int:
    """What so many bytes take, with the zeros behind them."""
    return -(-nbytes // BLOCK) * BLOCK


def is_hidden(name: bytes) -> bool:
    """Whether readers of webdatasets pass over it: ours is one of those, and no sample's may be."""
    return _HIDDEN.match(name) is not None


def members(data: memoryview) -> Iterator[Member]:
    """All files of a tar file, in its order.

    Raises:
        ShardError: at what is no file: links, devices, sparse files, names or sizes that cannot be, a damaged header.
    """
    place, count, told, total = 0, 0, _NOTHING, data.nbytes
    plain, made = _PLAIN.match, tuple.__new__
    while place + BLOCK <= total:
        block = bytes(data[place : place + BLOCK])
        parts = plain(block, 124) if told is _NOTHING else None
        if parts is not None and not block[345] and _is_sum(int(parts[2], 8), block):
            # Nearly all headers are such: the same as below, in half the time.
            begin, nbytes = place + BLOCK, int(parts[1], 8)
            place = begin + -(-nbytes // BLOCK) * BLOCK
            if place > total:
                raise _cut(begin, nbytes, total)
            count += 1
            if count > _MOST_MEMBERS:
                _refuse_many(count, begin)
            yield made(Member, (block[:_NAME].partition(b"\0")[0], begin, nbytes))
            continue
        if block == _ZEROS:
            _refuse_loose(told, place)
            return
        kind = _kind_of(block, place)
        nbytes = _size_of(block, place) if told.nbytes is None or kind not in _FILES else told.nbytes
        begin, place = place + BLOCK, place + BLOCK + padded(nbytes)
        if place > total:
            raise _cut(begin, nbytes, total)
        if kind in _FILES:
            count += 1
            _refuse_many(count, begin)
            yield Member(told.name or _name_of(block), begin, nbytes)
            told = _NOTHING
        elif kind != b"5":
            told = _told(kind, data[begin : begin + nbytes], begin, told)
    _refuse_loose(told, place)
    if place != total or total < BLOCK:
        raise ShardError.at("the file is cut inside a block", min(place, total), None)


class _Told(NamedTuple):
    """What records before a member say of it."""

    name: bytes | None
    nbytes: int | None


_NOTHING = _Told(None, None)


def _block(name: bytes, nbytes: int, kind: bytes, prefix: bytes) -> bytes:
    size = b"%011o\0" % nbytes
    total = _BASE + sum(size) + kind[0] + sum(name) + sum(prefix)
    fields = (name.ljust(_NAME, b"\0"), _BEFORE_SIZE, size, _BEFORE_SUM, total, kind, _BEHIND_SUM)
    return b"%b%b%b%b%06o\0 %b%b" % fields + prefix.ljust(_PREFIX, b"\0") + _REST


def _pax_record(key: bytes, value: bytes) -> bytes:
    """``LENGTH key=value``, where the length counts its own digits."""
    rest = b" %b=%b\n" % (key, value)
    nbytes = len(rest) + len(str(len(rest)))
    nbytes = len(rest) + len(str(nbytes))
    return b"%d%b" % (nbytes, rest)


def _cut(begin: int, nbytes: int, total: int) -> ShardError:
    return ShardError.at("a member goes on behind the end of the file", begin - BLOCK, total, begin + nbytes)


def _is_sum(said: int, block: bytes) -> bool:
    """Whether it is the sum of the header's bytes, with spaces in the place of the sum; modulo 65521."""
    found = (adler32(block) & 0xFFFF) - (adler32(block[148:156]) & 0xFFFF) + 8 * ord(" ")
    return (found - said) % 65521 == 0 and said <= 255 * BLOCK


def _kind_of(block: bytes, place: int) -> bytes:
    if not _is_sum(_octal(block[148:156], place + 148), block):
        raise ShardError.at("the header of a member is damaged: its checksum is wrong", place)
    kind = block[156:157]
    if kind not in _FILES and kind not in b"5xgL":
        what = _REFUSED.get(kind, "of an unknown kind")
        raise ShardError.at(f"member {_shown(block)} is {what}, which shards do not have", place + 156, None)
    return kind


_REFUSED = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe",
    b"S": "a sparse file", b"K": "a link with a long name", b"M": "the rest of a file",
}  # fmt: skip


def _octal(field: bytes, place: int) -> int:
    digits = field.strip(b" \0")
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise ShardError.at("the header of a member is damaged: what should be a number is none", place, None, field)
    return int(digits, 8)


def _size_of(block: bytes, place: int) -> int:
    field = block[124:136]
    if field[0] & 0x80:  # GNU's way for more than 8 GiB; below zero where the next bit is set too
        nbytes = int.from_bytes(field, "big") & ~(0x80 << 88)
        if field[0] & 0x40 or nbytes >= 1 << 62:
            raise ShardError.at("a member has a size that cannot be", place + 124, None, field)
        return nbytes
    return _octal(field, place + 124)


def _name_of(block: bytes) -> bytes:
    name = block[:_NAME].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _shown(block: bytes) -> str:
    return repr(_name_of(block)[:200].decode(errors="replace"))


def _told(kind: bytes, record: memoryview, place: int, before: _Told) -> _Told:
    if record.nbytes > _MOST_PAX_NBYTES:
        raise ShardError.at("a record about a member is too large", place, f"at most {_MOST_PAX_NBYTES}", record.nbytes)
    if kind == b"L":
        return before._replace(name=bytes(record).partition(b"\0")[0])
    told = before
    for key, value in _pax(bytes(record), place):
        if key == b"path":
            told = told._replace(name=value.partition(b"\0")[0])
        elif key == b"size":
            told = told._replace(nbytes=_decimal(value, place))
        elif key.startswith(b"GNU.sparse"):
            raise ShardError.at("a member is a sparse file, which shards do not have", place)
    if kind == b"g" and told != before:
        raise ShardError.at("a record gives all members one name or one size", place)
    return told


def _pax(record: bytes, place: int) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(record) and record[at] != 0:
        length, space, _ = record[at : at + 20].partition(b" ")
        nbytes = _decimal(length, place + at) if space else 0
        key, equals, value = record[at + len(length) + 1 : at + nbytes].partition(b"=")
        if nbytes <= len(length) + 1 or at + nbytes > len(record) or not equals or not value.endswith(b"\n"):
            raise ShardError.at("a record about a member is damaged", place + at)
        yield key, value[:-1]
        at += nbytes


def _decimal(digits: bytes, place: int) -> int:
    if not digits.isdigit() or len(digits) > 19:
        raise ShardError.at("a record about a member is damaged: what should be a number is none", place)
    return int(digits)


def _refuse_loose(told: _Told, place: int) -> None:
    if told != _NOTHING:
        raise ShardError.at("a record about a member has no member behind it", place)


def _refuse_many(count: int, place: int) -> None:
    if count > _MOST_MEMBERS:
        raise ShardError.at("there are too many members", place, _MOST_MEMBERS, count)
