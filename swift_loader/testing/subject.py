"""What is checked: a dataset, as a loader gets it, and the settings of that loader."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from swift_loader.errors import ConfigError
from swift_loader.settings.loader import LoaderConfig, check_dataset_class, checked_kwargs
from swift_loader.wire.recipe import Recipe

#: What would write files, or be taken for the user's own run.
_SILENT = dict.fromkeys(("logger", "benchmark_file", "trace_file", "replay_file"))


@dataclass(frozen=True, slots=True)
class Source:
    """Where a worker has its dataset from: a class and its arguments, or the dataset itself."""

    dataset_class: Callable[..., Any] | None
    dataset_kwargs: dict[str, Any]
    dataset: Any

    @classmethod
    def of(cls, dataset: Any, dataset_kwargs: dict[str, Any] | None) -> Self:
        """Tells a class, or a function that makes the dataset, from a dataset."""
        is_maker = isinstance(dataset, type) or (callable(dataset) and not hasattr(dataset, "__getitem__"))
        if is_maker:
            check_dataset_class(dataset)
            return cls(dataset, checked_kwargs(dataset_kwargs), None)
        if dataset_kwargs:
            raise ConfigError(
                f"dataset_kwargs go to a class, and a {type(dataset).__name__} was given that exists already: give its "
                "class, or leave them out"
            )
        check_dataset_class(type(dataset))
        return cls(None, {}, dataset)

    @property
    def made_by(self) -> Any:
        """The class, or the function."""
        return self.dataset_class or type(self.dataset)

    def build(self) -> Any:
        """The dataset."""
        return self.dataset if self.dataset_class is None else self.dataset_class(**self.dataset_kwargs)


@dataclass(frozen=True, slots=True)
class Subject:
    """A source, and how it is to be loaded."""

    source: Source
    batch_size: int
    settings: Mapping[str, Any]
    config: LoaderConfig

    @classmethod
    def of(cls, source: Source, batch_size: int, settings: Mapping[str, Any]) -> Self:
        """Checks the settings as a loader would."""
        config = LoaderConfig.parse(batch_size, 1, 1, True, settings)  # noqa: FBT003 - as the constructor
        return cls(source, batch_size, {"seed": 1, **settings, **_SILENT}, config)

    @property
    def name(self) -> str:
        """How one would write it, cut to a line."""
        made_by = self.source.made_by
        if isinstance(made_by, functools.partial):
            made_by = made_by.func
        name = getattr(made_by, "__qualname__", repr(made_by)).rpartition("<locals>.")[2]
        if self.source.dataset_class is None:
            return f"a {name}"
        words = ", ".join(f"{key}={_short(value)}" for key, value in self.source.dataset_kwargs.items())
        return f"{name}({words if len(words) <= _LONG else words[:_LONG] + '...'})"

    @property
    def recipe(self) -> Recipe:
        """All that would travel to a worker."""
        source = self.source
        recipe = Recipe(source.dataset_class, source.dataset_kwargs, source.dataset, self.config, 1, 0)
        return recipe.for_worker()


_LONG = 50


def _short(value: Any) -> str:
    plain = isinstance(value, str | int | float | bool | type(None))
    text = repr(value) if plain else f"<{type(value).__name__}>"
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."
