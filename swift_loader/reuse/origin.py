"""What samples are of, as a few words that are the same in each run: the dataset's class, and what it is built with."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import numpy as np

from swift_loader.errors import ConfigError
from swift_loader.reuse.cached import Cached
from swift_loader.reuse.index import Origin
from swift_loader.settings.secret import Secret

_PLAIN = (int, float, complex, bool, str, bytes, type(None))


def origin_of(dataset_class: Any, arguments: Mapping[str, Any], dataset: Any, version: str) -> Origin:
    """The origin of the samples of a dataset: of a class and its arguments, or of a dataset that is there already.

    Raises:
        ConfigError: if the arguments cannot be told apart from others.
    """
    dataset, _ = Cached.apart(dataset)
    kind = dataset_class if dataset is None else type(dataset)
    state: Any = arguments
    if dataset is not None:
        state = getattr(dataset, "__dict__", dataset)
    digest = hashlib.blake2b(digest_size=16)
    try:
        _feed(digest, state)
        if not isinstance(kind, type):
            _feed(digest, kind)
    except Exception as error:
        raise ConfigError(
            f"a cache must know again what {_name(kind)} is built with, and it cannot be pickled "
            f"({type(error).__name__}: {error}): build the dataset of plain values"
        ) from error
    return Origin(_name(kind), digest.hexdigest(), version)


def _name(kind: Any) -> str:
    name = getattr(kind, "__qualname__", type(kind).__qualname__)
    return f"{getattr(kind, '__module__', '')}.{name}"


def _feed(digest: Any, value: Any) -> None:
    """Adds what ``value`` is, piece by piece, with the kind and length of each before it."""
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        _feed(digest, ("array", value.dtype.str, value.shape))
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif type(value) in _PLAIN:
        _add(digest, type(value).__name__, repr(value).encode())
    elif isinstance(value, PurePath):
        _add(digest, "path", str(value).encode())
    elif isinstance(value, Secret):
        _add(digest, "secret", b"")  # of a key nothing is written, and another key does not make other samples
    elif type(value) in (list, tuple):
        _add(digest, type(value).__name__, str(len(value)).encode())
        for part in value:
            _feed(digest, part)
    elif type(value) in (set, frozenset):
        _feed(digest, ("set", sorted(_of(part) for part in value)))
    elif type(value) is dict:
        _feed(digest, ("dict", sorted((_of(key), _of(part)) for key, part in value.items())))
    else:
        _feed_other(digest, value)


def _feed_other(digest: Any, value: Any) -> None:
    if isinstance(value, type | BuiltinFunctionType):
        _add(digest, "name", _name(value).encode())
    elif isinstance(value, FunctionType):
        code = value.__code__
        _feed(digest, ("function", _name(value), value.__defaults__ or (), value.__kwdefaults__ or {}))
        _feed_code(digest, code)
        _feed(digest, [cell.cell_contents for cell in value.__closure__ or ()])
    elif getattr(type(value), "__reduce__", None) == object.__reduce__ and hasattr(value, "__dict__"):
        _feed(digest, ("object", _name(type(value)), vars(value)))
    else:
        _add(digest, _name(type(value)), pickle.dumps(value, protocol=5))


def _feed_code(digest: Any, code: CodeType) -> None:
    _feed(digest, (code.co_code, code.co_names))
    for part in code.co_consts:
        if isinstance(part, CodeType):
            _feed_code(digest, part)
        elif type(part) in (*_PLAIN, tuple, frozenset):
            _feed(digest, part)


def _of(value: Any) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, value)
    return digest.digest()


def _add(digest: Any, kind: str, data: bytes) -> None:
    digest.update(f"{kind}:{len(data)}:".encode())
    digest.update(data)
