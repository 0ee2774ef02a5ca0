"""The loaders under test, built as a user would: defaults, but for what must be equal on both sides.

Torch is imported at the top, as in any training script. Each function imports its loader at once and returns a function
that builds dataset and loader, so that imports are outside the clock and everything else is inside. All are given the
dataset's class and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader


@dataclass(frozen=True)
class Work:
    """What is to be loaded: the same for every side."""

    dataset_class: Callable[..., Any]
    dataset_kwargs: dict[str, Any]
    batch_size: int
    seed: int
    workers: int = 2
    collate_fn: Callable[[list[Any]], Any] | None = None
    #: Further keywords for our loader alone: only where the question is about them.
    ours: dict[str, Any] = field(default_factory=dict)


def build_swift(work: Work) -> Callable[[], Any]:
    """Our loader, started for the only consumer."""
    from swift_loader import SwiftLoader

    keywords = dict(work.ours)
    if work.collate_fn is not None:
        keywords["collate_fn"] = work.collate_fn

    def build() -> Any:
        loader = SwiftLoader(
            dataset_class=work.dataset_class,
            dataset_kwargs=work.dataset_kwargs,
            batch_size=work.batch_size,
            nb_consumer=1,
            worker_per_consumer=work.workers,
            shuffle=True,
            seed=work.seed,
            **keywords,
        )
        loader.start(0)
        return loader

    return build


def build_torch(work: Work, *, start_method: str = "fork", persistent: bool = False) -> Callable[[], Any]:
    """Torch's DataLoader with that many workers."""

    def build() -> Any:
        return DataLoader(
            work.dataset_class(**work.dataset_kwargs),
            batch_size=work.batch_size,
            shuffle=True,
            num_workers=work.workers,
            collate_fn=work.collate_fn,
            multiprocessing_context=start_method if work.workers else None,
            persistent_workers=persistent,
            generator=torch.Generator().manual_seed(work.seed),
        )

    return build


def build_in_process(work: Work) -> Callable[[], Any]:
    """Torch's DataLoader without workers: what iterating in the training process itself costs."""

    def build() -> Any:
        return DataLoader(
            work.dataset_class(**work.dataset_kwargs),
            batch_size=work.batch_size,
            shuffle=True,
            num_workers=0,
            collate_fn=work.collate_fn,
            generator=torch.Generator().manual_seed(work.seed),
        )

    return build
