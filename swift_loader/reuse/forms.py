"""The forms of what is kept: told once in the index, by whoever keeps the first sample of one, and read by all others.

What a writer that was killed has left half written is no form, and is written over by the next.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_loader.batch.codec import encode
from swift_loader.batch.record import PICKLED, Form, form_of, load, pickled
from swift_loader.host.xxhash import digest_of
from swift_loader.reuse import index

if TYPE_CHECKING:
    from swift_loader.host.locks import Locks
    from swift_loader.reuse.files import Files

_WAIT_S = 5.0
_HEAD = struct.Struct("<QQ")
#: So many forms are told; samples of further ones are pickled.
_MOST = 64
#: And of these so many with their shapes.
_MOST_CLOSED = 16
_MASK = (1 << 64) - 1


class Forms:
    """Those of one store, each with a number.

    Args:
        files: Where they are told.
        locks: Of the same store: one teller at a time.
        home: Finds classes of ``__main__`` by their names.
    """

    def __init__(self, files: Files, locks: Locks, home: Callable[[str], Any]) -> None:
        self._fd = files.index_fd
        self._id = files.header.store_id & _MASK
        self._locks = locks
        self._home = home
        self._known: list[Form | None] = [None]
        self._numbers: dict[Form, int] = {}
        self._end = index.FORMS

    def number_of(self, structure: Any, columns: tuple[Any, ...]) -> int:
        """The form that can be put to rows of these columns as it is; 0 if there is none."""
        for number, form in enumerate(self._all()):
            if form is not None and not form.is_open and form.structure == structure and form.columns == columns:
                return number
        return PICKLED

    def parts_of(self, sample: Any) -> tuple[int, list[Any]]:
        """A sample as pieces of memory, and the number of its form, which is told where it is a new one."""
        taken_apart = form_of(sample)
        if taken_apart is not None:
            form, leaves = taken_apart
            number = self._numbers.get(form)
            if number is None and len(self._all()) <= _MOST_CLOSED:
                number = self._add(form)
            if number:
                return number, leaves
            form, leaves = form.opened(leaves)
            number = self._numbers.get(form) or self._add(form)
            if number:
                return number, leaves
        return PICKLED, pickled(sample)

    def of(self, number: int) -> Form | None:
        """None for one that is not told, or of a class that is not here."""
        if number >= len(self._known):
            self._all()
        return self._known[number] if number < len(self._known) else None

    def _all(self) -> list[Form | None]:
        """All that were told so far."""
        while (found := self._told_at(self._end)) is not None:
            raw, self._end = found
            try:
                form: Form | None = load(raw, [], self._home)
            except (AttributeError, ImportError, pickle.UnpicklingError):  # of a class that is not here
                form = None
            self._known.append(form)
            if form is not None:
                self._numbers.setdefault(form, len(self._known) - 1)
        return self._known

    def _told_at(self, place: int) -> tuple[bytes, int] | None:
        head = os.pread(self._fd, _HEAD.size, place)
        if len(head) < _HEAD.size:
            return None
        nbytes, digest = _HEAD.unpack(head)
        if not 0 < nbytes <= index.CLAIMS - place:
            return None
        raw = os.pread(self._fd, nbytes, place + _HEAD.size)
        whole = digest_of(raw, self._id) == digest
        return (raw, place + _HEAD.size + nbytes) if whole else None

    def _add(self, form: Form) -> int:
        if len(self._all()) > _MOST or not self._locks.take(index.LOCK_FORMS, wait_s=_WAIT_S):
            return self._numbers.get(form, PICKLED)
        try:
            self._all()
            if form in self._numbers:
                return self._numbers[form]
            stream = encode(form).stream
            raw = _HEAD.pack(len(stream), digest_of(stream, self._id)) + stream
            if self._end + len(raw) > index.CLAIMS or load(stream, [], self._home) != form:
                return PICKLED
            os.pwrite(self._fd, raw, self._end)
            self._all()
            return self._numbers.get(form, PICKLED)
        except (AttributeError, ImportError, pickle.UnpicklingError):
            return PICKLED
        finally:
            self._locks.leave(index.LOCK_FORMS)
