"""In the child: which GPU a worker sees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_loader.pool.info import WorkerInfo


class OneGpuEach:
    """Has each worker see one GPU only, before its dataset is built: a `worker_init`.

    Args:
        gpu_indices: One for each worker.
    """

    def __init__(self, gpu_indices: list[int]) -> None:
        self._gpu_indices = gpu_indices

    def __call__(self, info: WorkerInfo) -> None:
        """Runs in each worker, and in each that takes the place of one."""
        info.gpu_index = self._gpu_indices[info.worker]
        os.environ["CUDA_VISIBLE_DEVICES"] = str(info.gpu_index)
