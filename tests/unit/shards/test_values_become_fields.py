"""What each value is written as, under which name, and that it is read again as it was."""

import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from swift_loader.errors import ShardError
from swift_loader.shards.encode import Encoder, npy_head

encode = Encoder()


class Text(str):
    __slots__ = ()

    def encode(self, *_):
        raise AssertionError("a subclass's own way is not asked")


TOLD = {
    "bytes": ("mp4", b"ab", "mp4", b"ab"),
    "bytes_in_memory": ("bin", memoryview(np.arange(2, dtype="<u2")), "bin", b"\0\0\1\0"),
    "bytes_of_a_pickle": ("pkl", b"ab", "pkl", b"ab"),
    "upper_case": ("JPG", b"ab", "jpg", b"ab"),
    "whole": ("cls", 7, "cls", b"7"),
    "whole_by_a_name": ("label", -7, "label.cls", b"-7"),
    "whole_without_a_name": ("", 7, "cls", b"7"),
    "truth": ("ok", True, "ok.cls", b"1"),
    "huge": ("cls", 1 << 70, "cls", b"%d" % (1 << 70)),
    "numpy_whole": ("label", np.uint8(200), "label.cls", b"200"),
    "numpy_0d": ("label", np.array(5), "label.cls", b"5"),
    "tensor_0d": ("label", torch.tensor(5), "label.cls", b"5"),
    "real": ("w", 0.5, "w.json", b"0.5"),
    "numpy_real": ("w", np.float32(0.5), "w.json", b"0.5"),
    "text": ("caption", "ä", "caption.txt", "ä".encode()),
    "text_as_json": ("json", "ä", "json", '"ä"'.encode()),
    "text_under_a_number": ("cls", "cat", "cls.txt", b"cat"),
    "text_of_a_subclass": ("txt", Text("a"), "txt", b"a"),
    "list": ("boxes", [[1, 2]], "boxes.json", b"[[1,2]]"),
    "list_of_arrays": ("boxes", [np.arange(2), torch.tensor(1.5)], "boxes.json", b"[[0,1],1.5]"),
    "whole_as_json": ("json", 7, "json", b"7"),
}  # fmt: skip


@pytest.mark.parametrize("kind", TOLD)
def test_a_value_is_written_so(kind):
    field, value, name, data = TOLD[kind]
    encoded = encode(field, value)
    assert (encoded.name, bytes(encoded.data)) == (name, data)


@pytest.mark.parametrize(
    ("value", "number"), [(7, 7), (True, 1), (0.5, 0.5), (1 << 63, None), ("7", None), (b"7", None)]
)
def test_numbers_are_kept_in_the_table_too(value, number):
    assert encode("x", value).number == number


@given(
    hnp.arrays(
        st.sampled_from(["<f4", "<i8", "|b1", "<f2", "<c8", "<u2", "<M8[s]", ">f4", "<U3"]),
        hnp.array_shapes(min_dims=1, max_dims=5, min_side=0),
    )
)
def test_arrays_are_read_again_as_they_were(array):
    for given_array in (array, np.asfortranarray(array), array[::-1]):
        encoded = encode("x", given_array)
        read = np.load(io.BytesIO(encoded.data), allow_pickle=False)
        assert encoded.name == "x.npy"
        assert read.shape == given_array.shape
        np.testing.assert_array_equal(read, given_array)
        if encoded.array is not None:
            assert len(encoded.data) == encoded.array.skip + encoded.array.array_nbytes
            told = np.frombuffer(encoded.data, encoded.array.dtype, offset=encoded.array.skip)
            np.testing.assert_array_equal(told.reshape(encoded.array.shape), given_array)


def test_a_tensor_is_an_array():
    tensor = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
    assert encode("x", tensor) == encode("x", tensor.detach().numpy())
    with pytest.raises(ShardError, match=r"x.*bfloat16"):
        encode("x", torch.zeros(2, dtype=torch.bfloat16))


