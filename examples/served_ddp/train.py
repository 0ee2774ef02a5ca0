"""Two ranks of DistributedDataParallel whose batches two servers make (data.py): they have no dataset.

    torchrun --nproc-per-node 2 train.py tcp://127.0.0.1:5557,tcp://127.0.0.1:5558 job.key

A server may be ended, and started anew, while this runs: the batches are the same.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from swift_loader import SwiftLoader

EPOCHS = 3


def main() -> None:
    servers, key = sys.argv[1:]
    has_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank = dist.get_rank()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if has_gpu else "cpu")
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with SwiftLoader.connect(servers, key=key) as loader:
        loader.start(rank, device)
        for epoch in range(EPOCHS):
            for images, labels in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
            if rank == 0:
                print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)
        if rank == 0:
            print(loader.report())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
