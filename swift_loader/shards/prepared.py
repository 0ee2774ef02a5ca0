"""A sample of a source as it is written: its key, and its fields as bytes.

That is most of a writer's work, so it may be done beside it, by processes that read the source (`Prepared`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from swift_loader.errors import ShardError
from swift_loader.shards.encode import Encoded, Encoder
from swift_loader.shards.fields import key_of
from swift_loader.shards.making import Making


class Ready(NamedTuple):
    """A sample as it is written."""

    key: bytes
    fields: list[Encoded]
    """In the order of their names."""


class Preparing:
    """Makes samples ready, as a making says. What is ready is left as it is."""

    def __init__(self, making: Making) -> None:
        self._making = making
        self._encoder = Encoder(making.quality, keep_format=making.keep_format)

    def __call__(self, sample: Any, index: int) -> Ready:
        """The sample with that index in its source.

        Raises:
            ShardError: if it cannot be written; or what `Prepared` found so.
        """
        if type(sample) is Ready:
            return sample
        if isinstance(sample, ShardError):
            raise sample
        key, values = _values_of(sample, self._making)
        fields = [self._encoder(name, value) for name, value in values if value is not None]
        if len(fields) > 1:
            fields.sort(key=itemgetter(0))
        return Ready(b"%09d" % index if key is None else key_of(key), fields)


class Prepared:
    """A source of which samples come ready: for processes that read it. What cannot be written comes as the error."""

    def __init__(self, source: Any, making: Making) -> None:
        self._source, self._making = source, making
        self._preparing: Preparing | None = None

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Ready | ShardError:
        if self._preparing is None:
            self._preparing = Preparing(self._making)
        try:
            key, fields = self._preparing(self._source[index], index)
        except ShardError as error:
            return error
        return Ready(key, [field._replace(data=bytes(field.data)) for field in fields])  # a view stays where it is

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_preparing": None}


def _values_of(sample: Any, making: Making) -> tuple[Any, Iterable[tuple[str, Any]]]:
    """The sample's key, if it has one, and its values by their names."""
    if isinstance(sample, dict):
        key = sample.get(making.key or "__key__")
        if making.key is not None and key is None:
            raise ShardError(f"the sample has no field {making.key!r}, which should be its key")
        if making.fields is None:
            return key, [(name, value) for name, value in sample.items() if name[:2] != "__" and name != making.key]
        return key, [(name, _item(sample, place)) for name, place in making.fields.items()]
    if making.fields is not None:
        items = sample if isinstance(sample, tuple | list) else (sample,)
        return None, [(name, _item(items, place)) for name, place in making.fields.items()]
    if isinstance(sample, tuple):
        return None, list(zip(getattr(sample, "_fields", repeat("")), sample, strict=False))
    return None, [("", sample)]


def _item(sample: Any, place: Any) -> Any:
    try:
        return sample[place]
    except (KeyError, IndexError, TypeError):
        has = list(sample) if isinstance(sample, dict) else f"{len(sample)} items"
        raise ShardError(f"the sample has no {place!r}, which fields= names; it has {has}") from None
