"""Reads a bucket's pictures by torch's own DataLoader, under a progress bar.

python examples/stores/train.py /tmp/shards
python examples/stores/train.py http://127.0.0.1:8333                    # keys: see below

Keys are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""

import os
import sys

import torch as ch
from pictures import preproc
from tqdm import tqdm

from swift_loader.shards import RemoteDataset, make_client

if __name__ == "__main__":
    URL = sys.argv[1]
    ACCESS_KEY, SECRET_KEY = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    client = make_client(URL, ACCESS_KEY, SECRET_KEY)

    bucket = "testbucket"
    folder = "pictures-val"
    dataset = (
        RemoteDataset(client, bucket, folder)
        .decode("pil")
        .to_tuple("jpg;png", "cls")
        .map_tuple(preproc, lambda x: x)
        .batched(64)
    )
    dataloader = ch.utils.data.DataLoader(dataset, num_workers=3, batch_size=None)
    network = ch.nn.Sequential(
        ch.nn.Conv2d(3, 16, 5, 3), ch.nn.ReLU(), ch.nn.Conv2d(16, 32, 5, 3), ch.nn.ReLU(), ch.nn.AdaptiveMaxPool2d(1),
        ch.nn.Flatten(), ch.nn.Linear(32, 4),
    )  # fmt: skip
    optimizer = ch.optim.Adam(network.parameters(), 1e-2)
    for epoch in range(3):
        right = seen = 0
        for image, label in tqdm((x for x in dataloader), total=len(dataset), desc=f"epoch {epoch}"):
            guess = network(image)
            optimizer.zero_grad()
            ch.nn.functional.cross_entropy(guess, label).backward()
            optimizer.step()
            right += int((guess.argmax(1) == label).sum())
            seen += len(label)
        print(f"epoch {epoch}: {seen} pictures, {right / seen:.0%} right")
    told = dataset.statistics()
    if told is not None:
        print(f"{told['requests']} requests for {told['nbytes'] / 1e6:.1f} MB, {told['retries']} of them again")
