"""A device that does its work as late as it may, and notes whatever nobody made it wait for.

Streams are queues. Nothing in them runs before somebody waits for it: an event that is synchronised, a stream that
waits for another's event. Asked whether an event has fired, the device says no as long as it likes (a seeded draw), and
may work a little meanwhile. Copies read the slot's memory by its address, as a device does: dropping the arrays does
not keep them from it, and what was filled anew by then arrives on the device. Dropped memory goes back to the stream it
was made on and is given out again at once, unless it was recorded on a stream that still has work to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import threading
import weakref
from collections import defaultdict, deque
from pathlib import Path

import numpy as np
import torch


class Stream:
    """Work that waits, in order."""

    def __init__(self, name):
        self.name = name
        self.work = deque()
        self.given = self.done = 0


class Event:
    def __init__(self, driver, stream):
        self.driver, self.stream, self.mark = driver, stream, stream.given

    @property
    def has_fired(self):
        return self.stream.done >= self.mark

    def query(self):
        with self.driver.guard:
            self.driver.work_a_little(self.stream)
            return self.has_fired

    def synchronize(self):
        self.driver.reach(self.stream, self.mark)


class Block:
    """Device memory."""

    def __init__(self, nbytes, stream):
        self.memory = np.full(nbytes, 0xEE, np.uint8)
        self.stream = stream
        self.recorded = set()
        self.waits = {}

    @property
    def is_usable(self):
        return all(stream.done >= mark for stream, mark in self.waits.items())


class RecordingDriver:
    """See `swift_loader.device.driver.Driver`; ``wrong`` says what should not have happened, and did."""

    def __init__(self, seed=None, refuses=None):
        self.device = torch.device("cpu")
        self.guard = threading.RLock()
        self.wrong = []
        self.log = []
        self.default = Stream("default")
        self.locked = {}
        self.refuses = refuses
        self.reading = {}
        self.live_count = self.peak_count = 0
        self.plain_copies = self.staged_copies = 0
        self.fails_at = None
        self._random = None if seed is None else random.Random(seed)
        self._thread = threading.local()
        self._free = defaultdict(list)
        self._blocks = {}
        self._pinned = []

    # What the stage asks for

    def open(self):
        self.log.append("open")

    def new_stream(self):
        return Stream("side")

    def current_stream(self):
        return getattr(self._thread, "stream", self.default)

    @contextlib.contextmanager
    def using(self, stream):
        before = self.current_stream()
        self._thread.stream = stream
        try:
            yield
        finally:
            self._thread.stream = before

    def record(self, stream):
        with self.guard:
            return Event(self, stream)

    def timer(self, stream):
        """It has no clock of its own."""

    def wait(self, stream, event):
        self.give(stream, event.synchronize)

    def copy(self, tensor):
        with self.guard:
            if self.fails_at is not None:
                self.fails_at -= 1
                if self.fails_at < 0:
                    raise RuntimeError("the device is out of memory")
            stream = self.current_stream()
            made, block = self._allocated(tensor, stream)
            address, nbytes = tensor.data_ptr(), tensor.nbytes
            if self._is_locked(address, nbytes):
                self._begin_copy(stream, block, address, nbytes)
            else:  # the driver reads it before the call returns
                self.plain_copies += 1
                self.reach(stream, stream.given)
                block.memory[:nbytes] = _bytes_at(address, nbytes)
            return made

    def staged(self, tensor):
        self.staged_copies += 1
        copy = tensor.clone()
        self._pinned.append((copy.data_ptr(), copy.nbytes, copy))
        return copy

    def used_on(self, tensor, stream):
        with self.guard:
            self._blocks[tensor.data_ptr()].recorded.add(stream)

    def lock(self, address, nbytes):
        with self.guard:
            self.log.append("lock")
            if self.refuses is not None:
                return self.refuses
            if any(address < start + size and start < address + nbytes for start, size in self.locked.items()):
                self.wrong.append("memory was locked twice")
            self.locked[address] = nbytes
            return None

    def unlock(self, address):
        with self.guard:
            self.log.append("unlock")
            nbytes = self.locked.pop(address, None)
            if nbytes is None:
                return "not locked (error 713)"
            if not _is_mapped(address, nbytes):
                self.wrong.append("memory was unlocked after it was unmapped")
            if any(address <= start < address + nbytes for start in self.reading.values()):
                self.wrong.append("memory was unlocked while a copy had yet to read it")
            return None

    # What a training script does

    def use(self, tensor, expected):
        """Work on the current stream that reads a tensor, and finds out whether it holds what it should."""
        memory = self._blocks[tensor.data_ptr()].memory[: tensor.nbytes]
        wanted = expected.contiguous().view(torch.uint8).numpy().reshape(-1).copy()

        def look():
            if not np.array_equal(memory, wanted):
                self.wrong.append("a batch was used that held something else")

        self.give(self.current_stream(), look)

    def synchronize(self):
        """As ``loss.item()`` does."""
        stream = self.current_stream()
        self.reach(stream, stream.given)

    # How work is done

    def give(self, stream, action):
        with self.guard:
            stream.given += 1
            stream.work.append(action)

    def reach(self, stream, mark):
        with self.guard:
            while stream.done < mark:
                stream.work.popleft()()
                stream.done += 1

    def work_a_little(self, stream):
        if self._random is not None and self._random.random() < 0.5:
            self.reach(stream, min(stream.given, stream.done + self._random.randrange(4)))

    def _begin_copy(self, stream, block, address, nbytes):
        before = _bytes_at(address, nbytes).copy()
        number = object()
        self.reading[number] = address

        def read():
            del self.reading[number]
            if not self._is_locked(address, nbytes):
                self.wrong.append("a copy read memory that was no longer locked")
                return  # it may not even be there
            now = _bytes_at(address, nbytes)
            if not np.array_equal(now, before):
                self.wrong.append("a slot was filled anew before its copy was done")
            block.memory[:nbytes] = now

        self.give(stream, read)

    def _is_locked(self, address, nbytes):
        places = [*self.locked.items(), *((start, size) for start, size, _ in self._pinned)]
        return any(start <= address and address + nbytes <= start + size for start, size in places)

    def _allocated(self, tensor, stream):
        key = stream, tensor.nbytes
        free = self._free[key]
        block = next((block for block in reversed(free) if block.is_usable), None)
        if block is None:
            block = Block(tensor.nbytes, stream)
        else:
            free.remove(block)
        block.recorded, block.waits = set(), {}
        made = torch.from_numpy(block.memory).view(tensor.dtype).reshape(tensor.shape)
        self._blocks[made.data_ptr()] = block
        self.live_count += 1
        self.peak_count = max(self.peak_count, self.live_count)
        weakref.finalize(made, self._dropped, key, block).atexit = False
        return made, block

    def _dropped(self, key, block):
        with self.guard:
            self.live_count -= 1
            block.waits = {stream: stream.given for stream in block.recorded}
            self._free[key].append(block)


def _bytes_at(address, nbytes):
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def _is_mapped(address, nbytes):
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(word, 16) for word in line.split()[0].split("-"))
        if start <= address and address + nbytes <= end:
            return "swift-slot" in line
    return False
