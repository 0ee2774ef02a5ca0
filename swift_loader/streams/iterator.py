"""One epoch of a stream, as a loop sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, Self


class GivesData(Protocol):
    """What an epoch's data is asked of."""

    @property
    def sources(self) -> tuple[str, ...]:
        """What the data of each request is called."""
        ...

    def get_data(self, request: Any = None) -> Any:
        """The data of one request; StopIteration where there is no more."""
        ...


class DataIterator:
    """The data of one epoch.

    Args:
        data_stream: What is asked for it.
        request_iterator: What is asked for; None where the stream knows what is next.
        as_dict: Whether to give dicts by source instead of tuples.
    """

    def __init__(
        self, data_stream: GivesData, request_iterator: Iterator[Any] | None = None, *, as_dict: bool = False
    ) -> None:
        self.data_stream = data_stream
        self.request_iterator = request_iterator
        self.as_dict = as_dict

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self.request_iterator is None:
            data = self.data_stream.get_data()
        else:
            data = self.data_stream.get_data(next(self.request_iterator))
        return dict(zip(self.data_stream.sources, data, strict=False)) if self.as_dict else data
