"""An exact accuracy from ranks that do not have equally many samples, in two ways.

    torchrun --nproc-per-node 3 examples/evaluation_example.py
    python examples/evaluation_example.py              # the same: calls torchrun with three ranks

97 digits in batches of 16 give two ranks 33 digits and three steps, and one rank 31 digits and two steps.

- ``even="pad"``: all take three steps of 16, so there may be a collective at each. The samples that only fill up are
  False in ``loader.last_batch_mask``: leave them out.
- ``even="none"``: every sample once, nothing to leave out. Ranks differ in steps: one collective, after the loop.

Both ways are compared with what one process counts without any loader.
"""

import os
import warnings

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.run import main as torchrun

from swift_loader import SwiftLoader

HELD_OUT = 97


class Digits:
    """The last 97 digits are held out for testing."""

    def __init__(self, train: bool) -> None:  # noqa: FBT001 - a dataset of the user's, given by keyword
        digits = load_digits()
        chosen = slice(None, -HELD_OUT) if train else slice(-HELD_OUT, None)
        self.images = (digits.images[chosen] / 16).reshape(-1, 64)
        self.labels = digits.target[chosen]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple:
        return self.images[index], self.labels[index]


def fitted() -> nn.Module:
    """The linear network of least squares: the same on every rank."""
    digits = Digits(train=True)
    targets = torch.eye(10, dtype=torch.float64)[digits.labels]
    network = nn.Linear(64, 10, bias=False, dtype=torch.float64)
    network.weight.data = torch.linalg.lstsq(torch.from_numpy(digits.images), targets, driver="gelsd").solution.T
    return network


def count_with_a_mask(network: nn.Module, loader: SwiftLoader) -> tuple[int, int, int]:
    """Right ones and samples, and the right ones if repeats were counted too."""
    counted = torch.zeros(3, dtype=torch.int64)
    for images, labels in loader:
        is_right, is_real = network(images).argmax(1) == labels, loader.last_batch_mask
        of_step = torch.stack([(is_right & is_real).sum(), is_real.sum(), is_right.sum()])
        dist.all_reduce(of_step)  # at each step, as a metric of the framework may do: all ranks take equally many
        counted += of_step
    right, samples, right_with_repeats = counted.tolist()
    return right, samples, right_with_repeats


def count_at_the_end(network: nn.Module, loader: SwiftLoader) -> tuple[int, int]:
    """Right ones and samples."""
    counted = torch.zeros(2, dtype=torch.int64)
    for images, labels in loader:  # no collective in here, and no DistributedDataParallel
        counted += torch.tensor([(network(images).argmax(1) == labels).sum(), len(labels)])
    dist.all_reduce(counted)
    right, samples = counted.tolist()
    return right, samples


@torch.no_grad()
def evaluate(rank: int, world: int) -> None:
    network, digits = fitted(), Digits(train=False)
    alone = int((network(torch.from_numpy(digits.images)).argmax(1).numpy() == digits.labels).sum())
    settings = {"batch_size": 16, "nb_consumer": world, "worker_per_consumer": 1, "shuffle": False}

    with SwiftLoader(Digits, {"train": False}, even="pad", **settings) as loader:
        loader.start(rank)
        right, samples, with_repeats = count_with_a_mask(network, loader)
        padded = f"{world} ranks, even='pad':  {right} of {samples}, {right / samples:.2%}, in {len(loader)} steps each"
        assert (right, samples) == (alone, HELD_OUT)

    with SwiftLoader(Digits, {"train": False}, even="none", **settings) as loader:
        loader.start(rank)
        right, samples = count_at_the_end(network, loader)
        steps = torch.zeros(world, dtype=torch.int64)
        steps[rank] = len(loader)
        dist.all_reduce(steps)
        uneven = f"{world} ranks, even='none': {right} of {samples}, {right / samples:.2%}, in {steps.tolist()} steps"
        assert (right, samples) == (alone, HELD_OUT)

    if rank == 0:
        print(f"one process:           {alone} of {HELD_OUT}, {alone / HELD_OUT:.2%}")
        print(padded)
        print(uneven)
        print(f"without the mask it would have been {with_repeats} of {16 * world * 3}")


def main() -> None:
    if "RANK" not in os.environ:  # torchrun sets it
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does by itself, with a warning
        torchrun(["--standalone", "--nproc-per-node=3", __file__])
        return
    # start() warns that ranks take different numbers of steps, which would hang a collective in the loop.
    warnings.filterwarnings("ignore", message="consumers take from")
    dist.init_process_group("gloo")
    try:
        evaluate(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
