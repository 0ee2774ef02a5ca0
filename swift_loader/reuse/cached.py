"""`Cached`: how a user says which part of a sample's making is kept, and which is done anew each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Cached:
    """A dataset whose samples may be kept, and what is to be done to each of them afresh.

    With ``cache_setting`` the samples of ``dataset`` are kept and ``then`` runs whenever one is used; without, all is
    the same but that nothing is kept.

    Args:
        dataset: A map-style dataset, whose samples are expensive.
        then: Takes a sample and gives back what is to be trained on, such as a random crop of it.

    Example:
        >>> from swift_loader import Cached
        >>> Cached([1, 2, 3], then=lambda sample: 10 * sample)[2]
        30
    """

    def __init__(self, dataset: Any, then: Callable[[Any], Any]) -> None:
        if not callable(then):
            raise TypeError(f"Cached takes a function of one sample as `then`, not a {type(then).__name__}")
        self.dataset = dataset
        self.then = then

    @staticmethod
    def apart(dataset: Any) -> tuple[Any, Callable[[Any], Any] | None]:
        """What of any dataset may be kept, and what is done afresh, if anything is."""
        return (dataset.dataset, dataset.then) if isinstance(dataset, Cached) else (dataset, None)

    def __init_subclass__(cls) -> None:
        if "__getitem__" in vars(cls):  # a loader that keeps samples asks the two parts, and would leave it out
            raise TypeError("a Cached cannot have a __getitem__ of its own: what it does belongs into `then`")

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.then(self.dataset[index])

    @property
    def runs(self) -> Callable[[], Any]:
        """The dataset's, if it has one: which of its samples are cheap to read together."""
        method: Callable[[], Any] = self.dataset.runs
        return method

    def set_epoch(self, epoch: int) -> None:
        """Passed on to those of the two that want to know."""
        for part in (self.dataset, self.then):
            if (set_epoch := getattr(part, "set_epoch", None)) is not None:
                set_epoch(epoch)
