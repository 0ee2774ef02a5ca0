"""Values of samples become the bytes of a field, and the field's name says by its ending how they are read.

Bytes stay as they are. A picture from a file that nobody has changed keeps that file's bytes; other pictures, and
arrays that look like one, become PNG, or JPEG where the field is called so. Arrays become .npy, whole numbers digits,
text UTF-8, all else JSON. Numbers are kept in the table too. A name that does not end so gets that ending: `label`
becomes `label.cls`.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from swift_loader.errors import ShardError
from swift_loader.host.warn import warn_user
from swift_loader.shards.fields import MOST_DIMENSIONS, Field, field_of

#: The endings under which readers of webdatasets look for such a value; what gets one gets the first.
WHOLE = ("cls", "cls2", "class", "count", "index", "inx", "id")
TEXT = ("txt", "text", "transcript", "html", "htm", "xml", "csv", "tsv", "md", "yaml", "yml", "srt", "vtt")
JSON = ("json", "jsn")
_REAL = (*JSON, "txt", "text")
_PLAIN = (*WHOLE, *_REAL)
_JPEG, _PNG = ("jpg", "jpeg"), ("png",)
_FILES = {"JPEG": _JPEG, "PNG": _PNG}
#: Modes of pictures that these files have.
_MODES = {"JPEG": ("L", "RGB", "CMYK"), "PNG": ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")}
_CHANNELS = (1, 3, 4)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_PLAIN_DTYPES = "biufc"


class Encoded(NamedTuple):
    """A field of one sample as it is written."""

    name: str
    data: bytes | memoryview
    number: int | float | None = None
    array: Field | None = None
    """Dtype, shape and header of an array."""


class Encoder:
    """Encodes values.

    Args:
        quality: Of JPEG.
        keep_format: Whether pictures from files that are neither JPEG nor PNG keep their bytes; else they become PNG.
    """

    def __init__(self, quality: int = 90, *, keep_format: bool = False) -> None:
        self._quality = quality
        self._keep_format = keep_format
        self._by_type: dict[type, Callable[[str, Any], Encoded]] = {
            bytes: _bytes, bytearray: _bytes, memoryview: _bytes,
            int: _whole, bool: _whole, float: _real, str: _text, np.ndarray: self._array,
        }  # fmt: skip

    def __call__(self, field: str, value: Any) -> Encoded:
        """The value as a field of that name; an empty name is for the ending alone.

        Raises:
            ShardError: if there is no way to write it.
        """
        encode = self._by_type.get(type(value))
        if encode is None:
            encode = self._by_type[type(value)] = self._way_of(value)
        return encode(field, value)

    def _way_of(self, value: Any) -> Callable[[str, Any], Encoded]:
        torch, pictures = sys.modules.get("torch"), sys.modules.get("PIL.Image")
        ways: list[tuple[Any, Callable[[str, Any], Encoded]]] = [
            (np.generic, lambda field, value: self._array(field, np.asarray(value))),
            (np.ndarray, lambda field, value: self._array(field, np.asarray(value))),
            (getattr(torch, "Tensor", ()), self._tensor),
            (getattr(pictures, "Image", ()), self._picture),
            (Path, _file),
            (int, _whole),
            (float, _real),
            (str, _text),
        ]
        return next((way for kind, way in ways if isinstance(value, kind)), _json)

    def _tensor(self, field: str, value: Any) -> Encoded:
        try:
            array = value.detach().cpu().numpy()
        except (TypeError, RuntimeError) as error:
            raise ShardError(
                f"field {field!r}: a tensor of {value.dtype} is no array that .npy has: {error}"
            ) from error
        return self._array(field, array)

    def _array(self, field: str, value: Any) -> Encoded:
        ending = field.rpartition(".")[2].lower()
        if ending != "npy":
            if value.ndim == 0 and value.dtype.kind in "biuf":
                return self(field, value.item())
            if value.dtype == np.uint8 and (picture := _as_picture(value)) is not None:
                return self._encoded_picture(field, picture)
        return _npy(_ended(field, ("npy",)), value)

    def _picture(self, field: str, value: Any) -> Encoded:
        file, kind = getattr(value, "filename", ""), value.format
        # What was only opened has its tiles still to be read: nobody has changed it.
        if file and getattr(value, "tile", None):
            endings = _FILES.get(kind, (str(kind).lower(),))
            is_asked = field.rpartition(".")[2].lower() not in (*_JPEG, *_PNG) or _has_ending(field, endings)
            if is_asked and (kind in _FILES or self._keep_format):
                return Encoded(field_of(_ended(field, endings)), Path(file).read_bytes())
            if is_asked:
                warn_user(f"pictures from {kind} files become PNG; keep_format=True has them stay what they are")
        return self._encoded_picture(field, value)

    def _encoded_picture(self, field: str, value: Any) -> Encoded:
        kind = "JPEG" if _has_ending(field, _JPEG) else "PNG"
        if kind == "PNG" and getattr(value, "mode", "") in ("I", "F"):  # it has no such
            return _npy(_ended(field, ("npy",)), np.asarray(value))
        if isinstance(value, np.ndarray):
            from PIL import Image  # noqa: PLC0415 - who has pictures only

            value = Image.fromarray(value)
        if value.mode not in _MODES[kind]:
            value = value.convert("RGB")
        out = io.BytesIO()
        value.save(out, kind, **({"quality": self._quality} if kind == "JPEG" else {}))
        return Encoded(field_of(_ended(field, _FILES[kind])), out.getvalue())


def npy_head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The header of .npy: version 1.0, in the order of rows; the same bytes with each version of numpy."""
    described = np.lib.format.dtype_to_descr(dtype)
    text = f"{{'descr': {described!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode("latin1")
    padded = text + b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


