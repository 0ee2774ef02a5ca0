"""Streams of data in epochs: what all have in common, and the one that a dataset gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from swift_loader.streams.iterator import DataIterator

if TYPE_CHECKING:
    from swift_loader.streams.datasets import Dataset
    from swift_loader.streams.schemes import IterationScheme


class AbstractDataStream(ABC):
    """Data in epochs: ``get_epoch_iterator()`` begins the next one.

    Args:
        iteration_scheme: What is asked for; None where the data comes as it comes.
        axis_labels: Names of the axes of each source, for whoever wants to know.
    """

    sources: tuple[str, ...]
    """What the parts of each batch are called, in their order."""

    def __init__(
        self, iteration_scheme: IterationScheme | None = None, axis_labels: dict[str, tuple[str, ...]] | None = None
    ) -> None:
        self.iteration_scheme = iteration_scheme
        self.axis_labels = axis_labels
        self._produces_examples: bool | None = None

    @property
    def produces_examples(self) -> bool:
        """Whether the stream gives single examples; else it gives batches.

        Raises:
            ValueError: if nobody has said so.
        """
        if self.iteration_scheme is not None:
            return self.iteration_scheme.requests_examples
        if self._produces_examples is None:
            raise ValueError(
                f"this {type(self).__name__} has no iteration scheme, so nothing says whether it gives examples or "
                "batches: set produces_examples"
            )
        return self._produces_examples

    @produces_examples.setter
    def produces_examples(self, value: bool) -> None:
        if self.iteration_scheme is not None:
            raise ValueError(
                f"the iteration scheme says whether this {type(self).__name__} gives examples: produces_examples "
                "cannot be set beside it"
            )
        self._produces_examples = value

    def get_data(self, request: Any = None) -> Any:
        """The data of one request: a tuple, in the order of ``sources``."""
        raise NotImplementedError(f"{type(self).__name__} has no get_data")

    @abstractmethod
    def reset(self) -> None:
        """Back to the beginning."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of files and connections."""

    @abstractmethod
    def next_epoch(self) -> None:
        """On to the next epoch."""

    @abstractmethod
    def get_epoch_iterator(self, as_dict: bool = False) -> Any:  # noqa: FBT001, FBT002 - others' code says it so
        """The data of the next epoch: tuples, or dicts by source."""
        requests = None if self.iteration_scheme is None else self.iteration_scheme.get_request_iterator()
        return DataIterator(self, requests, as_dict=as_dict)

    def iterate_epochs(self, as_dict: bool = False) -> Iterator[Any]:  # noqa: FBT001, FBT002 - others' code says it so
        """One epoch's iterator after the other; without end."""
        while True:
            yield self.get_epoch_iterator(as_dict=as_dict)


class DataStream(AbstractDataStream):
    """The data of a dataset.

    Args:
        dataset: What it comes from.
        iteration_scheme: What is asked for.
        axis_labels: Where not given, the dataset's.
    """

    def __init__(
        self,
        dataset: Dataset,
        iteration_scheme: IterationScheme | None = None,
        axis_labels: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(iteration_scheme, dataset.axis_labels if axis_labels is None else axis_labels)
        self.dataset = dataset
        self.data_state = dataset.open()
        self._is_fresh = True
        self._sources: tuple[str, ...] | None = None

    @classmethod
    def default_stream(cls, dataset: Dataset, **settings: Any) -> Any:
        """A stream with what the dataset wants to be applied to its data."""
        return dataset.apply_default_transformers(cls._of(dataset, settings))

    @classmethod
    def _of(cls, dataset: Dataset, settings: dict[str, Any]) -> Self:
        return cls(dataset, **settings)

    @property
    def sources(self) -> tuple[str, ...]:
        return self.dataset.sources if self._sources is None else self._sources

    @sources.setter
    def sources(self, value: tuple[str, ...]) -> None:
        self._sources = value

    def close(self) -> None:
        self.data_state = self.dataset.close(self.data_state)

    def reset(self) -> None:
        self.data_state = self.dataset.reset(self.data_state)
        self._is_fresh = True

    def next_epoch(self) -> None:
        self.data_state = self.dataset.next_epoch(self.data_state)

    def get_data(self, request: Any = None) -> Any:
        return self.dataset.get_data(self.data_state, request)

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:  # noqa: FBT001, FBT002 - others' code says it so
        if not self._is_fresh:
            self.next_epoch()
        self._is_fresh = False
        return super().get_epoch_iterator(as_dict)
