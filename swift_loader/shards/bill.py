"""What training on a set in a bucket costs: bytes, requests, dollars, memory, before any of it is paid. Pure.

Prices are those of S3 Standard in us-east-1: reading a set in the region of its bucket costs its requests alone. A run
of neighbours is one request; how many are open at once is `plan/lanes.py`'s business, and so what memory they take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from swift_loader.errors import ConfigError
from swift_loader.plan.lanes import Row
from swift_loader.plan.runs import extents

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

GET_USD, PUT_USD = 0.4e-6, 5e-6
#: Of bytes that leave the region of the bucket.
OUT_USD_PER_BYTE = 0.09e-9
#: Until the first byte of an answer comes, and how fast the rest does, on one connection.
ANSWER_S, BYTES_PER_S = 0.03, 85e6
CONNECTIONS = 64
_MIX = 64
#: Beside the runs that are open, those that are read ahead: half as many.
_AHEAD = 0.5


@dataclass(frozen=True, slots=True)
class Training:
    """How it is trained."""

    batch: int = 256
    """Samples in one consumer's batch."""
    consumers: int = 1
    """GPUs, on all nodes together."""
    nodes: int = 1
    cache: float = 0.0
    """Bytes of each node's disk that samples are kept on."""

    def check(self) -> None:
        """Raises `ConfigError` at what cannot be."""
        if min(self.batch, self.consumers, self.nodes) < 1 or self.cache < 0:
            raise ConfigError("batch, consumers and nodes are at least 1, cache is not below 0")
        if self.consumers % self.nodes:
            raise ConfigError(
                f"consumers={self.consumers} are GPUs on all nodes together: a multiple of nodes={self.nodes}"
            )


@dataclass(frozen=True, slots=True)
class Bill:
    """What an epoch takes. Bytes, requests and dollars are those of one node."""

    steps: int
    nbytes: float
    requests: float
    usd: float
    """In the region of the bucket, in which bytes cost nothing."""
    usd_elsewhere: float
    kept: float
    """The share of later epochs' bytes that the node's cache has."""
    upload_usd: float
    """Once, for the whole set."""
    memory_nbytes: float
    """For runs that are open or read ahead, by all consumers of the node."""
    first_batch_s: float


def bill_of(counts: ArrayLike, nbytes: ArrayLike, training: Training) -> Bill:
    """The bill of a set whose shards have so many samples and bytes.

    Raises:
        ConfigError: if it cannot be trained so.

    Example:
        >>> imagenet = bill_of([582] * 2200, [64_020_000] * 2200, Training(batch=256, consumers=8))
        >>> round(imagenet.nbytes / 1e9), round(imagenet.requests), round(imagenet.usd, 3)
        (141, 17600, 0.007)
    """
    training.check()
    samples, total = int(np.sum(counts, dtype=np.int64)), float(np.sum(nbytes, dtype=np.int64))
    if not samples:
        raise ConfigError("a set without samples costs nothing")
    runs = len(extents(counts, nbytes))
    here = total / training.nodes
    requests = runs / training.nodes
    lanes = Row.of(training.batch, _MIX).lanes
    most = min(here, training.consumers // training.nodes * lanes * (1 + _AHEAD) * total / runs)
    waves = -(-training.batch // CONNECTIONS)
    return Bill(
        steps=-(-samples // (training.consumers * training.batch)),
        nbytes=here,
        requests=requests,
        usd=requests * GET_USD,
        usd_elsewhere=requests * GET_USD + here * OUT_USD_PER_BYTE,
        kept=min(1.0, training.cache / total),
        upload_usd=len(np.atleast_1d(counts)) * PUT_USD,
        memory_nbytes=most,
        first_batch_s=waves * (ANSWER_S + total / samples / BYTES_PER_S),
    )
