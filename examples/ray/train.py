"""Training with Ray Train: each rank is a consumer of the loader, and CPUs of the cluster make its batches.

    python examples/ray/train.py                       # a cluster of this machine alone, which ends with the script
    RAY_ADDRESS=head:6379 python examples/ray/train.py --storage /shared/folder
    python examples/ray/train.py --storage here --fail-once    # a rank dies after the first epoch, and training goes on

Beside swift_loader: pip install 'ray[train]' scikit-learn. The data are scikit-learn's handwritten digits.
"""

import argparse
import os
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer
from sklearn.datasets import load_digits
from torch import nn

from swift_loader import RayEngine, SwiftLoader


class Digits:
    """Pictures and what they show."""

    def __init__(self) -> None:
        digits = load_digits()
        self.images, self.labels = (digits.images / 16).astype("float32"), digits.target

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple:
        return self.images[index].reshape(-1), self.labels[index]


def train(config: dict) -> None:
    """What each rank runs."""
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    device = ray.train.torch.get_device()
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = ray.train.torch.prepare_model(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    # No worker on this host: the rank's own CPU is for training. With worker_per_consumer=2, ask for those here too:
    # ScalingConfig(resources_per_worker={"CPU": 1 + 2}).
    with SwiftLoader(Digits, {}, 32, world, 0, seed=1, engine=RayEngine(workers=1)) as loader:
        if (last := ray.train.get_checkpoint()) is not None:
            with last.as_directory() as folder:
                saved = torch.load(Path(folder, "state.pt"))
            network.load_state_dict(saved["network"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["loader"])
            print(f"rank {rank} goes on in epoch {saved['loader']['epoch']}", flush=True)
        loader.start(rank, device)
        while (epoch := loader.state_dict()["epoch"]) < config["epochs"]:
            if config["fail_once"] and rank == 1 and epoch == 1 and ray.train.get_checkpoint() is None:
                ray.train.get_all_reported_checkpoints()  # waits until Ray has taken note of what was reported
                os._exit(1)
            total = 0.0
            for images, labels in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                total += loss.item()
            with tempfile.TemporaryDirectory() as folder:
                state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "loader": loader.state_dict()}, Path(folder, "state.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(folder) if rank == 0 else None
                ray.train.report({"epoch": epoch, "loss": total / len(loader)}, checkpoint=checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--storage", type=Path, help="where checkpoints lie: a folder that all nodes have")
    parser.add_argument("--fail-once", action="store_true", help="rank 1 dies after the first epoch")
    arguments = parser.parse_args()
    if "RAY_ADDRESS" not in os.environ:  # 2 ranks, and a worker for each of them
        ray.init(num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train,
            train_loop_config={"epochs": arguments.epochs, "fail_once": arguments.fail_once},
            scaling_config=ray.train.ScalingConfig(num_workers=2),
            run_config=ray.train.RunConfig(
                storage_path=str((arguments.storage or Path(folder)).absolute()),
                failure_config=ray.train.FailureConfig(max_failures=1),
            ),
        )
        result = trainer.fit()
    print(f"loss {result.metrics['loss']:.3f} in epoch {result.metrics['epoch']}")
    ray.shutdown()


if __name__ == "__main__":
    main()
