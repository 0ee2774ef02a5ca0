"""A folder of images with a folder for each class."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from swift_loader.errors import ConfigError, DataError
from swift_loader.shards.images import ImageFolder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for at, name in enumerate(["dog/1.png", "cat/b.PNG", "cat/sub/a.jpg", "cat/a.webp", "ünï/x.bmp", "cat/notes.txt"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("no image") if path.suffix == ".txt" else Image.new("RGB", (3, 2), (at, 0, 0)).save(path)
    return tmp_path


def test_files_are_found_as_torchvision_lists_them(folder: Path) -> None:
    dataset = ImageFolder(folder)
    assert dataset.classes == ["cat", "dog", "ünï"]
    assert dataset.class_to_idx["dog"] == 1
    names = ["cat/a.webp", "cat/b.PNG", "cat/sub/a.jpg", "dog/1.png", "ünï/x.bmp"]
    assert dataset.samples == [(str(folder / name), at) for name, at in zip(names, [0, 0, 0, 1, 2], strict=True)]
    assert dataset.targets.tolist() == dataset.column("cls").tolist() == [0, 0, 0, 1, 2]
    assert len(dataset) == 5


def test_samples_are_images_and_classes(folder: Path) -> None:
    image, target = ImageFolder(folder)[1]
    assert (image.mode, image.size, target) == ("RGB", (3, 2), 0)
    pixels, _ = ImageFolder(folder, decode="rgb8")[3]
    assert (pixels.dtype, pixels.shape) == (np.uint8, (2, 3, 3))
    assert ImageFolder(folder, lambda image: image.size, lambda target: -target)[4] == ((3, 2), -2)


def test_a_million_files_travel_as_a_few_arrays(folder: Path) -> None:
    dataset = ImageFolder(folder)
    twin = pickle.loads(pickle.dumps(dataset))
    assert twin.samples == dataset.samples
    assert not any(isinstance(value, list) and len(value) == len(dataset) for value in vars(dataset).values())


def test_a_damaged_image_names_its_file(folder: Path) -> None:
    (folder / "dog/1.png").write_bytes(b"\x89PNG")
    with pytest.raises(DataError, match=r"dog/1\.png cannot be decoded"):
        ImageFolder(folder)[3]


def test_what_is_no_such_folder_is_told(folder: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        ImageFolder(folder / "nowhere")
    with pytest.raises(ConfigError, match="no folders in it"):
        ImageFolder(folder / "dog")
    (folder / "empty").mkdir()
    with pytest.raises(ConfigError, match="without an image: empty"):
        ImageFolder(folder)


def test_indices_are_those_of_a_list(folder: Path) -> None:
    dataset = ImageFolder(folder, decode=None)
    assert (dataset[-1], dataset.path(-5)) == (dataset[4], dataset.path(0))
    for index in (5, -6):
        with pytest.raises(IndexError, match=f"no sample {index}"):
            dataset[index]
