"""What the servers serve: a function that returns a loader which was not started.

    swift-loader keygen job.key
    swift-loader serve data:make_loader --port 5557 --key job.key
    swift-loader serve data:make_loader --port 5558 --key job.key    # a second one, here or on another machine

With `--host 0.0.0.0` other machines may connect, if they have the key. The data are scikit-learn's handwritten digits.
"""

import numpy as np
from sklearn.datasets import load_digits

from swift_loader import SwiftLoader

RANKS = 2


class Digits:
    """Small pictures of handwritten digits, as vectors."""

    def __init__(self) -> None:
        digits = load_digits()
        self.images = (digits.images / 16).astype(np.float32)
        self.labels = digits.target

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple:
        return self.images[index].reshape(-1), self.labels[index]


def make_loader() -> SwiftLoader:
    return SwiftLoader(Digits, {}, batch_size=32, nb_consumer=RANKS, worker_per_consumer=1, shuffle=True, seed=1)