@lru_cache(4096)
def _known_array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[bytes, Field | None]:
    head = npy_head(dtype, shape)
    plain = dtype.kind in _PLAIN_DTYPES and len(shape) <= MOST_DIMENSIONS
    return head, Field("npy", dtype.str, shape, len(head)) if plain else None


@lru_cache(4096)
def _ended(field: str, endings: tuple[str, ...]) -> str:
    if _has_ending(field, endings):
        return field_of(field)
    return field_of(f"{field}.{endings[0]}" if field else endings[0])


@lru_cache(4096)
def _number_name(field: str, endings: tuple[str, ...]) -> tuple[str, bool]:
    """A number's field, and whether it is an array all the same."""
    is_array = _has_ending(field, ("npy",))
    return (field_of(field) if is_array else _ended(field, endings)), is_array


def _has_ending(field: str, endings: tuple[str, ...]) -> bool:
    return field.rpartition(".")[2].lower() in endings


def _bytes(field: str, value: Any) -> Encoded:
    data = value if type(value) is bytes else memoryview(value).cast("B")
    return Encoded(_named(field), data)


@lru_cache(4096)
def _named(field: str) -> str:
    if not field:
        raise ShardError("bytes of an item without a name: say what it is called, fields={'jpg': 0}")
    return field_of(field)


def _file(field: str, value: Path) -> Encoded:
    return _bytes(_ended(field, (value.suffix[1:].lower() or "bin",)), value.read_bytes())


def _whole(field: str, value: Any) -> Encoded:
    name, is_array = _number_name(field, _PLAIN)
    if is_array:
        return _npy(name, np.asarray(value))
    number = int(value)
    return Encoded(name, b"%d" % number, number if _LEAST <= number <= _MOST else None)


def _real(field: str, value: Any) -> Encoded:
    name, is_array = _number_name(field, _REAL)
    if is_array:
        return _npy(name, np.asarray(value))
    return Encoded(name, json.dumps(float(value)).encode(), float(value))


def _text(field: str, value: Any) -> Encoded:
    if _has_ending(field, JSON):
        return _json(field, value)
    try:
        return Encoded(_ended(field, TEXT), str.encode(value))
    except UnicodeEncodeError as error:
        raise ShardError(f"field {field!r}: its text is no Unicode that UTF-8 has: {error}") from error


def _json(field: str, value: Any) -> Encoded:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
        return Encoded(_ended(field, JSON), text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ShardError(f"field {field!r} has a {type(value).__name__} that cannot be written: {error}") from error


def _plain(value: Any) -> Any:
    """For JSON: what numpy and torch have for lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"JSON has no {type(value).__name__}")


def _npy(name: str, value: Any) -> Encoded:
    if value.dtype.hasobject:
        raise ShardError(f"field {name!r} has an array of objects, which could be read only by running what is in it")
    array = np.ascontiguousarray(value) if value.ndim else value
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    head, known = _known_array(array.dtype, array.shape)
    return Encoded(name, head + array.tobytes(), None, known)


def _as_picture(value: Any) -> Any:
    """The array with its channels last, if it looks like a picture."""
    if not value.size:
        return None
    if value.ndim == 2:
        return value
    if value.ndim != 3:
        return None
    if value.shape[2] in _CHANNELS:
        return value[:, :, 0] if value.shape[2] == 1 else value
    if value.shape[0] in _CHANNELS:
        return value[0] if value.shape[0] == 1 else np.ascontiguousarray(value.transpose(1, 2, 0))
    return None
