"""The shortest whole program: a dataset of your own, one consumer, two workers.

Run it with `python examples/quickstart.py`.
"""

import time

import numpy as np

from swift_loader import SwiftLoader


class Squares:
    """A map-style dataset: anything with `__len__` and `__getitem__`. Each worker builds one."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict:
        image = np.full((3, 64, 64), index % 256, dtype=np.uint8)
        return {"image": image, "number": index, "square": float(index) ** 2}


def run_epoch(loader: SwiftLoader) -> None:
    samples, began = 0, time.perf_counter()
    for step, batch in enumerate(loader):
        samples += len(batch["number"])
        if step < 3:
            shapes = (f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in batch.items())
            print(f"batch {step} of {len(loader)}:", ", ".join(shapes))
    seconds = time.perf_counter() - began
    print(f"{samples:,} samples in {seconds:.2f} s, {samples / seconds:,.0f} samples/s")


def main() -> None:
    loader = SwiftLoader(
        dataset_class=Squares,
        dataset_kwargs={"size": 20_000},
        batch_size=64,
        nb_consumer=1,  # GPUs
        worker_per_consumer=2,
        shuffle=True,
        seed=1,
    )
    with loader:
        loader.start(0)
        for epoch in range(2):
            print(f"epoch {epoch}")
            run_epoch(loader)
        statistics = loader.statistics()
    print(f"waited {statistics['wait_s']:.2f} s for data, did something else for {statistics['busy_s']:.2f} s")


if __name__ == "__main__":
    main()
