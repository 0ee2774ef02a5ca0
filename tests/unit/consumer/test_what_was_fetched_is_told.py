"""What was fetched for a dataset that lies elsewhere is told in figures, in the report, and on the board."""

from __future__ import annotations

from typing import Any

from swift_loader import ShardError, SwiftLoader
from swift_loader.consumer.supply import Supply


class Elsewhere:
    """Counts as a fetcher does; two requests a batch."""

    def __init__(self) -> None:
        self.asked, self.pid = 100, 7

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.asked += 1
        return index

    def store_statistics(self) -> dict[str, Any]:
        counts = dict.fromkeys(("retries", "hedges", "refetches", "waits", "kept_nbytes"), 0)
        return {
            **counts,
            "requests": self.asked,
            "nbytes": 1_000_000 * self.asked,
            "waits": 3,
            "pid": self.pid,
            "warnings": [],
        }


def test_a_loader_tells_what_was_fetched_since_it_was_started() -> None:
    with SwiftLoader.from_dataset(Elsewhere(), 2, 1, 0, shuffle=False) as loader:
        list(loader)
        told, page = loader.statistics(), loader.report()
    assert (told["store_requests"], told["store_nbytes"], told["store_waits"]) == (8, 8e6, 0)
    assert told["store_dollars"] == 8 * 0.4e-6
    assert "8 requests for 8 MB" in page


def test_other_datasets_tell_nothing() -> None:
    with SwiftLoader.from_dataset(range(8), 2, 1, 0) as loader:
        list(loader)
        assert not [name for name in loader.statistics() if name.startswith("store_")]
        assert "requests" not in loader.report()


def test_what_cannot_be_asked_breaks_nothing() -> None:
    class Gone(Elsewhere):
        def store_statistics(self) -> dict[str, Any]:
            raise ShardError("the process that fetches is gone")

    supply = Supply(Gone())
    supply.begin()
    assert supply.figures() == {}


def test_a_fetcher_that_began_anew_counts_from_nothing() -> None:
    dataset = Elsewhere()
    supply = Supply(dataset)
    supply.begin()
    dataset.asked = 5
    assert supply.figures()["store_requests"] == 0
    supply.close()


def test_what_a_fetcher_counted_before_it_was_killed_is_not_forgotten() -> None:
    dataset = Elsewhere()
    supply = Supply(dataset)
    supply.begin()
    dataset.asked += 30
    assert supply.figures()["store_requests"] == 30
    dataset.asked, dataset.pid = 5, 8
    assert supply.figures()["store_requests"] == 35
    supply.close()
