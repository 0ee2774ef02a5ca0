"""A folder of pictures with a folder for each class, and what torch's users read such a one with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image


def write_pictures(root: Path, count: int, size: int = 48) -> None:
    """JPEG, every seventh PNG, and one of each set a PNG that is called JPEG."""
    rng = np.random.default_rng(count)
    for number in range(count):
        folder = root / f"class{number % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.kron(rng.integers(0, 256, (size // 12, size // 12, 3), np.uint8), np.ones((12, 12, 1), np.uint8))
        ending, kind = ("JPEG", "JPEG") if number % 7 else ("png", "PNG")
        Image.fromarray(pixels).save(folder / f"{number:05d}.{ending}", "PNG" if number == 3 else kind)


class PictureFolder(torch.utils.data.Dataset[Any]):
    """As torchvision's ImageFolder."""

    def __init__(self, root: Path, transform: Callable[[Any], Any] | None = None) -> None:
        self.classes = sorted(path.name for path in root.iterdir())
        self.samples = [
            (str(path), label) for label, name in enumerate(self.classes) for path in sorted((root / name).iterdir())
        ]
        self.imgs = self.samples
        self.transform = transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        with Image.open(path) as file:
            image = file.convert("RGB")
        return (image if self.transform is None else self.transform(image)), label
