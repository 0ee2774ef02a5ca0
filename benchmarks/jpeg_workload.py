"""JPEG images in memory and the usual augmentation, by Pillow. Workers import this file: no torch in it."""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

SOURCE_SIDE = 400
SIDE = 224
SMALLEST_CROP = 200


def jpeg_files(count: int) -> list[bytes]:
    """Smooth textures as JPEG files of about 30 kB. Smooth, because noise decodes unlike photographs."""
    rng = np.random.default_rng(0)
    files = []
    for _ in range(count):
        coarse = rng.integers(0, 256, (25, 25, 3), dtype=np.uint8)
        fine = rng.integers(0, 24, (SOURCE_SIDE // 2, SOURCE_SIDE // 2, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((SOURCE_SIDE, SOURCE_SIDE), Image.Resampling.BICUBIC)
        grain = Image.fromarray(fine).resize((SOURCE_SIDE, SOURCE_SIDE), Image.Resampling.BICUBIC)
        pixels = np.clip(np.asarray(smooth, dtype=np.int16) + np.asarray(grain, dtype=np.int16) - 12, 0, 255)
        out = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(out, "JPEG", quality=90)
        files.append(out.getvalue())
    return files


class JpegImages:
    """Decode, random crop, resize to 224, random flip, float32: pixels in CHW and the index as a label."""

    def __init__(self, files: list[bytes], count: int) -> None:
        self.files = files
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        return cropped(Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")), index


def cropped(image: Image.Image) -> NDArray[np.float32]:
    """A part of it, resized, flipped or not, as numbers from 0 to 1."""
    side = random.randint(SMALLEST_CROP, SOURCE_SIDE)
    left, top = random.randint(0, SOURCE_SIDE - side), random.randint(0, SOURCE_SIDE - side)
    image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1)
    if random.random() < 0.5:
        pixels = pixels[:, :, ::-1]
    return np.ascontiguousarray(pixels) / np.float32(255)
