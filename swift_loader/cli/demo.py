"""`swift-loader demo`: two consumers train a small network on real digits and say who waited for whom.

A script of two ranks as a user would write it: each is a process of its own, with its share of the data, its workers,
and its copy of the model, kept equal by DistributedDataParallel.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

from swift_loader.cli import digits
from swift_loader.cli.naming import positive
from swift_loader.loader import SwiftLoader
from swift_loader.settings.ray_engine import RayEngine

_HOST = "127.0.0.1"
_LEARNING_RATE = 4e-3


class Plan(NamedTuple):
    """What to train, the same for all ranks."""

    ranks: int
    workers: int
    epochs: int
    batch_size: int
    seed: int
    cluster: str = ""
    """The address of a Ray cluster, whose workers make the batches."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=positive, default=2, help="consumers, each a process (default: %(default)s)")
    parser.add_argument("--workers", type=positive, default=1, help="workers per consumer (default: %(default)s)")
    parser.add_argument("--epochs", type=positive, default=30, help="default: %(default)s")
    parser.add_argument("--batch-size", type=positive, default=32, help="per consumer (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument(
        "--ray", action="store_true", help="the workers are on a Ray cluster, which begins and ends here"
    )


def run(arguments: argparse.Namespace) -> int:
    """Starts the ranks and waits for them; a rank that fails ends the others, and its error is shown."""
    plan = Plan(arguments.ranks, arguments.workers, arguments.epochs, arguments.batch_size, arguments.seed)
    if not arguments.ray:
        return _run(plan)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token":
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # of the ranks too
    from swift_loader.engines.ray import own_cluster

    with own_cluster(2 * plan.ranks * plan.workers) as cluster:  # two loaders each
        return _run(plan._replace(cluster=cluster))


def _run(plan: Plan) -> int:
    # The store listens here, from before the ranks start until they are gone, on a port that the system chose: nobody
    # can take the port in between.
    store = dist.TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
    try:
        torch.multiprocessing.spawn(_rank, args=(plan, store.port), nprocs=plan.ranks)
    except (torch.multiprocessing.ProcessRaisedException, torch.multiprocessing.ProcessExitedException) as failure:
        print(f"the demo failed: {failure}", file=sys.stderr)
        return 1
    return 0


def _rank(rank: int, plan: Plan, port: int) -> None:
    on_gpu = torch.cuda.device_count() >= plan.ranks
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // plan.ranks))
    torch.manual_seed(plan.seed)
    store = dist.TCPStore(_HOST, port, is_master=False)
    dist.init_process_group("nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=plan.ranks)
    try:
        _train_and_report(rank, plan, device)
    finally:
        dist.destroy_process_group()


def _train_and_report(rank: int, plan: Plan, device: torch.device) -> None:
    training, held_out = digits.load()
    shared: dict[str, Any] = {
        "dataset_class": digits.Digits,
        "batch_size": plan.batch_size,
        "nb_consumer": plan.ranks,
        "worker_per_consumer": 0 if plan.cluster else plan.workers,
        "engine": RayEngine(plan.cluster, workers=plan.workers) if plan.cluster else "local",
        "seed": plan.seed,
    }
    train_loader = SwiftLoader(dataset_kwargs={**training._asdict(), "augment": True}, shuffle=True, **shared)
    test_loader = SwiftLoader(dataset_kwargs={**held_out._asdict(), "augment": False}, shuffle=False, **shared)
    if rank == 0:
        print(
            f"{plan.ranks} consumers on {device.type}, {plan.workers} worker(s) each: "
            f"{len(training.labels):,} digits to learn from, {len(held_out.labels):,} held out"
        )
    model = nn.parallel.DistributedDataParallel(_network().to(device))
    with train_loader, test_loader:
        train_loader.start(rank, device)
        began = time.perf_counter()
        _train(model, train_loader, plan.epochs, is_quiet=rank != 0)
        took_s = time.perf_counter() - began
        test_loader.start(rank, device)
        accuracy = _accuracy(model.module, test_loader, device)
        told = train_loader.report(all_ranks=True) if rank == 0 else ""
        # The last exchange comes before the loaders are closed: a thread of gloo's still needs the interpreter to let
        # go of its tensors, and torch aborts the process where it asks after that has begun to end. Closing waits for
        # processes and gives the thread its turn.
        dist.barrier()
    if rank == 0:
        print(f"\ntest accuracy {accuracy:.1%} after {plan.epochs} epochs in {took_s:.1f} s\n")
        print(f"The last epoch, as loader.report(all_ranks=True) tells it:\n\n{told}", flush=True)


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 4 * 4, 10),
    )


def _train(model: nn.Module, loader: SwiftLoader, epochs: int, *, is_quiet: bool) -> None:
    from swift_loader.cli.bar import bars

    steps = epochs * len(loader)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=_LEARNING_RATE, total_steps=steps)
    # disable=None: a bar where there is somebody to look at it, nothing in a file or a pipe.
    with bars()(total=steps, unit="step", disable=True if is_quiet else None, ncols=80) as bar:
        for epoch in range(epochs):
            bar.set_description(f"epoch {epoch + 1}/{epochs}")
            for images, labels in loader:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                bar.update()


@torch.no_grad()
def _accuracy(model: nn.Module, loader: SwiftLoader, device: torch.device) -> float:
    """Of all ranks together: each looked at its own share."""
    model.eval()
    right_and_all = torch.zeros(2, dtype=torch.int64, device=device)
    for images, labels in loader:
        right_and_all += torch.stack([(model(images).argmax(1) == labels).sum(), torch.tensor(len(labels)).to(device)])
    dist.all_reduce(right_and_all)
    right, total = right_and_all.tolist()
    return float(right / total)
