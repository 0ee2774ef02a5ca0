"""LitData's own form of lists and dicts in a field: read with no more room than its bytes can ask for. Pure.

0 u32 n, JSON      1 u32 n, texts      2 u32 n, i64      3 u32 n, f64      4 u32 n, a byte each
5 u32 n, of each a text and a value    6 u32 rows, u32 keys, the keys, of each row and key a tag and a value
7 text   8 i64   9 f64   10 byte   11 nothing;   a text is u32 n and UTF-8;   tags in rows: 16 nothing 17 text
18 i64   19 f64   20 byte.   What begins with another byte is JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from swift_loader.errors import DataError

_MOST_DEPTH = 100
_LAST_TAG = 32


def read_nested(data: Any) -> Any:
    """The value."""
    raw = bytes(data)
    return json.loads(raw) if not raw or raw[0] > _LAST_TAG else _Nested(raw).value(0)


class _Nested:
    """What is read, and how far it was read."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0
        self._kinds: tuple[Callable[[int], Any], ...] = (
            lambda _: json.loads(self._take(self._count())), lambda _: [self._text() for _ in range(self._count(4))],
            lambda _: self._numbers("q"), lambda _: self._numbers("d"), lambda _: self._numbers("?"),
            lambda depth: {self._text(): self.value(depth + 1) for _ in range(self._count(5))}, lambda _: self._rows(),
            lambda _: self._text(), lambda _: self._number("q"), lambda _: self._number("d"),
            lambda _: self._number("?"), lambda _: None,
        )  # fmt: skip
        self._cells: tuple[Callable[[], Any], ...] = (
            lambda: None, self._text, lambda: self._number("q"), lambda: self._number("d"), lambda: self._number("?"),
        )  # fmt: skip

    def value(self, depth: int) -> Any:
        tag = self._take(1)[0]
        if tag >= len(self._kinds) or depth > _MOST_DEPTH:
            raise DataError(f"a nested value is damaged at its byte {self._at}, or too deep")
        return self._kinds[tag](depth)

    def _rows(self) -> list[dict[str, Any]]:
        count = self._count()
        keys = [self._text() for _ in range(self._count(4))]
        if count * len(keys) > len(self._raw) - self._at or not keys:
            raise DataError("a nested value has more rows than bytes")
        return [{key: self._cell() for key in keys} for _ in range(count)]

    def _cell(self) -> Any:
        tag = self._take(1)[0] - 16
        if not 0 <= tag < len(self._cells):
            raise DataError(f"a nested value is damaged at its byte {self._at}")
        return self._cells[tag]()

    def _count(self, least: int = 0) -> int:
        """A count of what takes so many bytes each at least."""
        count: int = self._number("I")
        if count * least > len(self._raw) - self._at:
            raise DataError(f"a nested value counts {count:,} items, and has {len(self._raw) - self._at:,} bytes")
        return count

    def _text(self) -> str:
        return self._take(self._count(1)).decode()

    def _number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self._take(struct.calcsize(f"<{kind}")))[0]

    def _numbers(self, kind: str) -> list[Any]:
        nbytes = struct.calcsize(f"<{kind}")
        count = self._count(nbytes)
        return list(struct.unpack(f"<{count}{kind}", self._take(count * nbytes)))

    def _take(self, nbytes: int) -> bytes:
        part = self._raw[self._at : self._at + nbytes]
        if len(part) != nbytes:
            raise DataError("a nested value ends too early")
        self._at += nbytes
        return part
