"""A model for Lightning that learns little and notes everything: which samples came in which step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric import Fabric
from lightning.fabric.utilities.data import has_iterable_dataset
from lightning.pytorch import LightningDataModule
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities.model_helpers import is_overridden

from swift_loader.integrations.lightning import SwiftDataModule, SwiftStatistics, setup_loaders

__all__ = [
    "Fabric", "KeptLogger", "LightningDataModule", "Noting", "OfTwo", "Summing", "SwiftDataModule", "SwiftStatistics",
    "a_trainer", "checkpoints", "has_iterable_dataset", "is_overridden", "setup_loaders",
]  # fmt: skip


class Noting(lightning.LightningModule):
    """Its samples are numbers; it learns their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.nn.Parameter(torch.zeros(()))
        self.trained: list[list[int]] = []
        """For each step: epoch, number of the batch, samples."""
        self.sane: list[list[int]] = []
        """For each batch of the sanity check: number of the loader, samples."""
        self.validated: list[list[list[int]]] = []
        """For each validation: the same for each of its batches."""
        self.tested: list[list[int]] = []
        self.devices: set[str] = set()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        self.trained.append([self.current_epoch, batch_idx, *batch.tolist()])
        self.devices.add(str(batch.device))
        return (self.mean - batch.double()).square().mean()

    def on_validation_epoch_start(self) -> None:
        if not self.trainer.sanity_checking:
            self.validated.append([])

    def validation_step(self, batch: torch.Tensor, batch_idx: int, dataloader_idx: int = 0) -> None:
        told = self.sane if self.trainer.sanity_checking else self.validated[-1]
        told.append([dataloader_idx, *batch.tolist()])

    def test_step(self, batch: torch.Tensor, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.tested.append([dataloader_idx, *batch.tolist()])

    def predict_step(self, batch: torch.Tensor, batch_idx: int, dataloader_idx: int = 0) -> list[int]:
        return batch.tolist()

    def noted(self) -> dict[str, Any]:
        """All that it noted, and what it has learnt, for another process."""
        validated = [batch for validation in self.validated for batch in validation]
        told = {"trained": self.trained, "sane": self.sane, "validated": validated, "tested": self.tested}
        return {**told, "mean": self.mean.item(), "devices": sorted(self.devices)}


class OfTwo(Noting):
    """Learns from two loaders at once."""

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return super().training_step(torch.cat(batch), batch_idx)


class Summing(Noting):
    """Learns from several loaders at once, each by its name."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return sum((self.mean - part.double()).square().mean() for part in batch.values())


class KeptLogger(Logger):
    """A logger that keeps what it is given."""

    name, version = "kept", 0

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int | None, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.told.append((step, metrics))

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """None are of interest."""


def a_trainer(*callbacks: Callback, **settings: Any) -> lightning.Trainer:
    """One that says nothing."""
    return lightning.Trainer(
        callbacks=list(callbacks),
        enable_checkpointing=any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"accelerator": "cpu", "devices": 1, "logger": False, **settings},
    )


def checkpoints(folder: Path) -> list[ModelCheckpoint]:
    """Has a checkpoint saved after each step, ``step1.ckpt`` and so on, and at each epoch's end, ``epoch0.ckpt``."""
    plain = {"dirpath": folder, "save_top_k": -1, "auto_insert_metric_name": False}
    return [
        ModelCheckpoint(filename="step{step}", every_n_train_steps=1, **plain),
        ModelCheckpoint(filename="epoch{epoch}", every_n_epochs=1, save_on_train_epoch_end=True, **plain),
    ]
