"""Writes the sets in this folder with MosaicML's MDSWriter and LitData's optimize, which the tests do without.

Both packages bring dozens of others with them, so the tests have what they wrote, and this is how it was written:

    pip install --no-deps mosaicml-streaming==0.13.0 litdata==0.2.76
    pip install Brotli python-snappy zstd catalogue boto3 requests
    python -m tests.unit.shards.written.write_them FOLDER

beside the project's own environment (and not pyarrow: with it LitData writes `lists` in Arrow's form, which is not
read). MosaicML's package imports torchvision and transformers, of which its writer uses nothing: empty ones stand in.
"""

import importlib.machinery
import sys
import types
from functools import partial
from pathlib import Path

from tests.unit.shards.written import samples

NOT_USED = (
    "torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional",
    "transformers", "transformers.models", "transformers.models.auto", "transformers.models.auto.tokenization_auto",
    "transformers.feature_extraction_utils", "transformers.tokenization_utils_base",
)  # fmt: skip


def anything(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


def write_mds(folder):
    for name in NOT_USED:
        module = sys.modules[name] = types.ModuleType(name)
        module.__spec__, module.__path__ = importlib.machinery.ModuleSpec(name, None), []
        module.__getattr__ = anything
    from streaming import MDSWriter

    with MDSWriter(columns=samples.MDS_COLUMNS, out=f"{folder}/mds", size_limit=6_000) as writer:
        for number in range(samples.COUNT):
            writer.write(samples.mds(number))
    for name in NOT_USED:
        del sys.modules[name]


def write_litdata(folder):
    import litdata
    import torch

    sets = {
        "tree": (partial(samples.tree, tensor=torch.as_tensor), {"chunk_bytes": "1KB"}),
        "flat": (samples.flat, {"chunk_size": 3}),
        "lists": (samples.lists, {"chunk_size": 3}),
        "pair": (partial(samples.pair, tensor=torch.as_tensor), {"chunk_size": 3}),
        "leaf": (samples.leaf, {"chunk_size": 3}),
        "tokens": (samples.tokens, {"chunk_size": 21, "item_loader": litdata.TokensLoader()}),
    }
    for name, (make, settings) in sets.items():
        litdata.optimize(make, list(range(samples.COUNT)), f"{folder}/litdata_{name}", num_workers=1, **settings)


if __name__ == "__main__":
    write_mds(Path(sys.argv[1]))
    write_litdata(Path(sys.argv[1]))
