"""Training with Hugging Face accelerate: each of its processes is a consumer of the loader.

    accelerate launch --cpu --num_processes 2 examples/accelerate_example.py
    python examples/accelerate_example.py                   # two processes, or one per GPU
    python examples/accelerate_example.py --checkpoint here   # may be killed at any moment, and started again

The data are scikit-learn's handwritten digits (1,797 images of 8 x 8 pixels).
"""

import argparse
import hashlib
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.run import main as torchrun

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


class Progress:
    """The number of steps taken. Whatever has these two methods can be registered for checkpoints, as the loader is."""

    step = 0

    def state_dict(self) -> dict:
        return {"step": self.step}

    def load_state_dict(self, state: dict) -> None:
        self.step = state["step"]


def save(accelerator: Accelerator, checkpoint: Path, step: int) -> None:
    """Leaves a link to a folder that is complete: whoever kills this leaves the old one or the new one."""
    folder = checkpoint.with_name(f"{checkpoint.name}-{step}")
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        old = checkpoint.resolve()
        link = checkpoint.with_name(f"{checkpoint.name}.new")
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name)
        link.replace(checkpoint)
        shutil.rmtree(old, ignore_errors=True)


def train(accelerator: Accelerator, arguments: argparse.Namespace) -> None:
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    settings = {"dataset_class": Digits, "batch_size": 32, "nb_consumer": accelerator.num_processes, "seed": 1}
    train_set = {"dataset_kwargs": {"train": True}, "worker_per_consumer": 1, "shuffle": True}
    test_set = {"dataset_kwargs": {"train": False}, "worker_per_consumer": 0, "shuffle": False}  # 0: no process

    with SwiftLoader(**settings, **train_set) as loader, SwiftLoader(**settings, **test_set) as test_loader:
        model, optimizer, prepared = accelerator.prepare(network, optimizer, loader)
        assert prepared is loader  # it is no DataLoader of torch's, and comes back untouched
        loader.start(accelerator.process_index, accelerator.device)
        test_loader.start(accelerator.process_index, accelerator.device)
        progress = Progress()
        accelerator.register_for_checkpointing(loader, progress)
        if arguments.checkpoint is not None and arguments.checkpoint.exists():
            accelerator.load_state(arguments.checkpoint)
        accelerator.wait_for_everyone()  # nobody saves before all have looked

        for epoch in range(progress.step // len(loader), arguments.epochs):
            loss = train_epoch(accelerator, model, optimizer, loader, progress, arguments)
            accuracy = test(accelerator, model, test_loader) / len(test_loader.dataset)
            accelerator.print(f"epoch {epoch + 1}: train loss {loss:.3f}, test accuracy {accuracy:.1%}", flush=True)

    if arguments.digest:
        weights = (tensor.cpu().numpy().tobytes() for tensor in accelerator.get_state_dict(model).values())
        accelerator.print(f"digest {hashlib.sha256(b''.join(weights)).hexdigest()}", flush=True)


def train_epoch(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: SwiftLoader,
    progress: Progress,
    arguments: argparse.Namespace,
) -> float:
    """Trains on an epoch, or, after a load, on the rest of one; gives back the last loss."""
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        progress.step += 1
        if arguments.print_steps and accelerator.is_main_process:
            print(f"step {progress.step}", flush=True)
        if arguments.checkpoint is not None and progress.step % 10 == 0:
            save(accelerator, arguments.checkpoint, progress.step)
    return loss.item()


@torch.no_grad()
def test(accelerator: Accelerator, model: nn.Module, loader: SwiftLoader) -> int:
    """How many digits all processes together read right. They may take different numbers of steps: DDP stays out."""
    network = accelerator.unwrap_model(model).eval()
    right = torch.zeros((), dtype=torch.int64, device=accelerator.device)
    for images, labels in loader:
        right += (network(images).argmax(1) == labels).sum()
    return int(accelerator.reduce(right))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dry-run", action="store_const", const=1, dest="epochs", help="only one epoch")
    parser.add_argument("--checkpoint", type=Path, help="saved here every 10 steps, and gone on from if it is there")
    parser.add_argument("--print-steps", action="store_true", help="a line for each step")
    parser.add_argument("--digest", action="store_true", help="the sha256 of the weights at the end")
    arguments = parser.parse_args()
    gpus = torch.cuda.device_count()

    if "RANK" not in os.environ:  # accelerate launch sets it, as torchrun does
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        torchrun(["--standalone", f"--nproc-per-node={gpus or 2}", __file__, *sys.argv[1:]])
        return

    accelerator = Accelerator(cpu=not gpus)
    set_seed(1)
    train(accelerator, arguments)
    accelerator.end_training()


if __name__ == "__main__":
    main()
