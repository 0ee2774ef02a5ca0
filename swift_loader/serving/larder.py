"""What was made, and who asks for it: each batch once, however many ask. Pure. Called under the workshop's lock.

A batch is made for those who have asked for it by then, and kept for those who are behind and will: as long as there is
room. What was let go of is made again when somebody asks: nobody misses anything, and who is slow slows nobody.

Who asks is given so many at a time as fit into memory beside those of all others, and the workers are asked in turn for
one of each: neither many orders nor slowness take from others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from swift_loader.orders.tickets import Failed, Full

#: Which batch: epoch and step.
Key: TypeAlias = tuple[int, int]

#: The workers are asked for as many at a time as take them so long, ...
_AHEAD_NS = 50_000_000
#: ... but for no more than this for each of them.
_MOST_AHEAD = 64
_SMOOTHING = 0.2
#: Of all slots so much may lie here for nobody, and so much be made for somebody.
_FOR_LATER, _FOR_NOW = 1 / 4, 3 / 4


@dataclass(slots=True, eq=False)
class Ask:
    """One order of one connection."""

    seq: int
    key: Key
    asked_ns: int
    is_cancelled: bool = False


#: What is answered: a batch, why there is none, or nothing, since it is not wanted any more.
Answer: TypeAlias = tuple[Ask, Full | Failed | None]


@dataclass(slots=True, eq=False)
class Patron:
    """One connection."""

    waiting: deque[Ask] = field(default_factory=deque)
    """What it has asked for and nobody has been asked to make."""
    underway: int = 0
    """What is being made for it."""
    outbox: deque[Answer] = field(default_factory=deque)
    """What was made for it."""
    position: Key = (-1, -1)
    """The last that it has asked for."""

    @property
    def open_count(self) -> int:
        """Its orders that were not answered."""
        return len(self.waiting) + self.underway + len(self.outbox)


class Larder:
    """Of one consumer's batches.

    Args:
        width: How many make them.
        most_nbytes: What slots may take.
        most_slots: How many there may be.
    """

    def __init__(self, width: int, most_nbytes: int, most_slots: int) -> None:
        self._width = width
        self._most_nbytes, self._most_slots = most_nbytes, most_slots
        self._patrons: deque[Patron] = deque()
        """Who is to be given one next comes first."""
        self._making: dict[Key, list[tuple[Patron, Ask]]] = {}
        self._kept: dict[Key, Full] = {}
        self._kept_nbytes = 0
        self._largest = 0
        self._batch_ns = 0.0
        self.made_count = 0
        """Batches that were made, and those that were answered with them."""
        self.answered_count = 0

    def goes(self, patron: Patron) -> None:
        """A connection is over: what was made for it stays for one that comes back, if nobody else is there."""
        if patron in self._patrons:
            self._patrons.remove(patron)
        for ask, answer in patron.outbox:
            if isinstance(answer, Full):
                self._keep(ask.key, answer)
        patron.outbox.clear()
        for wanting in self._making.values():
            wanting[:] = [one for one in wanting if one[0] is not patron]
        self._trim()

    def asks(self, patron: Patron, ask: Ask) -> None:
        """It wants a batch."""
        if patron not in self._patrons:
            self._patrons.append(patron)
        patron.waiting.append(ask)
        patron.position = max(patron.position, ask.key)

    def cancels(self, patron: Patron, seqs: set[int]) -> None:
        """It wants some no more: each is answered all the same."""
        for ask in [ask for ask in patron.waiting if ask.seq in seqs]:
            patron.waiting.remove(ask)
            patron.outbox.append((ask, None))
        for wanting in self._making.values():
            for one, ask in wanting:
                ask.is_cancelled = ask.is_cancelled or (one is patron and ask.seq in seqs)
        found = [(ask, None if ask.seq in seqs else answer) for ask, answer in patron.outbox]
        patron.outbox.clear()
        patron.outbox.extend(found)

    def to_make(self) -> list[Key]:
        """What the workers are to be asked for now; whose turn it is gets one, and then the next."""
        wanted: list[Key] = []
        idle = 0
        while self._patrons and idle < len(self._patrons):
            patron = self._patrons[0]
            self._patrons.rotate(-1)
            is_served = bool(patron.waiting) and patron.underway + len(patron.outbox) < self._allowance
            is_served = is_served and self._serve(patron, wanted)
            idle = 0 if is_served else idle + 1
        return wanted

    def came(self, delivery: Full | Failed) -> list[Patron]:
        """Something was made: who has an answer now."""
        key = (delivery.ticket.epoch, delivery.ticket.step)
        self.made_count += 1
        if isinstance(delivery, Full):
            took_ns = delivery.parcel.cost.made_ns
            self._batch_ns += _SMOOTHING * (took_ns - self._batch_ns) if self._batch_ns else took_ns
            self._largest = max(self._largest, delivery.parcel.nbytes)
        answered = []
        for patron, ask in self._making.pop(key, []):
            patron.underway -= 1
            patron.outbox.append((ask, None if ask.is_cancelled else delivery))
            answered.append(patron)
        if isinstance(delivery, Full):
            self._keep(key, delivery)
            self._trim()
        return answered

    def answered(self, patron: Patron) -> Answer | None:
        """The next answer to somebody."""
        if not patron.outbox:
            return None
        self.answered_count += 1
        return patron.outbox.popleft()

    def _serve(self, patron: Patron, wanted: list[Key]) -> bool:
        """Sees to what it has asked for first, if that can be."""
        ask = patron.waiting[0]
        kept = self._kept.get(ask.key)
        if kept is not None:
            patron.outbox.append((ask, kept))
        elif (wanting := self._making.get(ask.key)) is not None:
            wanting.append((patron, ask))
            patron.underway += 1
        elif len(self._making) < self._most_making:
            self._making[ask.key] = [(patron, ask)]
            patron.underway += 1
            wanted.append(ask.key)
        else:
            return False
        patron.waiting.popleft()
        return True

    @property
    def _most_making(self) -> int:
        """So many at a time that workers never wait, and that a newcomer does not wait for many."""
        ahead = int(self._width * _AHEAD_NS / self._batch_ns) if self._batch_ns else 0
        return self._width + max(self._width, min(ahead, self._width * _MOST_AHEAD))

    @property
    def _allowance(self) -> int:
        """How many each may have in the making and lying here."""
        slots = self._slots
        return max(1, (int(slots * _FOR_NOW) - self._width) // max(1, len(self._patrons)))

    @property
    def _slots(self) -> int:
        return min(self._most_slots, self._most_nbytes // self._largest) if self._largest else self._most_slots

    def _keep(self, key: Key, delivery: Full) -> None:
        if key not in self._kept:
            self._kept_nbytes += delivery.parcel.nbytes
            self._kept[key] = delivery

    def _trim(self) -> None:
        """Lets go of what nobody will ask for, and of what there is no room for: what came first goes first."""
        behind = min((patron.position for patron in self._patrons), default=(-1, -1))
        most_nbytes, most = int(self._most_nbytes * _FOR_LATER), int(self._slots * _FOR_LATER)
        for key, kept in list(self._kept.items()):
            if key <= behind or self._kept_nbytes > most_nbytes or len(self._kept) > most:
                del self._kept[key]
                self._kept_nbytes -= kept.parcel.nbytes
