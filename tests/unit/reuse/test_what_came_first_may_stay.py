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


def _read_back_by_foresight(orders: list[list[int]], room: int) -> list[int]:
    """What is needed last is thrown out, if it is needed later than what has come: no other way reads back more."""
    count = len(orders[0])
    places = [np.argsort(order) for order in orders]
    kept: dict[int, int] = {}
    last: list[tuple[int, int]] = []
    found = []
    for epoch, order in enumerate(orders[:-1]):
        found.append(0)
        for index in order:
            found[-1] += index in kept
            needed = (epoch + 1) * count + int(places[epoch + 1][index])
            if index not in kept and len(kept) == room:
                while kept.get(last[0][1]) != -last[0][0]:
                    heapq.heappop(last)
                if -last[0][0] < needed:
                    continue
                del kept[heapq.heappop(last)[1]]
            kept[index] = needed
            heapq.heappush(last, (-needed, index))
    return found


@pytest.mark.parametrize("settings", [{}, {"shuffle": False}, {"window": 5, "mix": 3}], ids=str)
@pytest.mark.parametrize(("count", "room"), [(2, 1), (10, 1), (10, 5), (10, 9), (97, 48), (200, 30)])
def test_no_eviction_reads_back_more(count: int, room: int, settings: dict):
    orders = _orders(count, **settings)
    by_foresight = _read_back_by_foresight(orders, room)
    assert sum(by_foresight) <= sum(_read_back_by_first_come(orders, room))
    assert _read_back_by_first_come(orders, room) == [0] + [room] * (EPOCHS - 1)
