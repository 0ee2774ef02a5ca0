"""What of a batch is timed: its samples one by one, or all of them as a whole.

Of a batch 64 samples, on average, are timed: those of batches of up to 64 always, those of larger ones once in so many
batches. So measuring costs the same however large batches are, and a slow sample is found sooner or later.
"""

from __future__ import annotations

#: Looking at the clock before and after a sample costs 0.1 us and more.
_TIMED = 64


class Stopwatch:
    """Of one worker's batches."""

    __slots__ = ("_left", "_measures", "_share", "fetch_ns", "is_close", "slowest_index", "slowest_ns")

    def __init__(self, *, measures: bool) -> None:
        self._measures = measures
        self._left = 0
        """So many batches more are timed as wholes."""
        self._share = 0.0
        """So much of a batch was fetching when its samples were timed last."""
        self.is_close = False
        """Each sample of this batch is timed."""
        self.begin(0)

    def begin(self, count: int) -> None:
        """A batch of so many samples is about to be fetched."""
        self.fetch_ns = self.slowest_ns = 0
        self.slowest_index = -1
        if self._measures:
            self._left -= 1
            self.is_close = self._left <= 0
            if self.is_close:
                self._left = -(-count // _TIMED)

    def took(self, fetch_ns: int, slowest_ns: int, slowest_index: int = -1) -> None:
        """Samples were fetched, and this was the slowest of them."""
        self.fetch_ns += fetch_ns
        if slowest_ns > self.slowest_ns:
            self.slowest_ns, self.slowest_index = slowest_ns, slowest_index

    def stored(self, whole_ns: int, fetch_ns: int, slowest_ns: int, slowest_index: int) -> None:
        """In so much time samples were fetched and stored; how much of it was fetching, where that was timed."""
        if self.is_close:
            self._share = fetch_ns / max(1, whole_ns)
            self.took(fetch_ns, slowest_ns, slowest_index)
        elif self._measures:
            self.fetch_ns += int(whole_ns * self._share)
