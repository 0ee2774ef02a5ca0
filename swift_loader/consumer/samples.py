"""Where samples come from: a class and its arguments, or a dataset that was given; and that dataset in this process.

Workers build their own. Here it is built only when somebody looks into it: a dataset may take minutes and gigabytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from swift_loader.errors import ConfigError
from swift_loader.settings.loader import check_dataset_class
from swift_loader.wire.facts import Facts, checked_length, facts_of, wants_runs

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan


STARTED_IS_NOT_SENT = (
    "a loader that was started cannot be pickled: send it before start(). If nobody meant to send it, then something "
    "that is sent to workers holds it: mostly a function that uses `self`, such as "
    "`dataset_class=lambda: Images(self.folder)` in a class that has the loader, or a trainer that does. Give it what "
    "it needs instead, as in `folder = self.folder` and `lambda: Images(folder)`, or through dataset_kwargs"
)


class Samples:
    """What a loader was given to load from."""

    def __init__(self, dataset_class: Callable[..., Any], dataset_kwargs: dict[str, Any], given: Any = None) -> None:
        self.dataset_class = dataset_class
        self.dataset_kwargs = dataset_kwargs
        self.given = given
        """The dataset itself, where there is one; then the class is only its name."""
        self.sample_count: int | None = None
        """Once it is known."""
        self._built = given
        self._is_used = given is not None
        self._unbuilt: ReferenceType[Unbuilt] | None = None  # itself would be a circle, which keeps the dataset

    @classmethod
    def of(cls, dataset: Any) -> Samples:
        """That of a dataset which exists.

        Raises:
            ConfigError: if it is none.
        """
        if isinstance(dataset, type):
            name = dataset.__name__
            raise ConfigError(
                f"from_dataset takes a dataset, and {name} is a class: SwiftLoader({name}, dataset_kwargs, ...) has "
                f"each worker build one, from_dataset({name}(...), ...) sends them yours"
            )
        check_dataset_class(type(dataset))
        checked_length(dataset)
        return cls(type(dataset), {}, dataset)

    @property
    def dataset(self) -> Any:
        """The dataset in this process, or what becomes it when it is first used."""
        if self._is_used:
            return self._built
        unbuilt = None if self._unbuilt is None else self._unbuilt()
        if unbuilt is None:
            unbuilt = Unbuilt(self)
            self._unbuilt = ref(unbuilt)
        return unbuilt

    @property
    def known_class(self) -> type | None:
        """What the dataset is an instance of, as far as that can be said before it is built."""
        maker = self.dataset_class
        while isinstance(maker, functools.partial):
            maker = maker.func
        return maker if isinstance(maker, type) else None

    def used(self) -> Any:
        """The dataset, built if it was not: from now on it stays."""
        dataset = self._build()
        self._is_used = True
        return dataset

    def count(self) -> int:
        """How many samples there are; the dataset is built for it if nobody has said so yet."""
        if self.sample_count is not None:
            return self.sample_count
        count = checked_length(self._build())
        if self.given is None:  # what was given may still grow
            self.sample_count = count
        return count

    def facts_for(self, plan: Plan | None) -> Facts:
        """What a plan, or the built-in one, depends on; the dataset is built for it if it must be."""
        if plan is None:
            return Facts(self.count())
        return facts_of(self._build()) if wants_runs(plan) else Facts(1)  # its own settings decide

    def counted(self, sample_count: int) -> None:
        """Workers have built theirs. What was built here only to be counted may go."""
        self.sample_count = sample_count
        if not self._is_used:
            self._built = None

    def _build(self) -> Any:
        if self._built is None:
            self._built = self.dataset_class(**self.dataset_kwargs)
        return self._built

    def __reduce__(self) -> tuple[Any, ...]:
        return Samples, (self.dataset_class, self.dataset_kwargs, self.given)  # not what was built here


class Unbuilt:
    """A dataset that is built when it is first used, and is then in all that it does that dataset.

    How many samples it has, once workers have told that, and what it is an instance of (frameworks ask whether it is
    iterable) are known before.
    """

    __slots__ = ("__weakref__", "_samples")

    def __init__(self, samples: Samples) -> None:
        object.__setattr__(self, "_samples", samples)

    @property  # type: ignore[misc] # what isinstance asks
    def __class__(self) -> type:
        return self._samples.known_class or type(self._samples.used())

    def __len__(self) -> int:
        return int(self._samples.count())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._samples.used(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._samples.used(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._samples.used(), name)

    def __dir__(self) -> list[str]:
        return dir(self._samples.used())

    def __getitem__(self, index: Any) -> Any:
        return self._samples.used()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._samples.used())

    def __contains__(self, value: Any) -> bool:
        return value in self._samples.used()

    def __add__(self, other: Any) -> Any:
        return self._samples.used() + other

    def __eq__(self, other: object) -> bool:
        return bool(self._samples.used() == other)

    def __hash__(self) -> int:
        return hash(self._samples.used())

    def __repr__(self) -> str:
        return repr(self._samples.used())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._samples.used().__reduce_ex__(protocol)
