"""A request, and those that are sent beside it where it stands still: the first that comes to its end is taken."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

from swift_loader.fetcher.arriving import Arriving
from swift_loader.fetcher.counts import Counts
from swift_loader.stores.answers import Kind, Trouble
from swift_loader.stores.obstore import Failed, Objects

_PATIENCE_S, _PATIENCE_UNKNOWN_S, _SLOWER = 0.3, 1.0, 3.0
#: Nothing has come for so long: the requests are given up.
_STANDSTILL_S = 4.0
_AT_ONCE = 3
_REMEMBERED = 64
_LEAST_HEDGES, _HEDGED_PART = 4, 4
#: What comes is taken in pieces, each of about so long: of large ones less is seen, small ones cost.
_PIECE_S, _LEAST_PIECE, _MOST_PIECE = 0.25, 32 << 10, 2 << 20


class Racing:
    """Has bytes come by one request, or several.

    Args:
        counts: What is counted.
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._took: dict[int, deque[float]] = {}
        """How long requests took, by the magnitude of what they asked for."""
        self._rate = 0.0
        """Bytes a second of one request."""
        self._in_flight = self._hedges = 0

    def expected_s(self, nbytes: int) -> float | None:
        """How long such a request takes, as far as is known."""
        took = self._took.get(nbytes.bit_length())
        return sorted(took)[len(took) // 2] if took else None

    async def run(self, objects: Objects, arriving: Arriving) -> None:
        """Asks for what is missing; returns when all of it is there.

        Raises:
            Failed: if no request comes to its end.
        """
        begun_s, nbytes = monotonic(), (arriving.end or 0) - arriving.covered
        patience_s = self._patience_s(nbytes)
        hedge_s = begun_s + patience_s
        moved_s, seen = begun_s, arriving.covered
        tasks, hedges = {self._asked(objects, arriving)}, 0
        try:
            while True:
                until = min(hedge_s, moved_s + _STANDSTILL_S)
                await asyncio.wait(tasks, timeout=max(0.0, until - monotonic()), return_when=asyncio.FIRST_COMPLETED)
                if arriving.is_whole:
                    break
                tasks = _left(tasks)
                now = monotonic()
                if arriving.covered != seen:
                    moved_s, seen = now, arriving.covered
                if now - moved_s >= _STANDSTILL_S:
                    raise Failed(Trouble(Kind.SILENT, None))
                if now < hedge_s:
                    continue
                patience_s *= 2
                hedge_s = now + patience_s
                if len(tasks) < _AT_ONCE and self._hedges < max(_LEAST_HEDGES, self._in_flight // _HEDGED_PART):
                    hedges += 1
                    self._hedges += 1
                    self._counts.hedges += 1
                    tasks.add(self._asked(objects, arriving))
        finally:
            self._hedges -= hedges
            for task in tasks:
                task.cancel()
        self._note(nbytes, monotonic() - begun_s)

    def _asked(self, objects: Objects, arriving: Arriving) -> asyncio.Task[None]:
        return asyncio.ensure_future(self._once(objects, arriving))

    async def _once(self, objects: Objects, arriving: Arriving) -> None:
        self._counts.asked()
        self._in_flight += 1
        piece_nbytes = int(min(_MOST_PIECE, max(_LEAST_PIECE, self._rate * _PIECE_S)))
        asked_at = arriving.covered
        try:
            answer = await objects.begun(arriving.name, asked_at, arriving.end, arriving.etag, piece_nbytes)
            arriving.begun(answer, asked_at)
            at = asked_at
            async for piece in answer.pieces:
                before = arriving.covered
                at = arriving.put(at, piece)
                self._counts.nbytes += arriving.covered - before
            if at != arriving.end:
                raise Failed(Trouble(Kind.ODD, None))
        finally:
            self._in_flight -= 1
            self._counts.answered()

    def _note(self, nbytes: int, took_s: float) -> None:
        self._took.setdefault(nbytes.bit_length(), deque(maxlen=_REMEMBERED)).append(took_s)
        if nbytes >= _LEAST_PIECE:
            rate = nbytes / max(took_s, 1e-6)
            self._rate = rate if not self._rate else 0.8 * self._rate + 0.2 * rate

    def _patience_s(self, nbytes: int) -> float:
        # What is larger takes no less: nothing must be known of this very size.
        known = min((size for size in self._took if size >= nbytes.bit_length()), default=None)
        if known is None:
            return _PATIENCE_UNKNOWN_S
        took = sorted(self._took[known])
        return max(_PATIENCE_S, _SLOWER * took[int(len(took) * 0.95)])


def _left(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Those that go on; raises what one has failed of, if none does."""
    left = {task for task in tasks if not task.done()}
    if not left:
        raise next(error for task in tasks if (error := task.exception()) is not None)
    return left
