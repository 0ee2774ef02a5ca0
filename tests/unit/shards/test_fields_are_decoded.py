"""A field becomes what webdataset makes of it, by its name; what would run code stays bytes."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zlib

import numpy as np
import pytest
from PIL import Image

from swift_loader.errors import ConfigError, DataError
from swift_loader.shards.decode import CODE, IMAGE_KINDS, Decoding


def picture(form: str, mode: str = "RGB", **how: object) -> bytes:
    channels = 4 if mode == "RGBA" else 3
    small = np.random.default_rng(3).integers(0, 256, (5, 6, channels), np.uint8)
    image = Image.fromarray(small).resize((24, 20), Image.Resampling.BICUBIC).convert(mode)
    file = io.BytesIO()
    image.save(file, form, **how)
    return file.getvalue()


def array_file(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(("field", "data"), [
    ("txt", "grün".encode()), ("text", b"a"), ("transcript", b"a b"), ("cls", b"12"), ("left.cls", b"-3"),
    ("index", b"4"), ("inx", b"4"), ("id", b"4"), ("json", b'{"a": [1, null]}'), ("jsn", b"[]"),
    ("npy", array_file(np.arange(6.0).reshape(2, 3))), ("bin", b"\0\1"), ("json.gz", gzip.compress(b"[1]", mtime=0)),
])  # fmt: skip
def test_what_webdataset_makes_of_it(field: str, data: bytes) -> None:
    wds = pytest.importorskip("webdataset")
    (theirs,) = (wds.Decoder([])({"__key__": "0", field: data})[key] for key in (field,))
    ours = Decoding().of(field)(data)
    assert type(ours) is type(theirs)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", sorted(IMAGE_KINDS))
@pytest.mark.parametrize(
    "given",
    [("PNG", "RGB"), ("PNG", "L"), ("PNG", "RGBA"), ("PNG", "P"), ("JPEG", "RGB"), ("JPEG", "CMYK"), ("JPEG", "L")],
)
def test_images_are_what_webdataset_makes_of_them(kind: str, given: tuple[str, str]) -> None:
    wds = pytest.importorskip("webdataset")
    field, data = {"PNG": "png", "JPEG": "jpg"}[given[0]], picture(*given)
    theirs = wds.autodecode.ImageHandler(kind)(field, data)
    ours = Decoding(kind).of(field)(data)
    assert type(ours).__name__ == type(theirs).__name__
    if IMAGE_KINDS[kind].form == "torch" and IMAGE_KINDS[kind].mode == "L":
        theirs = theirs[None] if theirs.ndim == 2 else theirs
    assert np.asarray(ours).dtype == np.asarray(theirs).dtype
    np.testing.assert_allclose(np.asarray(ours, np.float64), np.asarray(theirs, np.float64), atol=1e-6)


@pytest.mark.parametrize("how", [{"subsampling": at, "quality": 85} for at in (0, 1, 2)] + [{"progressive": True}])
def test_the_quick_decoder_gives_the_pixels_of_pillow(how: dict[str, int]) -> None:
    pytest.importorskip("simplejpeg")
    data = picture("JPEG", **how)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image.convert("RGB"), np.int64)
    assert np.abs(Decoding("rgb8").of("jpg")(data).astype(np.int64) - expected).max() <= 2


def test_arrays_of_arrays() -> None:
    file = io.BytesIO()
    np.savez(file, a=np.arange(3), b=np.ones(2))
    assert {name: array.tolist() for name, array in Decoding().of("npz")(file.getvalue()).items()} == {
        "a": [0, 1, 2], "b": [1.0, 1.0],
    }  # fmt: skip


@pytest.mark.parametrize("ending", sorted(CODE))
def test_what_would_run_code_stays_bytes(ending: str) -> None:
    data = pickle.dumps([1])
    assert Decoding().of(ending)(data) == data


def test_a_pickle_is_read_where_that_is_allowed() -> None:
    assert Decoding(allow_pickle=True).of("pyd")(pickle.dumps([1])) == [1]


@pytest.mark.parametrize("field", ["npy", "npz"])
def test_arrays_of_objects_are_refused(field: str) -> None:
    file = io.BytesIO()
    objects = np.array([{}], object)
    np.save(file, objects) if field == "npy" else np.savez(file, objects)
    with pytest.raises(ValueError, match="allow_pickle"):
        Decoding(allow_pickle=True).of(field)(file.getvalue())


@pytest.mark.parametrize(
    "data",
    [gzip.compress(bytes(65 << 20)), gzip.compress(b"[1]" * 40)[:-9], b"no gzip at all"],
    ids=["bomb", "cut", "other"],
)
def test_what_cannot_be_unpacked_is_an_error_and_takes_no_memory(data: bytes) -> None:
    with pytest.raises((DataError, zlib.error)):
        Decoding().of("txt.gz")(data)


def test_images_stay_bytes_if_so_wished() -> None:
    data = picture("PNG")
    assert Decoding(None).of("png")(data) == data
    assert Decoding(None).of("json")(json.dumps([1]).encode()) == [1]


def test_an_unknown_kind_of_image_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rgb9.*torchrgb8"):
        Decoding("rgb9")
