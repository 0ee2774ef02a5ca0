"""What is kept, and who makes what is missing.

    a sample is missing   its lock is taken; whoever waited for it looks again: it may be there now
    it is made            its bytes are written to free room, or over its former ones, and then its entry, at once
    it is read            its entry, then its bytes; both are checked, each time

A writer may be killed between any two of these: what an entry leads to fits its digest, or is missing. Locks end with
their holders. Whoever gets no answer, or an `OSError`, makes the sample as if there were no store.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.batch.record import MISSING, PICKLED, Empty, Form, anywhere, unpickled
from swift_loader.host.locks import Locks
from swift_loader.host.xxhash import digest_of, digest_of_parts
from swift_loader.reuse import entry, index
from swift_loader.reuse.entry import Entry
from swift_loader.reuse.files import Files
from swift_loader.reuse.forms import Forms
from swift_loader.reuse.reader import Mapped, Plain, Reader
from swift_loader.reuse.room import Room, capacity_of

if TYPE_CHECKING:
    from swift_loader.reuse.entry import Words


class Store:
    """What one process sees of a store.

    Args:
        files: The open files; closed with the store.
        home: Finds classes of ``__main__`` by their names.
        most_nbytes: The data file is not made longer than this.
        maps: Whether this process may be lost to a file that somebody cuts.
        wait_s: For so long a sample is waited for that somebody else makes.

    Raises:
        OSError: if the files are no longer what they were; they are closed then too.
    """

    def __init__(
        self, files: Files, home: Callable[[str], Any], *, most_nbytes: int | None, maps: bool, wait_s: float
    ) -> None:
        self.files = files
        self._home = home
        self._id = files.header.store_id
        self._count = files.header.origin.samples
        kind: type[Plain] = Mapped if maps else Plain
        try:
            self._reader: Reader = kind(files.index_fd, files.data_fd, self._count)
        except OSError:
            files.close()
            raise
        self._locks = Locks(files.index_fd)
        self._room = Room(files, self._locks, self._reader, most_nbytes)
        self._wait_s = wait_s
        self.forms = Forms(files, self._locks, home)
        self._epoch = -1
        self.is_full = False
        """There was no room for a sample."""

    def close(self) -> None:
        """Lets go of the files, and so of all locks."""
        self.files.close()

    def nbytes(self) -> int:
        """What the store takes of its disk."""
        return self._room.nbytes()

    # Reading ----------------------------------------------------------------------------------------------------

    def entry(self, number: int) -> Entry | None:
        """Where a sample lies; None if it is not kept."""
        self._reader.look()
        return entry.unpack(self._reader.raw(number), number, self._id)

    def get(self, number: int, made_for: int, empty: Empty = anywhere) -> Any:
        """A sample as it was made for that epoch; `MISSING` if it is not kept, or its bytes are not what they were.

        Its arrays are made by ``empty``.
        """
        found = self.entry(number)
        if found is None or found.made_for != made_for:
            return MISSING
        return self._read(found, empty)

    def all_at(self, numbers: Any, made_for: Any, form: int) -> Words | None:
        """The entries of many samples, if all are kept, as they were made for those epochs, in one form."""
        if not self._reader.look():
            return None
        words = self._reader.words(numbers)
        good = entry.sound(words, self._id) & (words[:, entry.INDEX] == numbers)
        good &= (words[:, entry.MADE_FOR] == made_for) & (words[:, entry.FORM] == form)
        return words if good.all() else None

    def nbytes_of(self, numbers: Any) -> tuple[int, int]:
        """How many of ``numbers`` are kept, and the bytes of all of them."""
        if not self._reader.look():
            return 0, 0
        words = self._reader.words(numbers)
        kept = words[entry.sound(words, self._id)]
        return len(kept), int(kept[:, entry.SIZE].sum())

    def fill(self, words: Words, columns: list[Any]) -> bool:
        """Puts samples to their rows: ``columns`` are arrays of bytes, a row for each sample. False if one is bad."""
        seeds = entry.seeds_of(words, self._id)
        put = self._put if len(columns) == 1 else self._put_parts
        rows = zip(words[:, entry.OFFSET].tolist(), words[:, entry.DIGEST].tolist(), seeds, strict=True)
        try:
            return all(
                put([column[row] for column in columns], offset, seed) == digest
                for row, (offset, digest, seed) in enumerate(rows)
            )
        except OSError:
            return False

    def _put(self, targets: list[Any], offset: int, seed: int) -> int:
        self._reader.copy(offset, targets[0])
        return digest_of(targets[0], seed)

    def _put_parts(self, targets: list[Any], offset: int, seed: int) -> int:
        """The leaves lie one behind the other."""
        for target in targets:
            self._reader.copy(offset, target)
            offset += target.nbytes
        return digest_of_parts(targets, seed)

    def _read(self, found: Entry, empty: Empty) -> Any:
        seed = entry.seed_of(found.number, found.made_for, self._id)
        form = self.forms.of(found.form)
        if found.form != PICKLED and (form is None or (form.nbytes != found.nbytes and not form.is_open)):
            return MISSING
        if found.nbytes > found.capacity:
            return MISSING
        try:
            leaves = self._leaves(found, form, empty)
        except (OSError, ValueError):  # shapes that are damaged may be of no array at all
            return MISSING
        if leaves is None or digest_of_parts(leaves, seed) != found.digest:
            return MISSING
        if form is None:
            return unpickled(leaves[0], self._home)
        return form.sample(leaves[1:] if form.is_open else leaves)

    def _leaves(self, found: Entry, form: Form | None, empty: Empty) -> list[Any] | None:
        """The pieces of a record, as they lie there; None if it cannot be one of its form."""
        offset = found.offset
        if form is not None and form.is_open:
            shapes = np.empty(form.nbytes // 8, np.int64)
            self._copy([shapes], offset)
            room = form.room_of(shapes, found.nbytes - form.nbytes, empty)
            if room is None:
                return None
            self._copy(room, offset + form.nbytes)
            return [shapes, *room]
        # What is pickled may have one array at several places: each is to be its own in a batch.
        leaves = [np.empty(found.nbytes, np.uint8)] if form is None else form.room(empty)
        self._copy(leaves, offset)
        return leaves

    def _copy(self, leaves: list[Any], offset: int) -> None:
        for leaf in leaves:
            if leaf.nbytes:
                self._reader.copy(offset, leaf.reshape(-1).view(np.uint8))
                offset += leaf.nbytes

    # Making -----------------------------------------------------------------------------------------------------

    def lock(self, number: int) -> bool:
        """Has nobody else make a sample; waits while they do, but not for ever: they may be stuck.

        Gives back whether it is so.
        """
        return self.files.writable and self._locks.take(index.LOCK_SAMPLE + number, wait_s=self._wait_s)

    def unlock(self, number: int) -> None:
        """Others may make it again."""
        self._locks.leave(index.LOCK_SAMPLE + number)

    def keep(self, number: int, made_for: int, sample: Any, used_until: int | None = None) -> bool:
        """Writes a sample, whose lock is held; gives back whether it is kept.

        Args:
            number: Its index.
            made_for: The first epoch that it was made for.
            sample: The sample.
            used_until: The last epoch that what is kept now may be of use for, where it was made for a later one.

        Raises:
            OSError: if it cannot be written.
            Exception: whatever its classes raise, if it cannot be pickled.
        """
        before = self.entry(number)
        if before is not None and before.made_for > made_for and self._is_used(before.made_for, used_until):
            return False
        form, parts = self.forms.parts_of(sample)
        nbytes = sum(part.nbytes for part in parts)
        if before is not None and before.capacity >= nbytes:
            offset, capacity = before.offset, before.capacity
        else:
            place = self._room.take(nbytes)
            if place is None:
                self.is_full = True
                return False
            offset, capacity = place, capacity_of(nbytes)
        digest = digest_of_parts(parts, entry.seed_of(number, made_for, self._id))
        self._write(parts, offset)
        self._tell(Entry(number, made_for, offset, nbytes, capacity, form, digest))
        return True

    def drop(self, number: int) -> None:
        """Forgets a sample, whose lock is held; its room is free."""
        os.pwrite(self.files.index_fd, bytes(entry.NBYTES), index.place_of(number))

    def turn_to(self, epoch: int) -> None:
        """This process works at ``epoch`` from now on: what others keep for it is not to be replaced by older."""
        if self._epoch >= 0:
            self._locks.leave(index.LOCK_EPOCH + self._epoch)
        self._epoch = epoch
        self._locks.share(index.LOCK_EPOCH + epoch)

    def _is_used(self, made_for: int, until: int | None) -> bool:
        end = index.LOCK_ROOM - index.LOCK_EPOCH if until is None else until + 1
        return self._locks.others_hold(index.LOCK_EPOCH + made_for, max(1, end - made_for))

    def _write(self, parts: list[Any], offset: int) -> None:
        nbytes = sum(part.nbytes for part in parts)
        written = os.pwritev(self.files.data_fd, parts, offset)
        while written < nbytes:  # a disk that fills up takes a part, and answers the rest with its error
            rest = memoryview(b"".join(parts))[written:]
            written += os.pwrite(self.files.data_fd, rest, offset + written)

    def _tell(self, made: Entry) -> None:
        raw = entry.pack(made, self._id)
        if os.pwrite(self.files.index_fd, raw, index.place_of(made.number)) != len(raw):
            raise OSError("the index could not be written")