def test_a_header_is_one_that_numpy_reads():
    for shape in ((), (3,), (2, 3), (1,) * 20):
        head = npy_head(np.dtype("<f4"), shape)
        assert len(head) % 64 == 0
        assert np.load(io.BytesIO(head + bytes(4 * int(np.prod(shape))))).shape == shape


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4), (3, 5, 7), (1, 5, 7), (4, 5, 7)])
def test_arrays_that_look_like_pictures_are_png(shape):
    array = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    encoded = encode("image", array)
    assert encoded.name == "image.png"
    read = np.asarray(Image.open(io.BytesIO(encoded.data)))
    channels_last = array if shape[-1] in (1, 3, 4) or len(shape) == 2 else array.transpose(1, 2, 0)
    np.testing.assert_array_equal(read, channels_last[..., 0] if 1 in shape else channels_last)


@pytest.mark.parametrize("shape", [(5,), (5, 7, 2), (2, 3, 5, 7), (0, 5), (3, 0, 5)])
def test_other_bytes_are_arrays(shape):
    assert encode("image", np.zeros(shape, np.uint8)).name == "image.npy"
    assert encode("image.npy", np.zeros((5, 7, 3), np.uint8)).name == "image.npy"


def test_a_picture_is_jpeg_where_it_is_called_so():
    array = np.zeros((8, 8, 4), np.uint8)
    small, large = (Encoder(quality)("jpg", np.random.default_rng(0).bytes(768) and array) for quality in (10, 95))
    assert small.name == "jpg"
    assert Image.open(io.BytesIO(small.data)).format == Image.open(io.BytesIO(large.data)).format == "JPEG"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    assert len(Encoder(10)("jpg", noise).data) < len(Encoder(95)("jpg", noise).data)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "HSV", "YCbCr"])
@pytest.mark.parametrize("field", ["jpg", "png"])
def test_pictures_of_all_modes_are_written(mode, field):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded = encode(field, Image.new(mode, (4, 5)))
    assert Image.open(io.BytesIO(encoded.data)).size == (4, 5)


@pytest.mark.parametrize(("ending", "name"), [("jpg", "jpg"), ("png", "png")])
def test_a_picture_that_was_only_opened_keeps_its_files_bytes(tmp_path, ending, name):
    file = tmp_path / f"x.{ending}"
    Image.new("RGB", (4, 5)).save(file)
    with Image.open(file) as picture:
        assert encode("", picture) == (name, file.read_bytes(), None, None)
        assert encode("image", picture).name == f"image.{name}"
        other = {"jpg": "png", "png": "jpg"}[name]
        assert encode(other, picture).data != file.read_bytes()
        picture.putpixel((0, 0), (255, 255, 255))
        assert encode("", picture).data != file.read_bytes()


@pytest.mark.parametrize(("mode", "dtype"), [("I", "<i4"), ("F", "<f4")])
def test_pictures_that_png_has_not_are_arrays(mode, dtype):
    encoded = encode("depth", Image.new(mode, (4, 5), 70000))
    assert (encoded.name, encoded.array.dtype, encoded.array.shape) == ("depth.npy", dtype, (5, 4))


def test_pictures_of_other_formats_become_png_unless_they_are_to_stay(tmp_path):
    file = tmp_path / "x.bmp"
    Image.new("RGB", (4, 5)).save(file)
    with Image.open(file) as picture:
        assert Encoder(keep_format=True)("image", picture) == ("image.bmp", file.read_bytes(), None, None)
        with pytest.warns(RuntimeWarning, match="keep_format"):
            assert encode("image", picture).name == "image.png"


def test_a_path_is_the_bytes_of_its_file(tmp_path):
    (tmp_path / "x.JPG").write_bytes(b"abc")
    assert encode("image", Path(tmp_path / "x.JPG"))[:2] == ("image.jpg", b"abc")


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        ("x", np.array([None]), "objects"), ("x", object(), "object"), ("x", {1, 2}, "set"), ("", b"ab", "called"),
        ("a/b", b"", "called"), ("", {"a": b"x"}, "bytes"), ("x", "\ud800", "UTF-8"), ("ü", b"", "called"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused(field, value, match):
    with pytest.raises(ShardError, match=match):
        encode(field, value)


def test_a_circle_is_refused():
    circle = []
    circle.append(circle)
    with pytest.raises(ShardError, match="list"):
        encode("x", circle)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('aä\n"'),
        st.lists,
        max_leaves=5,
    ).map(lambda x: [x])
)
def test_json_is_read_again_as_it_was(value):
    assert json.loads(encode("x", value).data) == value
