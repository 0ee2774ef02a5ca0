"""What the bytes of a field become in sets that MosaicML's streaming and LitData wrote: by the encoding they tell.

Both libraries say of each field how it is encoded, in words of their own; `mds.py` and `litdata.py` turn these into the
words below. A size or a count that bytes claim is compared with how many there are before any room is made for it.

    bytes str bool int float uint8 ... float64      one value
    str_int str_float str_decimal json pkl          text of it
    ndarray[:DTYPE[:SHAPE]]                         MosaicML's arrays; what is not told here stands before the values
    array:DTYPE                                     one dimension, nothing but values
    tensor:DTYPE                                    the same, as a tensor of torch's
    lit_numpy lit_tensor lit_json                   LitData's, with their own heads
    pil                                             an image's pixels:  u32 width | u32 height | u32 n | mode | pixels
    jpeg png image                                  an image file
    list[ENCODING] jpeg_array                       several: sizes, then each
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from math import prod
from typing import Any

import numpy as np

from swift_loader.errors import ConfigError, DataError
from swift_loader.shards.decode import Decode, Decoding
from swift_loader.shards.nested import read_nested

#: Numbers of their own kind: `int` and `float` are Python's.
SCALARS = {
    **{name: np.dtype(name).newbyteorder("<").str for name in (
        "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    )},
    "int": "<i8", "float": "<f8", "bool": "|b1",
}  # fmt: skip
_PLAIN: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool}
_MDS_DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
#: By LitData's numbers, which have several for one.
NUMPY_DTYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "bool",
)  # fmt: skip
TORCH_DTYPES = (
    "float32", "float32", "float64", "float64", "complex64", "complex64", "complex128", "complex128", "float16",
    "float16", "bfloat16", "uint8", "int8", "int16", "int16", "int32", "int32", "int64", "int64", "bool", "uint16",
)  # fmt: skip
_DTYPES = {"array": NUMPY_DTYPES, "tensor": TORCH_DTYPES}
_MOST_DIMENSIONS = 32


def decoder_of(encoding: str, decoding: Decoding) -> Decode:
    """What decodes a field; images become what ``decoding`` says.

    Raises:
        ConfigError: if there is no such encoding, or it runs code and that is not allowed.
    """
    name, _, rest = encoding.partition(":")
    if name in SCALARS and not rest:
        return partial(_scalar, dtype=SCALARS[name], plain=_PLAIN.get(name))
    if name == "ndarray":
        return partial(_mds_array, static=static_array(encoding))
    if name.startswith("list[") and name.endswith("]"):
        return partial(_listed, each=decoder_of(name[5:-1], decoding), skip=4)
    made = _IN_WORDS.get(name) if rest else _BY_NAME.get(name)
    if made is None or (name in _DTYPES and rest not in _DTYPES[name]):
        raise ConfigError(f"no field can be encoded as {encoding[:100]!r}, as far as this version knows")
    return made(decoding, rest)


def static_array(encoding: str) -> tuple[str, tuple[int, ...] | None]:
    """What an encoding tells of its arrays: dtype ("" if it does not), and shape (None if it does not).

    Raises:
        ConfigError: if it tells what cannot be.
    """
    name, _, rest = encoding.partition(":")
    if name in SCALARS and not rest:
        return SCALARS[name], ()
    if name != "ndarray" or not rest:
        return "", None
    dtype, _, sides = rest.partition(":")
    shape = (
        tuple(int(side) if side.isdecimal() and len(side) < 12 else 0 for side in sides.split(",")) if sides else None
    )
    if dtype not in _MDS_DTYPES.values() or 0 in (shape or ()) or len(shape or ()) > _MOST_DIMENSIONS:
        raise ConfigError(f"no array can be encoded as {encoding!r}")
    return SCALARS[dtype], shape


def _side(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 12 else 0


def _scalar(data: Any, dtype: str, plain: Callable[[Any], Any] | None) -> Any:
    (value,) = np.frombuffer(data, dtype)
    return value if plain is None else plain(value)


def _mds_array(data: Any, static: tuple[str, tuple[int, ...] | None]) -> Any:
    at, (dtype, shape) = 0, static
    if not dtype:
        code, at = int(data[0]), 1
        if code not in _MDS_DTYPES:
            raise DataError(f"{code} is no dtype of an array")
        dtype = SCALARS[_MDS_DTYPES[code]]
    if shape is None:
        code, at = int(data[at]), at + 1
        count, nbytes = code >> 2, 1 << (code & 3)
        shape = tuple(np.frombuffer(data[at : at + count * nbytes], f"<u{nbytes}").tolist())
        if len(shape) != count:
            raise DataError("an array ends before its shape does")
        at += count * nbytes
    return _shaped(data[at:], dtype, shape)


def _shaped(data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    if prod(shape) * np.dtype(dtype).itemsize != len(data) or len(shape) > _MOST_DIMENSIONS:
        raise DataError(f"an array of {dtype} and the shape {shape} does not take {len(data):,} bytes")
    return _values(data, dtype).reshape(shape)


def _values(data: Any, dtype: str) -> Any:
    values = np.frombuffer(data, dtype)
    return values if values.flags.aligned and values.flags.writeable else values.copy()


def _tensor(data: Any, dtype: str) -> Any:
    return _as_tensor(data, dtype, None)


def _as_tensor(data: Any, dtype: str, shape: tuple[int, ...] | None) -> Any:
    import torch  # noqa: PLC0415 - a worker loads it only where samples are tensors

    kind = getattr(torch, dtype)
    if shape is not None and prod(shape) * kind.itemsize != len(data):
        raise DataError(f"a tensor of {dtype} and the shape {shape} does not take {len(data):,} bytes")
    if not len(data):
        return torch.empty(shape or 0, dtype=kind)
    flat = torch.frombuffer(_values(data, f"V{kind.itemsize}").view(np.uint8), dtype=kind)
    return flat if shape is None else flat.reshape(shape)


def _lit_numpy(data: Any) -> Any:
    number, shape, at = _head_of(data, "<", NUMPY_DTYPES)
    return _shaped(data[at:], NUMPY_DTYPES[number], shape)


def _lit_tensor(data: Any) -> Any:
    number, shape, at = _head_of(data, ">", TORCH_DTYPES)
    return _as_tensor(data[at:], TORCH_DTYPES[number], shape)


def _head_of(data: Any, order: str, dtypes: tuple[str, ...]) -> tuple[int, tuple[int, ...], int]:
    """``u32 dtype | u32 dimensions | u32 each``: dtype, shape, and where they end."""
    number, count = struct.unpack_from(f"{order}II", data)
    if number >= len(dtypes) or count > _MOST_DIMENSIONS:
        raise DataError(f"an array has dtype {number} and {count} dimensions, which cannot be")
    return number, struct.unpack_from(f"{order}{count}I", data, 8), 8 + 4 * count


def _listed(data: Any, each: Decode, skip: int) -> list[Any]:
    """``u32 n | u32 size of each | all of them``, behind ``skip`` bytes."""
    (count,) = struct.unpack_from("<I", data, skip)
    begin = skip + 4 + 4 * count
    if begin > len(data):
        raise DataError(f"a list of {count:,} does not fit into {len(data):,} bytes")
    ends = np.cumsum(np.frombuffer(data[skip + 4 : begin], "<u4"), dtype=np.int64) + begin
    if count and int(ends[-1]) > len(data):
        raise DataError(f"the items of a list end at {int(ends[-1]):,} of {len(data):,} bytes")
    begins = [begin, *ends[:-1].tolist()] if count else []
    return [each(data[first:last]) for first, last in zip(begins, ends.tolist(), strict=True)]


def _pickled(decoding: Decoding, _: str) -> Decode:
    if not decoding.allow_pickle:
        raise ConfigError("it is pickled, and reading it runs what stands in it: allow_pickle=True allows that")
    return decoding.of("pkl")


def _from_text(kind: Callable[[str], Any]) -> Callable[[Decoding, str], Decode]:
    return lambda _, __: lambda data: kind(bytes(data).decode())


def _as_it_is(decode: Decode) -> Callable[[Decoding, str], Decode]:
    return lambda _, __: decode


#: What decodes, by the encoding's name and what was asked for.
_BY_NAME: dict[str, Callable[[Decoding, str], Decode]] = {
    "bytes": _as_it_is(bytes), "lit_json": _as_it_is(read_nested), "lit_numpy": _as_it_is(_lit_numpy),
    "lit_tensor": _as_it_is(_lit_tensor),
    "str": _from_text(str), "str_int": _from_text(int), "str_float": _from_text(float),
    "str_decimal": _from_text(Decimal), "json": lambda decoding, _: decoding.of("json"), "pkl": _pickled,
    "jpeg": lambda decoding, _: decoding.of("jpeg"), "png": lambda decoding, _: decoding.of("png"),
    "image": lambda decoding, _: decoding.of("png"), "pil": lambda decoding, _: decoding.raw_image(),
    "jpeg_array": lambda decoding, _: partial(_listed, each=decoding.of("jpeg"), skip=0),
}  # fmt: skip
#: The same where there is more behind its name.
_IN_WORDS: dict[str, Callable[[Decoding, str], Decode]] = {
    "array": lambda _, dtype: partial(_values, dtype=dtype), "tensor": lambda _, dtype: partial(_tensor, dtype=dtype),
    "image": lambda decoding, ending: decoding.of(ending),
}  # fmt: skip
