"""Two ranks read one bucket: each takes as many batches, and no picture comes twice in an epoch.

torchrun --nproc-per-node 2 examples/stores/train_ddp.py http://127.0.0.1:8333
python examples/stores/train_ddp.py /tmp/shards                          # the same: calls torchrun
"""

import os
import sys

import torch
import torch.distributed as dist
from pictures import preproc
from torch.distributed.run import main as torchrun
from torch.nn.parallel import DistributedDataParallel

from swift_loader.shards import RemoteDataset, make_client


def train(url: str) -> None:
    """What each rank does."""
    dist.init_process_group("gloo")
    client = make_client(url, os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY"))
    dataset = (
        RemoteDataset(client, "testbucket", "pictures-val")
        .decode("pil").to_tuple("jpg;png", "cls", "__key__").map_tuple(preproc).batched(16)
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(dataset, num_workers=2, batch_size=None)
    network = DistributedDataParallel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 4)))
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)
    keys: list[str] = []
    steps = 0
    for image, label, key in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(image), label).backward()
        optimizer.step()
        keys += key
        steps += 1
    told: list = [None] * dist.get_world_size()
    dist.all_gather_object(told, (steps, keys))
    if dist.get_rank() == 0:
        every = [key for _, some in told for key in some]
        counts = ", ".join(f"rank {rank}: {steps} steps" for rank, (steps, _) in enumerate(told))
        print(f"{counts}; {len(every)} pictures, {len(set(every))} of them different")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(sys.argv[1])
    else:
        torchrun(["--standalone", "--nproc-per-node", "2", __file__, *sys.argv[1:]])
