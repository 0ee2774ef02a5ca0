"""Containers of other types than dict, list and tuple: what they are beyond their items, and such a one around others.

A batch's container is what the first sample's was, with its attributes, as torch's collate has it: a `UserDict` of a
tokenizer, a `defaultdict` with its factory, a `deque` with its length. torch copies the sample and updates the copy,
which writes into the sample where the two share what holds the items, and adds where updating means adding. Here an
empty one is made and filled; what cannot be had that way is a dict or a list.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, UserString, defaultdict, deque
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any


class Stand(enum.Enum):
    """Stands in `Attributes` for what is known from the items."""

    ITEMS = enum.auto()
    """All of them."""
    ITEM = enum.auto()
    """The one of the attribute's name."""


class Attributes(dict[str, Any]):
    """What a container has beyond its items, by name."""


def is_mapping(value: Any) -> bool:
    """Whether it is batched key by key."""
    return isinstance(value, Mapping)


def is_sequence(value: Any) -> bool:
    """Whether it is batched item by item."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | UserString)


def attributes_of(sample: Any) -> Attributes:
    """What ``sample`` has beyond its items; nothing where that cannot be told from them."""
    if isinstance(sample, deque):
        return Attributes(maxlen=sample.maxlen)
    if _is_tensordict(type(sample)):
        return Attributes(batch_size=tuple(sample.batch_size))
    own = getattr(sample, "__dict__", {})
    if own is sample:  # so that its items are attributes
        return Attributes(__dict__=Stand.ITEMS)
    if not isinstance(sample, dict | list):
        home = next((name for name, value in own.items() if _is_home(value, sample)), None)
        return Attributes() if home is None else Attributes({**own, home: Stand.ITEMS})
    kept = Attributes(own)
    if isinstance(sample, dict):
        mirrored = [name for name in own if name in sample and dict.__getitem__(sample, name) is own[name]]
        kept.update(dict.fromkeys(mirrored, Stand.ITEM))
    if isinstance(sample, defaultdict):
        kept["default_factory"] = sample.default_factory
    return kept


def _is_home(value: Any, sample: Any) -> bool:
    """Whether ``value`` is what holds the items of ``sample``."""
    if isinstance(sample, Mapping):
        same_keys = type(value) is dict and list(value) == list(sample.keys())
        return same_keys and all(value[key] is sample[key] for key in value)
    same_length = type(value) in (list, tuple) and len(value) == len(sample)
    return same_length and all(one is other for one, other in zip(value, sample, strict=True))


def _is_tensordict(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "tensordict"


def mapping_around(kind: type, items: dict[Any, Any], attributes: Attributes) -> Any:
    """A mapping of the type ``kind`` with these items; if that cannot be had, the dict."""
    for make in (_filled_mapping, _constructed):
        try:
            made = make(kind, items, attributes)
            if list(made.keys()) == list(items) and all(_is_same(made[key], part) for key, part in items.items()):
                return made
        except Exception:  # noqa: BLE001, S112 - a class of the user's may refuse batches in any way
            continue
    return items


def sequence_around(kind: type, items: list[Any], attributes: Attributes) -> Any:
    """A sequence of the type ``kind`` with these items; if that cannot be had, the list."""
    for make in (_filled_sequence, _constructed):
        try:
            made = make(kind, items, attributes)
            if len(made) == len(items) and all(one is other for one, other in zip(made, items, strict=True)):
                return made
        except Exception:  # noqa: BLE001, S112 - as above
            continue
    return items


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(other) is list and isinstance(one, list) and one == other)


def _constructed(kind: Any, items: Any, attributes: Attributes) -> Any:
    if issubclass(kind, deque):
        return kind(items, attributes["maxlen"])
    if _is_tensordict(kind):
        return kind(items, batch_size=(len(next(iter(items.values()))), *attributes["batch_size"]))
    return kind(items)


def _filled_mapping(kind: type, items: dict[Any, Any], attributes: Attributes) -> Any:
    if issubclass(kind, dict):
        made: Any = dict.__new__(kind)  # a subclass's __init__ may want anything
        base: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
        if attributes.get("__dict__") is Stand.ITEMS:
            made.__dict__ = made
        else:
            _set(made, {name: items[name] if value is Stand.ITEM else value for name, value in attributes.items()})
        base.update(made, items)  # an update of its own may add to what is there
        return made
    return _with_home(kind, items, {} if issubclass(kind, MutableMapping) else dict(items), attributes)


def _filled_sequence(kind: type, items: list[Any], attributes: Attributes) -> Any:
    if issubclass(kind, list):
        made: Any = list.__new__(kind)
        _set(made, attributes)
        list.extend(made, items)
        return made
    return _with_home(kind, items, [] if issubclass(kind, MutableSequence) else list(items), attributes)


def _with_home(kind: type, items: Any, home: Any, attributes: Attributes) -> Any:
    """One whose items lie in an attribute: put there by its own methods, which may look at them, if it has such."""
    if Stand.ITEMS not in attributes.values():
        raise TypeError(f"{kind.__name__} cannot be made empty")
    made: Any = object.__new__(kind)
    _set(made, {name: home if value is Stand.ITEMS else value for name, value in attributes.items()})
    if not home:
        (made.update if isinstance(home, dict) else made.extend)(items)
    return made


def _set(made: Any, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
