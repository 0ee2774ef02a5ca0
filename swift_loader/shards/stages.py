"""What is done to each sample, or to each batch: one in, one out, or none. Named as webdataset's users know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from swift_loader.errors import ConfigError, DataError
from swift_loader.shards.decode import Decoding

Stage: TypeAlias = Callable[[Any], Any]
Handler: TypeAlias = Callable[[Exception], bool]
DROPPED = object()
"""Stands where a handler has said that a sample is to be left out."""


@dataclass(frozen=True, slots=True)
class Decode:
    """Bytes of fields become values: by the user's functions, by the fields' names, images by one word."""

    decoding: Decoding
    functions: tuple[Callable[[str, bytes], Any], ...] = ()
    only: frozenset[str] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is what a set's reader does by itself."""
        return not self.functions and self.only is None

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {name: self._decoded(sample, name, data) for name, data in sample.items()}

    def _decoded(self, sample: dict[str, Any], name: str, data: Any) -> Any:
        if name[:2] == "__" or not isinstance(data, bytes) or (self.only is not None and name not in self.only):
            return data
        for function in self.functions:
            if (value := function(f".{name}", data)) is not None:
                return value
        try:
            return self.decoding.of(name)(data)
        except Exception as error:
            raise DataError(f"field {name!r} of sample {sample.get('__key__')!r} cannot be decoded: {error}") from error


@dataclass(frozen=True, slots=True)
class ToTuple:
    """Fields of a dict become a tuple; ``"jpg;png"`` is the first of these that there is."""

    names: tuple[str, ...]
    missing_is_error: bool = True
    none_is_error: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether it is what a set's reader does by itself."""
        return self.missing_is_error

    def __call__(self, sample: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(self._field(sample, name) for name in self.names)

    def _field(self, sample: Mapping[str, Any], names: str) -> Any:
        for name in names.split(";"):
            if name in sample:
                value = sample[name]
                if value is None and self.none_is_error:
                    raise ValueError(f"field {name!r} of sample {sample.get('__key__')!r} is None")
                return value
        if self.missing_is_error:
            raise ValueError(f"sample {sample.get('__key__')!r} has no field {names!r}: it has {', '.join(sample)}")
        return None


@dataclass(frozen=True, slots=True)
class MapTuple:
    """A function for each item, from the first on; the others stay as they are."""

    functions: tuple[Stage, ...]

    def __call__(self, sample: Sequence[Any]) -> tuple[Any, ...]:
        if len(sample) < len(self.functions):
            raise ValueError(f"map_tuple has {len(self.functions)} functions for a sample of {len(sample)} items")
        done = [function(item) for function, item in zip(self.functions, sample, strict=False)]
        return (*done, *sample[len(done) :])


@dataclass(frozen=True, slots=True)
class MapDict:
    """A function for some fields."""

    functions: Mapping[str, Stage]

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        return {**sample, **{name: function(sample[name]) for name, function in self.functions.items()}}


@dataclass(frozen=True, slots=True)
class Rename:
    """Fields get other names; ``image="jpg;png"`` takes the first that there is."""

    names: Mapping[str, str]

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(sample)
        for new, old in self.names.items():
            there = next((name for name in old.split(";") if name in sample), None)
            if there is None:
                raise ValueError(f"sample {sample.get('__key__')!r} has no field {old!r}: it has {', '.join(sample)}")
            found.pop(there, None)
            found[new] = sample[there]
        return found


@dataclass(frozen=True, slots=True)
class SelectFields:
    """Only fields of which a function says so, and those that begin with two underscores."""

    wanted: Callable[[str], bool]

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in sample.items() if name[:2] == "__" or self.wanted(name)}


@dataclass(frozen=True, slots=True)
class Handled:
    """A stage, and what is asked where it raises: True leaves the sample out, False raises on."""

    stage: Stage
    handler: Handler

    def __call__(self, sample: Any) -> Any:
        try:
            return self.stage(sample)
        except Exception as error:
            if self.handler(error):
                return DROPPED
            raise


def handled(stage: Stage, handler: Handler | None) -> Stage:
    """The stage, with the handler if there is one."""
    return stage if handler is None else Handled(stage, handler)


def through(stages: Sequence[Stage], item: Any) -> Any:
    """The item behind all stages; `DROPPED` if one has left it out."""
    for stage in stages:
        if item is DROPPED:
            break
        item = stage(item)
    return item


def functions_of(name: str, functions: Sequence[object]) -> tuple[Stage, ...]:
    """These, if all can be called.

    Raises:
        ConfigError: if one cannot.
    """
    for function in functions:
        if not callable(function):
            raise ConfigError(f"{name} takes functions, not {function!r}")
    return tuple(functions)  # type: ignore[arg-type] # as was just seen
