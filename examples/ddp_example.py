"""Training with plain PyTorch and DistributedDataParallel: each rank is a consumer of the loader.

    torchrun --nproc-per-node 2 examples/ddp_example.py
    python examples/ddp_example.py                     # the same: calls torchrun, two ranks or one per GPU

The data are scikit-learn's handwritten digits (1,797 images of 8 x 8 pixels).
"""

import argparse
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.run import main as torchrun
from torch.nn.parallel import DistributedDataParallel

from swift_loader import SwiftLoader


class Digits:
    """Every fifth digit is held out for testing."""

    def __init__(self, train: bool) -> None:  # noqa: FBT001 - a dataset of the user's, given by keyword
        digits = load_digits()
        held_out = np.arange(len(digits.target)) % 5 == 0
        chosen = ~held_out if train else held_out
        self.images = (digits.images[chosen] / 16).astype(np.float32)
        self.labels = digits.target[chosen]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple:
        return self.images[index].reshape(-1), self.labels[index]


def train(rank: int, world: int, device: torch.device, epochs: int) -> None:
    settings = {"dataset_class": Digits, "batch_size": 32, "nb_consumer": world, "worker_per_consumer": 1, "seed": 1}
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    model = DistributedDataParallel(network.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    with (
        SwiftLoader(dataset_kwargs={"train": True}, shuffle=True, **settings) as train_loader,
        SwiftLoader(dataset_kwargs={"train": False}, shuffle=False, **settings) as test_loader,
    ):
        train_loader.start(rank, device)
        test_loader.start(rank, device)
        for epoch in range(epochs):
            model.train()
            for images, labels in train_loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
            accuracy = test(network, test_loader, device) / len(test_loader.dataset)
            if rank == 0:
                print(f"epoch {epoch + 1}: train loss {loss.item():.3f}, test accuracy {accuracy:.1%}", flush=True)


@torch.no_grad()
def test(network: nn.Module, loader: SwiftLoader, device: torch.device) -> int:
    """How many digits all ranks together read right."""
    network.eval()
    right = torch.zeros((), dtype=torch.int64, device=device)
    for images, labels in loader:
        right += (network(images).argmax(1) == labels).sum()
    dist.all_reduce(right)
    return int(right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dry-run", action="store_true", help="one epoch, to see that all parts fit")
    arguments = parser.parse_args()
    gpus = torch.cuda.device_count()

    if "RANK" not in os.environ:  # torchrun sets it
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does by itself, with a warning
        torchrun(["--standalone", f"--nproc-per-node={gpus or 2}", __file__, *sys.argv[1:]])
        return

    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    torch.manual_seed(1)
    dist.init_process_group("nccl" if gpus else "gloo")
    try:
        train(rank, dist.get_world_size(), device, 1 if arguments.dry_run else arguments.epochs)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
