"""Objects of a batch that are no columns, said without pickle: plain values, and arrays and tensors within them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from swift_loader.errors import ProtocolError
from swift_loader.net import arrays, schema

_TUPLE, _ARRAY, _SCALAR, _TENSOR, _BIG = range(1, 6)
_PLAIN = (bool, float, str, bytes, type(None))
_DEEPEST = 100
_LARGEST = 1 << 63


class Unsayable(Exception):
    """A value that is not sent to other machines: where it lies, and what it is."""


def write(value: Any) -> bytes:
    """The bytes that say it.

    Raises:
        Unsayable: if nothing does.
    """
    return schema.write_value(_said(value, "", _DEEPEST))


def read(data: bytes | memoryview) -> Any:
    """What the bytes say.

    Raises:
        ProtocolError: if they say nothing.
    """
    return schema.read_value(data, _extended)


def _said(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is int and -_LARGEST <= value < _LARGEST):
        return value
    if depth == 0:
        raise Unsayable(f"{path or 'the object'} lies {_DEEPEST} containers deep")
    if kind is list:
        return [_said(one, f"{path}[{at}]", depth - 1) for at, one in enumerate(value)]
    if kind is dict:
        return {_key(key, path): _said(one, f"{path}[{key!r}]", depth - 1) for key, one in value.items()}
    if kind is tuple:
        parts = [_said(one, f"{path}[{at}]", depth - 1) for at, one in enumerate(value)]
        return schema.extension(_TUPLE, schema.write_value(parts))
    return _said_of_numbers(value, path)


def _said_of_numbers(value: Any, path: str) -> Any:
    torch = sys.modules.get("torch")
    if type(value) is int:
        return schema.extension(_BIG, str(value).encode())
    if type(value) is np.ndarray and arrays.described(value) is not None:
        return schema.extension(_ARRAY, _numbers(value, value.dtype.str))
    if isinstance(value, np.generic) and arrays.described(np.asarray(value)) is not None:
        return schema.extension(_SCALAR, _numbers(np.asarray(value), value.dtype.str))
    if torch is not None and type(value) is torch.Tensor and value.layout is torch.strided:
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy() if value.numel() else b""
        name = str(value.dtype).removeprefix("torch.")
        said = schema.Ext(name, list(value.shape), bytes(flat))
        return schema.extension(_TENSOR, schema.write(said))
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise Unsayable(f"{path or 'the object'} is a {kind}")


def _numbers(array: np.ndarray[Any, Any], dtype: str) -> bytes:
    return schema.write(schema.Ext(dtype, list(array.shape), array.tobytes()))


def _key(key: Any, path: str) -> Any:
    if type(key) in _PLAIN or type(key) is int:
        return key
    raise Unsayable(f"a key of {path or 'the object'} is a {type(key).__name__}")


def _extended(code: int, data: memoryview) -> Any:
    if code == _TUPLE:
        return tuple(_listed(read(data)))
    if code == _BIG:
        return _whole(bytes(data))
    said = schema.read(schema.Ext, data)
    if code in (_ARRAY, _SCALAR):
        (array,) = arrays.taken([arrays.Described(said.dtype, tuple(said.shape), False)], memoryview(said.data))  # noqa: FBT003 - a record
        return array.copy() if code == _ARRAY else array[()]
    if code == _TENSOR:
        return _tensor(said)
    raise ProtocolError(f"an object of kind {code}, which there is not")


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ProtocolError("a tuple that holds no list")
    return value


def _whole(digits: bytes) -> int:
    if len(digits) > 4000 or not digits.removeprefix(b"-").isdigit():
        raise ProtocolError("a number that is none")
    return int(digits)


def _tensor(said: schema.Ext) -> Any:
    torch = importlib.import_module("torch")  # the trainer has it; this is a child, and needs it for this alone
    dtype = getattr(torch, said.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ProtocolError(f"a tensor of type {said.dtype[:40]!r}, which there is not")
    count = int(np.prod(said.shape, dtype=object)) if said.shape else 1
    if count * dtype.itemsize != len(said.data):
        raise ProtocolError(f"a tensor of {count} numbers in {len(said.data)} bytes")
    try:
        if not count:
            return torch.empty(said.shape, dtype=dtype)
        return torch.frombuffer(bytearray(said.data), dtype=torch.uint8).view(dtype).reshape(said.shape)
    except RuntimeError as error:
        raise ProtocolError(f"a tensor of {said.dtype} and {said.shape[:8]}, which there is not") from error
