"""A dataset that does arithmetic, with as many threads as there may be."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from tests.datasets import Numbers


class Multiplies(Numbers):
    """Multiplies with numpy and torch, large enough for their threads; tells how many there are then."""

    def __getitem__(self, index: int) -> Any:
        before = _thread_count()
        ones = np.ones((384, 384), np.float32)
        (ones @ ones).sum()
        tensor = torch.ones(384, 384)
        (tensor @ tensor).exp().sum()
        return {
            "torch": torch.get_num_threads(),
            "more": _thread_count() - before,
            "omp": int(os.environ.get("OMP_NUM_THREADS", "0")),
            "mkl": int(os.environ.get("MKL_NUM_THREADS", "0")),
        }


def _thread_count() -> int:
    return len(os.listdir("/proc/self/task"))
