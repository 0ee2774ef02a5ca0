"""Datasets that streams read: named sources of examples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from swift_loader.streams.schemes import IterationScheme, SequentialExampleScheme
from swift_loader.streams.stream import DataStream


class Dataset(ABC):
    """Named sources, any of which may be asked for.

    What changes while it is read is a state that `open` makes and the stream holds; the dataset itself can be shared.

    Args:
        sources: Which of those that it has are wanted, in which order it has them; by default all.
        axis_labels: Names of the axes of each source.
    """

    provides_sources: tuple[str, ...] = ()
    """All that it has."""
    default_transformers: Sequence[tuple[Any, Sequence[Any], Mapping[str, Any]]] = ()
    """What `apply_default_transformers` puts around a stream: what makes each, and its arguments."""

    def __init__(
        self, sources: Sequence[str] | None = None, axis_labels: dict[str, tuple[str, ...]] | None = None
    ) -> None:
        if not self.provides_sources:
            raise ValueError(f"{type(self).__name__} does not say which sources it has: set provides_sources")
        unknown = [] if sources is None else [source for source in sources if source not in self.provides_sources]
        if unknown or (sources is not None and not sources):
            raise ValueError(f"there are the sources {self.provides_sources}, and {sources!r} were asked for")
        self.sources = self.provides_sources if sources is None else tuple(sources)
        self.axis_labels = axis_labels
        self.example_iteration_scheme: IterationScheme | None = None

    def get_example_stream(self) -> DataStream:
        """A stream of single examples."""
        return DataStream(self, iteration_scheme=self.example_iteration_scheme)

    def apply_default_transformers(self, stream: Any) -> Any:
        """The stream with what this dataset wants around it."""
        for make, arguments, settings in self.default_transformers:
            stream = make(stream, *arguments, **settings)
        return stream

    def open(self) -> Any:
        """The state of one reading; None where there is none."""
        return None

    def close(self, state: Any) -> Any:  # noqa: ARG002 - for others to use
        """Ends a reading; gives back the state that there is then."""
        return None

    def reset(self, state: Any) -> Any:
        """Begins anew."""
        self.close(state)
        return self.open()

    def next_epoch(self, state: Any) -> Any:
        """The state for the next epoch."""
        return self.reset(state)

    @abstractmethod
    def get_data(self, state: Any = None, request: Any = None) -> Any:
        """What was asked for: a tuple, in the order of ``sources``."""

    def filter_sources(self, data: Iterable[Any]) -> tuple[Any, ...]:
        """Of the data of all sources, that of those which are wanted."""
        pairs = zip(data, self.provides_sources, strict=True)
        return tuple(one for one, source in pairs if source in self.sources)


class IndexableDataset(Dataset):
    """Examples of things that have indices: lists, arrays.

    Args:
        indexables: What it reads by source; or one thing, whose source is called ``data``.
        start: The first example, and
        stop: the one behind the last, of all there are.
        sources: Which are wanted.
        axis_labels: Names of the axes of each source.

    Example:
        >>> dataset = IndexableDataset({"features": [10, 11, 12]})
        >>> dataset.get_data(request=slice(0, 2))
        ([10, 11],)
    """

    def __init__(
        self,
        indexables: Any,
        start: int | None = None,
        stop: int | None = None,
        *,
        sources: Sequence[str] | None = None,
        axis_labels: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        named = indexables if isinstance(indexables, Mapping) else {"data": indexables}
        self.provides_sources = tuple(named)
        super().__init__(sources, axis_labels)
        self.indexables = [named[source][start:stop] for source in self.sources]
        lengths = {source: len(one) for source, one in zip(self.sources, self.indexables, strict=True)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"sources have different lengths: {lengths}")
        self.start = start
        self.stop = stop
        self.example_iteration_scheme = SequentialExampleScheme(self.num_examples)

    @property
    def num_examples(self) -> int:
        """How many there are."""
        return len(self.indexables[0])

    def __getattr__(self, name: str) -> Any:
        """Each source by its name."""
        held = self.__dict__
        if name in held.get("sources", ()) and "indexables" in held:
            return held["indexables"][held["sources"].index(name)]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def get_data(self, state: Any = None, request: Any = None) -> tuple[Any, ...]:
        if state is not None or request is None:
            raise ValueError("an IndexableDataset is asked for indices, and has no state")
        return tuple(_picked(indexable, request) for indexable in self.indexables)


class IterableDataset(Dataset):
    """Examples as something gives them, from its beginning in each epoch.

    Args:
        iterables: What it reads by source; or one thing, whose source is called ``data``.
        sources: Which are wanted.
        axis_labels: Names of the axes of each source.
    """

    def __init__(
        self,
        iterables: Any,
        *,
        sources: Sequence[str] | None = None,
        axis_labels: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        named = iterables if isinstance(iterables, Mapping) else {"data": iterables}
        self.provides_sources = tuple(named)
        super().__init__(sources, axis_labels)
        self.iterables = [named[source] for source in self.sources]
        odd = [type(one).__name__ for one in self.iterables if not isinstance(one, Iterable)]
        if odd:
            raise ValueError(f"an IterableDataset reads what can be iterated over, not: {', '.join(odd)}")

    @property
    def num_examples(self) -> float:
        """How many there are; NaN where nobody knows."""
        try:
            return min(len(iterable) for iterable in self.iterables)
        except TypeError:
            return float("nan")

    def open(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self.iterables, strict=False)

    def get_data(self, state: Any = None, request: Any = None) -> Any:
        if state is None or request is not None:
            raise ValueError("an IterableDataset is read as it comes: it needs its state, and takes no requests")
        return next(state)


def _picked(indexable: Any, request: Any) -> Any:
    """Lists stay lists; a list knows no lists of indices by itself."""
    if isinstance(indexable, (list, tuple)) and isinstance(request, (list, tuple)):
        return [indexable[index] for index in request]
    return indexable[request]
