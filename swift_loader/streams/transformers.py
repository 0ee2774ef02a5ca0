"""A stream around a stream: what it gives is made of what that one gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swift_loader.streams.stream import AbstractDataStream


class Transformer(AbstractDataStream):
    """A stream that wraps another one.

    A subclass has `get_data`, which takes what it needs by ``next(self.child_epoch_iterator)``; or, where each batch
    becomes a batch, `transform_batch`, and `transform_example` where each example becomes one.

    Args:
        data_stream: What is wrapped.
        produces_examples: Whether this one gives examples, where that differs from what its scheme says.
        iteration_scheme: What is asked for; None where one request of this stream is one of the other.
        axis_labels: Names of the axes of each source.
    """

    child_epoch_iterator: Any
    """The wrapped stream's data of this epoch."""

    def __init__(self, data_stream: AbstractDataStream, produces_examples: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        if produces_examples is not None:
            self.produces_examples = produces_examples
        self.data_stream = data_stream
        self._sources: tuple[str, ...] | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return self.data_stream.sources if self._sources is None else self._sources

    @sources.setter
    def sources(self, value: tuple[str, ...]) -> None:
        self._sources = value

    def close(self) -> None:
        self.data_stream.close()

    def reset(self) -> None:
        self.data_stream.reset()

    def next_epoch(self) -> None:
        self.data_stream.next_epoch()

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:  # noqa: FBT001, FBT002 - others' code says it so
        self.child_epoch_iterator = self.data_stream.get_epoch_iterator()
        return super().get_epoch_iterator(as_dict)

    def get_data(self, request: Any = None) -> Any:
        if request is not None:
            raise ValueError(f"{type(self).__name__} takes no requests: it gives what the wrapped stream gives next")
        data = next(self.child_epoch_iterator)
        mine, theirs = self._gives_examples(), self.data_stream.produces_examples
        if mine != theirs:
            raise NotImplementedError(
                f"the wrapped stream gives {_KINDS[theirs]} and {type(self).__name__} gives {_KINDS[mine]}: such a "
                "transformer has its own get_data"
            )
        return self.transform_example(data) if mine else self.transform_batch(data)

    def _gives_examples(self) -> bool:
        says_nothing = self.iteration_scheme is None and self._produces_examples is None
        return self.data_stream.produces_examples if says_nothing else self.produces_examples

    def transform_example(self, example: Any) -> Any:
        """One example becomes another."""
        raise NotImplementedError(f"{type(self).__name__} was given examples, and has no transform_example")

    def transform_batch(self, batch: Any) -> Any:
        """One batch becomes another."""
        raise NotImplementedError(f"{type(self).__name__} was given batches, and has no transform_batch")


class Mapping(Transformer):
    """What a function makes of each batch or example.

    Args:
        data_stream: What is wrapped.
        mapping: Takes a tuple in the order of the sources, and gives one.
        add_sources: If given, what the function gives is added under these names.
    """

    def __init__(
        self,
        data_stream: AbstractDataStream,
        mapping: Callable[[Any], Any],
        add_sources: tuple[str, ...] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(data_stream, data_stream.produces_examples, **settings)
        self.mapping = mapping
        self.add_sources = tuple(add_sources or ())
        if self.add_sources:
            self.sources = (*data_stream.sources, *self.add_sources)

    def get_data(self, request: Any = None) -> Any:
        if request is not None:
            raise ValueError("Mapping takes no requests: it gives what the wrapped stream gives next")
        data = next(self.child_epoch_iterator)
        image = self.mapping(data)
        return (*data, *image) if self.add_sources else image


_KINDS = {True: "examples", False: "batches"}
