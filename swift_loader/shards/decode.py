"""What the bytes of a field become, by the field's name: the names and kinds that webdataset's users know.

Text, numbers, JSON and arrays are decoded by their names; images as one word says ("pil", "rgb8", "torchrgb"...). What
would run code when it is read (pickles, torch's files) stays bytes unless it is allowed. Libraries are imported when a
field first needs them.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from swift_loader.errors import ConfigError, DataError
from swift_loader.shards.pixels import has_quick_jpeg, pillow_image, pillow_pixels, quick_pixels, raw_image, raw_pixels

Decode: TypeAlias = Callable[[Any], Any]
Pixels: TypeAlias = Callable[[Any, str], Any]

#: Whoever unpickles these runs what they say.
CODE = frozenset({"pickle", "pkl", "pt", "pth", "pyd", "ten", "tb"})
_IMAGES = frozenset({
    "apng", "bmp", "dib", "gif", "ico", "j2c", "j2k", "jfif", "jp2", "jpc", "jpe", "jpeg", "jpf", "jpg", "jpx", "pbm",
    "pcx", "pgm", "png", "pnm", "ppm", "sgi", "tga", "tif", "tiff", "webp", "xbm", "xpm",
})  # fmt: skip
_JPEGS = frozenset({"jfif", "jpe", "jpeg", "jpg"})
#: In place of a kind of images: no field is decoded.
AS_IT_IS = "bytes"
#: A compressed field may become so large, and no larger.
_MOST_NBYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Kind:
    """What an image becomes."""

    form: str
    """Of Pillow, numpy (height, width, channels) or torch (channels, height, width)."""
    mode: str
    is_float: bool = False
    """From 0 to 1."""


IMAGE_KINDS = {
    "pil": Kind("pil", "RGB"), "pilrgb": Kind("pil", "RGB"), "pill": Kind("pil", "L"), "pilrgba": Kind("pil", "RGBA"),
    "rgb8": Kind("numpy", "RGB"), "l8": Kind("numpy", "L"), "rgba8": Kind("numpy", "RGBA"),
    "rgb": Kind("numpy", "RGB", is_float=True), "l": Kind("numpy", "L", is_float=True),
    "rgba": Kind("numpy", "RGBA", is_float=True),
    "torchrgb8": Kind("torch", "RGB"), "torchl8": Kind("torch", "L"), "torchrgba8": Kind("torch", "RGBA"),
    "torch": Kind("torch", "RGB", is_float=True), "torchrgb": Kind("torch", "RGB", is_float=True),
    "torchl": Kind("torch", "L", is_float=True), "torchrgba": Kind("torch", "RGBA", is_float=True),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decoding:
    """Which fields are decoded, and how."""

    images: str | None = "pil"
    """One of `IMAGE_KINDS`; None: images stay bytes; `AS_IT_IS`: all fields do."""
    allow_pickle: bool = False
    """Fields that run code when they are read are read."""

    def __post_init__(self) -> None:
        if self.images not in (None, AS_IT_IS) and self.images not in IMAGE_KINDS:
            raise ConfigError(f"decode={self.images!r} is not known: {', '.join(IMAGE_KINDS)}, or None for bytes")

    @property
    def is_none(self) -> bool:
        """Whether all fields stay bytes."""
        return self.images == AS_IT_IS

    def of(self, field: str) -> Decode:
        """What decodes the bytes of ``field``, by what follows the last dot of its name."""
        if self.is_none:
            return bytes
        name, _, ending = field.lower().rpartition(".")
        if ending == "gz":
            return partial(_unzipped, then=self.of(name))
        if ending in _IMAGES:
            return bytes if self.images is None else _image_decoder(IMAGE_KINDS[self.images], ending)
        if ending in CODE:
            return _CODE_DECODERS.get(ending, bytes) if self.allow_pickle else bytes
        return _DECODERS.get(ending, bytes)

    def raw_image(self) -> Decode:
        """What decodes images whose pixels are not compressed, as MosaicML and LitData write Pillow's."""
        if self.images is None or self.is_none:
            return bytes
        return _image_decoder(IMAGE_KINDS[self.images], "", raw_image, raw_pixels)


def _image_decoder(kind: Kind, ending: str, image: Pixels = pillow_image, pixels: Pixels = pillow_pixels) -> Decode:
    if kind.form == "pil":
        return lambda data: image(data, kind.mode)
    is_quick = ending in _JPEGS and kind.mode == "RGB" and has_quick_jpeg()
    return partial(_formed, kind=kind, pixels_of=quick_pixels if is_quick else pixels)


def _formed(data: Any, kind: Kind, pixels_of: Pixels) -> Any:
    pixels = pixels_of(data, kind.mode)
    if kind.form == "torch":
        import torch  # noqa: PLC0415 - a worker loads it only where samples are tensors

        image = torch.from_numpy(pixels)
        image = image.permute(2, 0, 1).contiguous() if image.ndim == 3 else image[None]
        return image.to(torch.float32).div_(255) if kind.is_float else image
    return pixels.astype(np.float32) / np.float32(255) if kind.is_float else pixels


def _unzipped(data: Any, then: Decode) -> Any:
    unzip = zlib.decompressobj(wbits=31)
    plain = unzip.decompress(bytes(data), _MOST_NBYTES)
    if unzip.unconsumed_tail or not unzip.eof:
        raise DataError(f"a compressed field is damaged, or larger than {_MOST_NBYTES:,} bytes when it is unpacked")
    return then(plain)


def _text(data: Any) -> str:
    return bytes(data).decode()


def _number(data: Any) -> int:
    return int(bytes(data))


def _json(data: Any) -> Any:
    return json.loads(bytes(data))


def _npy(data: Any) -> Any:
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def _npz(data: Any) -> Any:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


def _msgpack(data: Any) -> Any:
    import msgpack  # noqa: PLC0415 - the user's, if at all

    return msgpack.unpackb(bytes(data))


def _cbor(data: Any) -> Any:
    import cbor2  # noqa: PLC0415 - the user's, if at all

    return cbor2.loads(bytes(data))


def _unpickled(data: Any) -> Any:
    import pickle  # noqa: PLC0415 - only where the user has allowed it

    return pickle.loads(data)  # noqa: S301 - as above


def _torch_file(data: Any) -> Any:
    import torch  # noqa: PLC0415 - as above

    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)


_DECODERS: dict[str, Decode] = {
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), _number),
    **dict.fromkeys(("json", "jsn"), _json),
    **dict.fromkeys(("mp", "msg", "msgpack"), _msgpack),
    "npy": _npy, "npz": _npz, "cbor": _cbor,
}  # fmt: skip
_CODE_DECODERS: dict[str, Decode] = {
    **dict.fromkeys(("pickle", "pkl", "pyd"), _unpickled),
    **dict.fromkeys(("pt", "pth"), _torch_file),
}
