"""Datasets that draw from generators of their own, or of what they import when they need it. No torch here."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.datasets import Numbers


class ImportsTorch(Numbers):
    """Draws from a library that is imported when the first sample is made."""

    def __getitem__(self, index: int) -> float:
        import torch

        return torch.rand((), dtype=torch.float64).item()


class Crop:
    """A transform with two generators of its own, as Albumentations has it."""

    def __init__(self, seed: int | None = None) -> None:
        self.random_generator = np.random.default_rng(seed)
        self.py_random = random.Random(seed)

    def __call__(self, value: float) -> float:
        return value + self.random_generator.random() + self.py_random.random()


class Randomizable:
    """A transform whose class has a generator for all, as MONAI has it, until one is set."""

    R = np.random.RandomState()

    def set_random_state(self, seed: int) -> Randomizable:
        self.R = np.random.RandomState(seed)
        return self

    def __call__(self, value: float) -> float:
        return value + self.R.random_sample()


class Compose:
    """Transforms in a row."""

    def __init__(self, *transforms: Callable[[float], float]) -> None:
        self.transforms = list(transforms)

    def __call__(self, value: float) -> float:
        for transform in self.transforms:
            value = transform(value)
        return value


OF_THE_MODULE = np.random.default_rng(5)


def noisy(value: float) -> float:
    return value + OF_THE_MODULE.random()


class Augments(Numbers):
    """Each leaf is drawn from another kind of generator."""

    def __init__(self, count: int = 64) -> None:
        super().__init__(count)
        crop = Crop(42)
        self.transform = Compose(Crop(42), Compose(Randomizable().set_random_state(3)))
        self.of_class = Randomizable()
        self.closed_over = Closing(crop)
        self.rng, self.random = np.random.default_rng(1), random.Random(1)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "transform": self.transform(0.0),
            "of_class": self.of_class(0.0),
            "closed_over": self.closed_over(),
            "rng": self.rng.random(),
            "random": self.random.random(),
            "of_module": noisy(0.0),
        }


class Closing:
    """Keeps a bound method."""

    def __init__(self, crop: Crop) -> None:
        self.call = crop.__call__

    def __call__(self) -> float:
        return self.call(0.0)


class AugmentsLater(Augments):
    """Makes its generators when the first sample is asked for."""

    def __init__(self, count: int = 64) -> None:
        self.count, self.is_made = count, False

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not self.is_made:
            super().__init__(self.count)
            self.is_made = True
        return super().__getitem__(index)


class MixedAnew(Augments):
    """Mixes its samples anew for each epoch, by generators that it goes on with, or makes anew."""

    order: Any = None

    def set_epoch(self, epoch: int) -> None:
        self.order = self.rng.permutation(self.count) + np.random.permutation(self.count)
        self.random = random.Random(epoch)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"order": int(self.order[index]), "random": self.random.random()}
