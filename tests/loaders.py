"""Loaders as tests want them: two workers, one consumer, a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from swift_loader import SwiftLoader
from tests.watching import plain


def made(dataset_class: Any = None, kwargs: dict[str, Any] | None = None, /, **settings: Any) -> SwiftLoader:
    """A loader that was not started. Every argument may be given by name."""
    settings = {"batch_size": 8, "nb_consumer": 1, "worker_per_consumer": 2, "seed": 1, **settings}
    return SwiftLoader(dataset_class, kwargs or {}, **settings)


@contextmanager
def started(
    dataset_class: Any, kwargs: dict[str, Any] | None = None, /, consumer: int = 0, **settings: Any
) -> Iterator[SwiftLoader]:
    """A loader that was started, and is closed at the end."""
    with made(dataset_class, kwargs, **settings) as loader:
        loader.start(consumer)
        yield loader


def stream(
    dataset_class: Any, kwargs: dict[str, Any] | None = None, /, epochs: int = 1, consumer: int = 0, **settings: Any
) -> list[Any]:
    """All batches of the first epochs, as plain values."""
    with started(dataset_class, kwargs, consumer=consumer, **settings) as loader:
        return [plain(batch) for _ in range(epochs) for batch in loader]
