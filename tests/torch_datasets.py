"""Datasets that use torch, which their workers therefore load."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

from tests.datasets import Numbers
from tests.fault.augmented import Augmented


class TorchNumbers(Dataset):
    """As most datasets are: a subclass of torch's."""

    def __init__(self, count: int = 64) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((2, 3), index, dtype=torch.bfloat16), "i": index, "threads": torch.get_num_threads()}


class TorchRandom(Numbers):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(1, dtype=torch.float64).item()


class TorchIterable(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(10))


class TorchWithoutLength(Dataset):
    def __getitem__(self, index: int) -> Any:
        return index


class TorchAugmented(Augmented):
    def __getitem__(self, index: int) -> Any:
        return {**super().__getitem__(index), "rotated": torch.rand(2, dtype=torch.float64)}


class SameMemory(Numbers):
    """Fills the same memory anew for its next samples: one tensor, one of three places, and what it gave out last."""

    def __init__(self, count: int = 64) -> None:
        super().__init__(count)
        self.whole, self.places = torch.zeros(5), torch.zeros(3, 5, dtype=torch.bfloat16)
        self.last = torch.zeros(5)

    def __getitem__(self, index: int) -> Any:
        self.last.fill_(-1)
        self.last = torch.full((5,), index)
        self.places[index % 3] = index % 256
        return self.whole.fill_(index), self.places[index % 3], self.last, self.whole[0]


class TorchsOwn(Numbers):
    def __init__(self, count: int, generator: Any) -> None:
        super().__init__(count)
        self.generator = generator

    def __getitem__(self, index: int) -> float:
        return torch.rand((), generator=self.generator, dtype=torch.float64).item()


class Wrapped:
    """What no default move looks into."""

    def __init__(self, samples):
        self.pictures = torch.stack([torch.from_numpy(picture) for picture, _ in samples])


def nested_with_arrays(samples: list) -> dict:
    array = np.stack([image for image, _ in samples])
    return {"deep": [torch.from_numpy(array), 1], "array": array, "text": "left alone"}
