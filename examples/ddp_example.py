"""Training with plain PyTorch and DistributedDataParallel: each rank is a consumer of the loader.

    torchrun --nproc-per-node 2 examples/ddp_example.py
    python examples/ddp_example.py                     # the same: calls torchrun, two ranks or one per GPU
    python examples/ddp_example.py --checkpoint here.pt    # may be killed at any moment, and started again

The data are scikit-learn's handwritten digits (1,797 images of 8 x 8 pixels).
"""

import argparse
import hashlib
import os
import sys
from pathlib import Path

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


class Training:
    """What is trained, how far it has come, and how it is saved."""

    def __init__(self, device: torch.device, loader: SwiftLoader) -> None:
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)).to(device)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=2e-3)
        of_cuda = torch.cuda.default_generators
        self.generator = torch.default_generator if device.type == "cpu" else of_cuda[device.index]  # dropout's
        self.loader = loader
        self.step = 0

    def save(self, path: Path) -> None:
        """All ranks call this, the first one writes: whoever kills it leaves the old file or the new one, whole."""
        generators = [None] * dist.get_world_size()  # each rank is somewhere else in its random numbers
        dist.all_gather_object(generators, self.generator.get_state())
        if dist.get_rank() == 0:
            state = {
                "network": self.network.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "loader": self.loader.state_dict(),
                "step": self.step,
                "generators": generators,
            }
            new = path.with_name(f"{path.name}.new")
            torch.save(state, new)
            new.replace(path)

    def load(self, path: Path) -> None:
        state = torch.load(path, map_location="cpu")
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        self.step = state["step"]
        self.generator.set_state(state["generators"][dist.get_rank()])

    def digest(self) -> str:
        weights = (tensor.cpu().numpy().tobytes() for tensor in self.network.state_dict().values())
        return hashlib.sha256(b"".join(weights)).hexdigest()


def train(device: torch.device, arguments: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    settings = {"dataset_class": Digits, "batch_size": 32, "nb_consumer": world, "seed": 1}
    train_set = {"dataset_kwargs": {"train": True}, "worker_per_consumer": 1, "shuffle": True}
    test_set = {"dataset_kwargs": {"train": False}, "worker_per_consumer": 0, "shuffle": False}  # 0: no process

    with SwiftLoader(**settings, **train_set) as loader, SwiftLoader(**settings, **test_set) as test_loader:
        loader.start(rank, device)
        test_loader.start(rank, device)
        training = Training(device, loader)
        if arguments.checkpoint is not None and arguments.checkpoint.exists():
            training.load(arguments.checkpoint)
        model = DistributedDataParallel(training.network)  # waits for all ranks: none has saved before all have looked

        for epoch in range(training.step // len(loader), arguments.epochs):
            loss = train_epoch(model, training, arguments)
            accuracy = test(training.network, test_loader, device) / len(test_loader.dataset)
            if rank == 0:
                print(f"epoch {epoch + 1}: train loss {loss:.3f}, test accuracy {accuracy:.1%}", flush=True)

        if arguments.digest and rank == 0:
            print(f"digest {training.digest()}", flush=True)


def train_epoch(model: nn.Module, training: Training, arguments: argparse.Namespace) -> float:
    """Trains on an epoch, or, after a load, on the rest of one; gives back the last loss."""
    model.train()
    for images, labels in training.loader:
        training.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        training.optimizer.step()
        training.step += 1
        if arguments.print_steps and dist.get_rank() == 0:
            print(f"step {training.step}", flush=True)
        if arguments.checkpoint is not None and training.step % 10 == 0:
            training.save(arguments.checkpoint)
    return loss.item()


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
    parser.add_argument("--dry-run", action="store_const", const=1, dest="epochs", help="only one epoch")
    parser.add_argument("--checkpoint", type=Path, help="saved here every 10 steps, and gone on from if it is there")
    parser.add_argument("--print-steps", action="store_true", help="a line for each step")
    parser.add_argument("--digest", action="store_true", help="the sha256 of the weights at the end")
    arguments = parser.parse_args()
    gpus = torch.cuda.device_count()

    if "RANK" not in os.environ:  # torchrun sets it
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does by itself, with a warning
        torchrun(["--standalone", f"--nproc-per-node={gpus or 2}", __file__, *sys.argv[1:]])
        return

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    torch.manual_seed(1)
    dist.init_process_group("nccl" if gpus else "gloo")
    try:
        train(device, arguments)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
