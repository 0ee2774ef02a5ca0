"""Datasets that sets are made of, the same in each process."""

import hashlib
import os
import sys

import numpy as np

from swift_loader import shards


class Mixed:
    """Samples of several kinds of values, of many sizes."""

    def __init__(self, count=300):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        return {
            "jpg": rng.bytes(int(rng.integers(0, 3000))),
            "label": index % 10,
            "weight": index / 7,
            "x": rng.standard_normal((2, 3)).astype(np.float32),
            "text": f"text {index}",
            **({"odd": [index]} if index % 2 else {}),
        }


def digests(folder):
    """Of all files of a set, by their names."""
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in sorted(os.listdir(folder))
        if not name.startswith(".")
    }


if __name__ == "__main__":
    shards.create(Mixed(), sys.argv[1], maxsize="40KB")
