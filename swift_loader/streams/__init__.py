"""Streams of data in epochs, run in this process or in a server of their own: `start_server` and `ServerDataStream`."""

from __future__ import annotations

from swift_loader.streams.client import ServerDataStream
from swift_loader.streams.datasets import Dataset, IndexableDataset, IterableDataset
from swift_loader.streams.iterator import DataIterator
from swift_loader.streams.schemes import (
    BatchScheme,
    BatchSizeScheme,
    ConcatenatedScheme,
    ConstantScheme,
    IndexScheme,
    IterationScheme,
    SequentialExampleScheme,
    SequentialScheme,
    ShuffledExampleScheme,
    ShuffledScheme,
    cross_validation,
)
from swift_loader.streams.server import start_server
from swift_loader.streams.stream import AbstractDataStream, DataStream
from swift_loader.streams.transformers import Mapping, Transformer

__all__ = [
    "AbstractDataStream",
    "BatchScheme",
    "BatchSizeScheme",
    "ConcatenatedScheme",
    "ConstantScheme",
    "DataIterator",
    "DataStream",
    "Dataset",
    "IndexScheme",
    "IndexableDataset",
    "IterableDataset",
    "IterationScheme",
    "Mapping",
    "SequentialExampleScheme",
    "SequentialScheme",
    "ServerDataStream",
    "ShuffledExampleScheme",
    "ShuffledScheme",
    "Transformer",
    "cross_validation",
    "start_server",
]
