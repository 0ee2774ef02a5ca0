"""With room for some of the samples, keeping those that came first reads back as many as knowing the future would."""

import heapq

import numpy as np
import pytest

from swift_loader.plan.plan import EpochPlan

EPOCHS = 6


def _orders(count: int, **settings) -> list[list[int]]:
    """The samples of each epoch, in the order in which they are used."""
    plan = EpochPlan(sample_count=count, batch_size=1, **settings)
    return [[index for (index,) in plan.indices(epoch, 0, 0, count)] for epoch in range(EPOCHS + 1)]


def _read_back_by_first_come(orders: list[list[int]], room: int) -> list[int]:
    kept: set[int] = set()
    found = []
    for order in orders[:-1]:
        found.append(sum(index in kept for index in order))
        kept.update(order[: room - len(kept)])
    return found


class _Foresight:
    """What is needed last is thrown out, if it is needed later than what has come: no other way reads back more."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.kept: dict[int, int] = {}
        self.last: list[tuple[int, int]] = []

    def is_kept(self, index: int, needed: int) -> bool:
        """Whether it is there; ``needed``: when it is used the next time."""
        found = index in self.kept
        if found or len(self.kept) < self.room or self._thrown_out_for(needed):
            self.kept[index] = needed
            heapq.heappush(self.last, (-needed, index))
        return found

    def _thrown_out_for(self, needed: int) -> bool:
        while self.kept.get(self.last[0][1]) != -self.last[0][0]:
            heapq.heappop(self.last)
        if -self.last[0][0] < needed:
            return False
        del self.kept[heapq.heappop(self.last)[1]]
        return True


def _read_back_by_foresight(orders: list[list[int]], room: int) -> list[int]:
    places, foresight = [np.argsort(order) for order in orders], _Foresight(room)
    return [
        sum(foresight.is_kept(index, (epoch + 1) * len(order) + int(places[epoch + 1][index])) for index in order)
        for epoch, order in enumerate(orders[:-1])
    ]


@pytest.mark.parametrize("settings", [{}, {"shuffle": False}, {"window": 5, "mix": 3}], ids=str)
@pytest.mark.parametrize(("count", "room"), [(2, 1), (10, 1), (10, 5), (10, 9), (97, 48), (200, 30)])
def test_no_eviction_reads_back_more(count: int, room: int, settings: dict):
    orders = _orders(count, **settings)
    by_foresight = _read_back_by_foresight(orders, room)
    assert sum(by_foresight) <= sum(_read_back_by_first_come(orders, room))
    assert _read_back_by_first_come(orders, room) == [0] + [room] * (EPOCHS - 1)
