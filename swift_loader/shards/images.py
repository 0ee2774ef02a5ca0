"""A folder of images with a folder for each class, as most people have it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swift_loader.errors import ConfigError, DataError
from swift_loader.shards.decode import Decoding
from swift_loader.shards.numbering import place

#: What torchvision takes for an image.
_ENDINGS = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


class ImageFolder:
    """``root/dog/xxx.png``, ``root/cat/sub/yyy.jpg``: samples are ``(image, class)``, sorted by class and name.

    The same files, classes and numbers as torchvision's ImageFolder finds. The folder is gone through once, where the
    dataset is made; what was found is a few arrays, which all workers share, however many files there are.

    Args:
        root: the folder.
        transform: called with each image.
        target_transform: called with each class's number.
        decode: what an image is for the transform: ``"pil"``, ``"rgb8"``, ``"torchrgb"``, ... as in `ShardDataset`.

    Example:
        >>> dataset = ImageFolder("train", decode="rgb8", transform=crop)
        >>> SwiftLoader.from_dataset(dataset, 64, nb_consumer=2, worker_per_consumer=4)
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        *,
        decode: str | None = "pil",
    ) -> None:
        self.root = str(Path(root).expanduser().absolute())
        self.transform = transform
        self.target_transform = target_transform
        self.decoding = Decoding(decode)
        self.classes = _folders_in(self.root)
        names, self._targets = _found(self.root, self.classes)
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path = self.path(index)
        data = Path(path).read_bytes()
        try:
            image = self.decoding.of(path)(data)
        except Exception as error:
            raise DataError(f"{path} cannot be decoded: {error}") from error
        target = int(self._targets[index])
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    def path(self, index: int) -> str:
        """The file of a sample."""
        number = place(index, len(self))
        first = self._ends[number - 1] if number else 0
        name = os.fsdecode(self._names[first : self._ends[number]].tobytes())
        return f"{self.root}{os.sep}{name}"

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class."""
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def targets(self) -> Any:
        """Each sample's class, as an array: for weights, or a plan of one's own."""
        return self._targets

    def column(self, name: str) -> Any:
        """Each sample's class, by the name that it has in shards: ``"cls"``."""
        if name != "cls":
            raise ConfigError(f"a folder of images has the column 'cls', and none that is called {name!r}")
        return self._targets

    @property
    def samples(self) -> Sequence[tuple[str, int]]:
        """All files with their classes, as torchvision lists them."""
        return [(self.path(index), int(target)) for index, target in enumerate(self._targets)]

    def __repr__(self) -> str:
        return f"<ImageFolder {self.root}, {len(self):,} images of {len(self.classes):,} classes>"


def _folders_in(root: str) -> list[str]:
    try:
        with os.scandir(root) as entries:
            classes = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError as error:
        raise ConfigError(f"{root} cannot be read: {error.strerror}") from error
    if not classes:
        raise ConfigError(f"{root} has no folders in it: one for each class is expected")
    return classes


def _found(root: str, classes: Sequence[str]) -> tuple[list[bytes], Any]:
    """The names below ``root``, and the class of each."""
    names: list[bytes] = []
    counts: list[int] = []
    for name in classes:
        before = len(names)
        for folder, _, files in sorted(os.walk(f"{root}{os.sep}{name}", followlinks=True)):
            below = folder[len(root) + len(os.sep) :]
            names += [os.fsencode(f"{below}{os.sep}{file}") for file in sorted(files) if _is_image(file)]
        counts.append(len(names) - before)
    if empty := [name for name, count in zip(classes, counts, strict=True) if not count]:
        raise ConfigError(f"{root} has folders without an image: {', '.join(empty[:5])}{' ...' if empty[5:] else ''}")
    return names, np.repeat(np.arange(len(classes), dtype=np.int64), counts)


def _is_image(name: str) -> bool:
    return Path(name).suffix.lower() in _ENDINGS
