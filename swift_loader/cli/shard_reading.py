"""A source is read, and its samples encoded, by the loader's own worker processes; they come in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from swift_loader.shards.prepared import Prepared

if TYPE_CHECKING:
    from swift_loader.loader import SwiftLoader
    from swift_loader.shards.making import Making

#: Of so many a batch costs little for each; and of samples of 10 MB those under way are 1 GB.
_BATCH = 16


class ByWorkers:
    """Reads samples of a source; to be used in a `with`, at whose end there are no workers.

    Random numbers are those of the sample, whichever others are read: who goes on after a kill reads the same.
    """

    def __init__(self, source: Any, making: Making, workers: int) -> None:
        self._prepared, self._workers = Prepared(source, making), workers
        self._loader: SwiftLoader | None = None

    def __call__(self, indices: Sequence[int]) -> Iterator[Any]:
        """Gives them one by one."""
        if not len(indices):
            return
        from swift_loader import SwiftLoader

        self._loader = SwiftLoader.from_dataset(
            self._prepared, _BATCH, 1, self._workers,
            plan=InOrder(indices), collate_fn=as_they_are, random_per="sample", seed=0,
        )  # fmt: skip
        self._loader.start(0)
        for batch in self._loader:
            yield from batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._loader is not None:
            self._loader.close()


def as_they_are(samples: list[Any]) -> list[Any]:
    """No batch is made of them."""
    return samples


class InOrder:
    """A plan of one epoch: these indices."""

    def __init__(self, indices: Sequence[int]) -> None:
        self._indices = indices

    def step_count(self, epoch: int, consumer: int) -> int:
        """See `Plan`."""
        return -(-len(self._indices) // _BATCH)

    def indices(self, epoch: int, consumer: int, first: int, count: int) -> list[list[int]]:
        """See `Plan`."""
        some = list(self._indices[first * _BATCH : (first + count) * _BATCH])
        return [some[begin : begin + _BATCH] for begin in range(0, len(some), _BATCH)]

    def fingerprint(self) -> dict[str, str | int | bool]:
        """See `Plan`."""
        return {"plan": "InOrder", "count": len(self._indices)}
