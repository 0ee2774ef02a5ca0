"""Training with Lightning Fabric: each of Fabric's ranks is a consumer of the loader.

    python examples/fabric_example.py                  # two ranks on the CPU, or one per GPU that is there
    python examples/fabric_example.py --dry-run        # a few steps

The data are scikit-learn's handwritten digits (1,797 images of 8 x 8 pixels), shifted by up to a pixel while training.
"""

import argparse

import numpy as np
import torch
from lightning.fabric import Fabric
from sklearn.datasets import load_digits
from torch import nn

from swift_loader import SwiftLoader


class Digits:
    """Every fifth digit is held out for testing."""

    def __init__(self, train: bool) -> None:  # noqa: FBT001 - a dataset of the user's, given by keyword
        digits = load_digits()
        held_out = np.arange(len(digits.target)) % 5 == 0
        chosen = ~held_out if train else held_out
        self.images = np.pad(digits.images[chosen] / 16, ((0, 0), (1, 1), (1, 1))).astype(np.float32)
        self.labels = digits.target[chosen]
        self.train = train

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple:
        # The loader seeds numpy's generator in its workers, so that these shifts are the same in every run.
        top, left = np.random.randint(3, size=2) if self.train else (1, 1)
        return self.images[index, None, top : top + 8, left : left + 8], self.labels[index]


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


def build_loader(fabric: Fabric, *, train: bool) -> SwiftLoader:
    return SwiftLoader(
        dataset_class=Digits,
        dataset_kwargs={"train": train},
        batch_size=32,
        nb_consumer=fabric.world_size,
        worker_per_consumer=1,
        shuffle=train,
        seed=1,
    )


def train_epoch(fabric: Fabric, model: nn.Module, optimizer: torch.optim.Optimizer, loader: SwiftLoader) -> float:
    model.train()
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        fabric.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    return float(fabric.all_reduce(torch.stack(losses).mean(), reduce_op="mean"))


@torch.no_grad()
def count_right(fabric: Fabric, model: nn.Module, loader: SwiftLoader) -> int:
    """How many digits all ranks together read right. They may take different numbers of steps, so DDP stays out."""
    model.eval()
    right = torch.zeros((), device=fabric.device)
    for images, labels in loader:
        right += (model.module(images).argmax(1) == labels).sum()
    return int(fabric.all_reduce(right, reduce_op="sum"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dry-run", action="store_true", help="one epoch, to see that all parts fit")
    arguments = parser.parse_args()

    gpus = torch.cuda.device_count()
    fabric = Fabric(accelerator="cuda" if gpus else "cpu", devices=gpus or 2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(1, verbose=False)

    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = fabric.setup(model, optimizer)

    with build_loader(fabric, train=True) as train_loader, build_loader(fabric, train=False) as test_loader:
        train_loader.start(fabric.global_rank, fabric.device)
        test_loader.start(fabric.global_rank, fabric.device)
        fabric.print(f"{len(train_loader.dataset)} digits to learn from, {len(test_loader.dataset)} held out")
        for epoch in range(1 if arguments.dry_run else arguments.epochs):
            loss = train_epoch(fabric, model, optimizer, train_loader)
            accuracy = count_right(fabric, model, test_loader) / len(test_loader.dataset)
            fabric.print(f"epoch {epoch + 1}: train loss {loss:.3f}, test accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
