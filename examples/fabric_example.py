"""Training with Lightning Fabric: each of Fabric's ranks is a consumer of the loader.

    python examples/fabric_example.py                         # two ranks on the CPU, or one per GPU that is there
    python examples/fabric_example.py --checkpoint here.pt    # may be killed at any moment, and started again

The data are scikit-learn's handwritten digits (1,797 images of 8 x 8 pixels), shifted by up to a pixel while training.
"""

import argparse
import hashlib
from pathlib import Path

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
        nn.Dropout(0.1),
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


def train_epoch(fabric: Fabric, state: dict, arguments: argparse.Namespace) -> float:
    """Takes what is left of the loader's epoch; gives back the mean loss of all ranks."""
    model, optimizer, losses = state["model"].train(), state["optimizer"], []
    for images, labels in state["loader"]:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        fabric.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
        state["step"] += 1
        if arguments.print_steps:
            fabric.print(f"step {state['step']}", flush=True)
        if arguments.checkpoint is not None and state["step"] % 10 == 0:
            save(fabric, state, arguments.checkpoint)
    return float(fabric.all_reduce(torch.stack(losses).mean(), reduce_op="mean"))


def save(fabric: Fabric, state: dict, path: Path) -> None:
    """Fabric asks model, optimizer and loader for their states. A kill leaves the old file or the new one, whole."""
    state["generators"] = fabric.all_gather(generator(fabric).get_state())  # each rank is at another place in it
    new = path.with_name(f"{path.name}.new")
    fabric.save(new, state)
    if fabric.is_global_zero:
        new.replace(path)


def load(fabric: Fabric, state: dict, path: Path) -> None:
    fabric.load(path, state)
    generator(fabric).set_state(state["generators"][fabric.global_rank].cpu().clone())  # torch takes no row of a table


def generator(fabric: Fabric) -> torch.Generator:
    """What dropout draws from."""
    on_gpu = fabric.device.type == "cuda"
    return torch.cuda.default_generators[fabric.device.index] if on_gpu else torch.default_generator


@torch.no_grad()
def count_right(fabric: Fabric, model: nn.Module, loader: SwiftLoader) -> int:
    """How many digits all ranks together read right. They may take different numbers of steps, so DDP stays out."""
    model.eval()
    right = torch.zeros((), device=fabric.device)
    for images, labels in loader:
        right += (model.module(images).argmax(1) == labels).sum()
    return int(fabric.all_reduce(right, reduce_op="sum"))


def digest(model: nn.Module) -> str:
    weights = (tensor.cpu().numpy().tobytes() for tensor in model.state_dict().values())
    return hashlib.sha256(b"".join(weights)).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dry-run", action="store_const", const=1, dest="epochs", help="only one epoch")
    parser.add_argument("--checkpoint", type=Path, help="saved here every 10 steps, and gone on from if it is there")
    parser.add_argument("--print-steps", action="store_true", help="a line for each step")
    parser.add_argument("--digest", action="store_true", help="the sha256 of the weights at the end")
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

        state = {"model": model, "optimizer": optimizer, "loader": train_loader, "step": 0, "generators": None}
        if arguments.checkpoint is not None and fabric.broadcast(arguments.checkpoint.exists()):
            load(fabric, state, arguments.checkpoint)
        for epoch in range(state["step"] // len(train_loader), arguments.epochs):
            loss = train_epoch(fabric, state, arguments)
            accuracy = count_right(fabric, model, test_loader) / len(test_loader.dataset)
            fabric.print(f"epoch {epoch + 1}: train loss {loss:.3f}, test accuracy {accuracy:.1%}", flush=True)

    if arguments.digest:
        fabric.print(f"digest {digest(model)}", flush=True)


if __name__ == "__main__":
    main()
