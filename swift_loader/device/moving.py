"""What of a batch is moved to a device, and how the batch is put together again around it.

tensors, arrays of numbers     by whoever moves them
what has a `.to` of its own    by that: only it knows what belongs to it, and what must stay where it is
mappings, lists, tuples,       the same again, with what was moved in its places
namedtuples, dataclasses
all else                       stays as it is
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import UserList, deque
from collections.abc import Callable, Mapping, MutableMapping
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from swift_loader.batch.collate import is_masked
from swift_loader.errors import DataError

if TYPE_CHECKING:
    from swift_loader.device.stage import Array

    Act: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
    Own: TypeAlias = Callable[[Any], Any]

_KNOWN_KINDS = 256
#: What a first parameter of `.to` is called where it is no device: of dates, quantities, files.
_NO_DEVICES = frozenset({"tz", "unit", "units", "other", "format", "path"})


def move(batch: Any, device: Any) -> Any:
    """Moves all tensors and numpy arrays in nested containers to ``device``; leaves all else as it is.

    Example:
        >>> move({"x": np.zeros(2), "name": "a"}, "cpu")
        {'x': tensor([0., 0.], dtype=torch.float64), 'name': 'a'}
    """
    return mapped(batch, lambda tensor: tensor.to(device, non_blocking=True), by_itself(device))


def by_itself(device: Any, *, non_blocking: bool = True) -> Own:
    """Has what `moves_itself` do so, for `mapped`.

    Raises:
        DataError: where that cannot be.
    """

    def moved(value: Any) -> Any:
        takes_non_blocking = _way_of(value) is _Way.NON_BLOCKING
        try:
            result = value.to(device, non_blocking=True) if takes_non_blocking and non_blocking else value.to(device)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise DataError(
                f"a {kind} in the batch has a .to of its own, which did not move it to {device}: "
                f"{type(error).__name__}: {error}. Move batches yourself, with start(..., to_device=function)"
            ) from error
        return value if result is None else result  # some move what they hold, and give nothing back

    return moved


def mapped(value: Any, act: Act, own: Own | None = None) -> Any:
    """``value`` with each of its tensors, and each array that can become one, replaced by what ``act`` makes of it.

    What moves itself is replaced by what ``own`` makes of it, or is a container like others where that is not given.
    """
    if isinstance(value, torch.Tensor):
        return act(value)
    if isinstance(value, np.ndarray):
        return _moved_array(value, act)
    if type(value) is PackedSequence:  # the lengths stay on the host, where torch wants them
        data, lengths, order, back = value
        return PackedSequence(act(data), lengths, *(None if one is None else act(one) for one in (order, back)))
    if own is not None and moves_itself(value):
        return own(value)
    return _rebuilt(value, lambda part: mapped(part, act, own))


def _rebuilt(value: Any, moved: Callable[[Any], Any]) -> Any:
    """``value`` itself, or a container like it with its parts moved."""
    if isinstance(value, Mapping):
        return _like_mapping(value, {key: moved(item) for key, item in value.items()})
    if isinstance(value, list | tuple | deque | UserList):
        return _like_sequence(value, [moved(item) for item in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = copy.copy(value)  # not through __init__: it may take other arguments, or check what a batch is not
        for field in dataclasses.fields(value):
            object.__setattr__(made, field.name, moved(getattr(value, field.name)))
        return made
    return value


def moves_itself(value: Any) -> bool:
    """Whether it has a `.to` of its own that takes a device."""
    return _way_of(value) is not None


class _Way(Enum):
    PLAIN = "to(device)"
    NON_BLOCKING = "to(device, non_blocking=True)"


def _way_of(value: object) -> _Way | None:
    return _own_way(type(value))  # type: ignore[arg-type] # a class is hashable


@lru_cache(_KNOWN_KINDS)
def _own_way(kind: type) -> _Way | None:
    to = getattr(kind, "to", None)  # of the class: an object may take any attribute for one of its keys
    if not inspect.isroutine(to) or issubclass(kind, type):
        return None
    try:
        parameters = list(inspect.signature(to).parameters.values())[1:]
    except ValueError:  # one in C that does not tell
        return _Way.PLAIN
    taken = [one for one in parameters if one.kind not in (one.KEYWORD_ONLY, one.VAR_KEYWORD)]
    if not taken or taken[0].name in _NO_DEVICES:
        return None
    is_told = any(one.name == "non_blocking" or one.kind is one.VAR_KEYWORD for one in parameters)
    return _Way.NON_BLOCKING if is_told else _Way.PLAIN


def _moved_array(array: Array, act: Act) -> Any:
    dtype = array.dtype
    if dtype.kind not in "biufc" or dtype.char in "gG" or is_masked(array):
        return array  # torch has no place for it
    if not (array.flags.writeable and dtype.isnative) or any(stride < 0 for stride in array.strides):
        array = array.astype(dtype.newbyteorder("="))  # torch takes what it could write to, from front to back
    return act(torch.from_numpy(array))


def _like_mapping(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(value) is dict or all(items[key] is item for key, item in value.items()):
        return items if type(value) is dict else value
    if not isinstance(value, MutableMapping):
        try:
            return type(value)(items)  # type: ignore[call-arg] # as mappings that cannot be written to mostly do
        except TypeError:
            return items
    made = copy.copy(value)  # not through __init__: it may take other arguments
    for key, item in items.items():  # not through update(): a Counter would add them up
        made[key] = item
    return made


def _like_sequence(value: Any, items: list[Any]) -> Any:
    kind = type(value)
    if kind is list:
        return items
    if isinstance(value, tuple):
        return getattr(value, "_make", kind)(items)  # a namedtuple has a way round its constructor
    made = copy.copy(value)
    for at, item in enumerate(items):
        made[at] = item
    return made
