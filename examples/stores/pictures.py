"""A folder of pictures that are drawn, and what stands for torchvision here: its ImageFolder and two transforms."""

import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image

CLASSES = ("plain", "rows", "columns", "checks")
SIDE = 64


def draw(folder: Path, count: int) -> None:
    """So many of each class, as JPEG, and some as PNG."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:96, :96] // 12
    shades = {"plain": 0 * x, "rows": y % 2, "columns": x % 2, "checks": (x + y) % 2}
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            dark, light = rng.integers(0, 100, 3), rng.integers(130, 256, 3)
            pixels = np.where(shades[name][..., None] == 1, light, dark) + rng.integers(0, 30, (96, 96, 1))
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(folder / name / f"{number:04}.{'png' if number % 10 == 0 else 'jpg'}")


class ImageFolder(torch.utils.data.Dataset):
    """As torchvision's: a folder for each class."""

    def __init__(self, root: Path) -> None:
        self.classes = sorted(path.name for path in root.iterdir())
        self.samples = [
            (str(path), label) for label, name in enumerate(self.classes) for path in sorted((root / name).iterdir())
        ]
        self.imgs, self.transform = self.samples, None

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple:
        path, label = self.samples[index]
        with Image.open(path) as file:
            return file.convert("RGB"), label


def preproc(image: Image.Image) -> torch.Tensor:
    """A random crop, flipped every second time, as a tensor from 0 to 1."""
    left, top = (random.randint(0, side - SIDE) for side in image.size)
    pixels = np.asarray(image.crop((left, top, left + SIDE, top + SIDE)))
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
