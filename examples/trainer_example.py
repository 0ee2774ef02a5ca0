"""Training with Lightning's Trainer: each of its ranks is a consumer of the loader.

    python examples/trainer_example.py                          # two ranks on the CPU, or one per GPU that is there
    python examples/trainer_example.py --checkpoint folder      # may be killed at any moment, and started again

A loader can also be given to the Trainer as it is: `trainer.fit(model, train_dataloaders=loader)`. The data module sees
to the device, and to when workers start and end. Where the loader is goes into Lightning's own checkpoint either way.

The data are scikit-learn's handwritten digits (1,797 images of 8 x 8 pixels), shifted by up to a pixel while training.
"""

import argparse
import hashlib
from functools import partial
from pathlib import Path

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn

from swift_loader import SwiftLoader
from swift_loader.integrations.lightning import SwiftDataModule


class Digits:
    """Every fifth digit is held out for testing."""

    def __init__(self, train: bool) -> None:  # noqa: FBT001 - a dataset of the user's, given by keyword
        digits = load_digits()
        held_out = np.arange(len(digits.target)) % 5 == 0
        chosen = ~held_out if train else held_out
        self.images = np.pad(digits.images[chosen] / 16, ((0, 0), (1, 1), (1, 1))).astype(np.float32)
        self.labels = digits.target[chosen]
        self.train = train

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple:
        # The loader seeds numpy's generator in its workers, so that these shifts are the same in every run.
        top, left = np.random.randint(3, size=2) if self.train else (1, 1)
        return self.images[index, None, top : top + 8, left : left + 8], self.labels[index]


def build_loader(nb_consumer: int, *, train: bool) -> SwiftLoader:
    return SwiftLoader(
        dataset_class=Digits,
        dataset_kwargs={"train": train},
        batch_size=32,
        nb_consumer=nb_consumer,
        worker_per_consumer=1,
        shuffle=train,
        seed=1,
    )


class Reader(lightning.LightningModule):
    """Reads digits."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 10),
        )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(labels))
        return loss

    def on_validation_epoch_start(self) -> None:
        self.right = torch.zeros((), device=self.device)
        self.count = torch.zeros((), device=self.device)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        images, labels = batch
        self.right += (self.network(images).argmax(1) == labels).sum()
        self.count += len(labels)

    def on_validation_epoch_end(self) -> None:
        # The ranks' parts of the test set differ in length: what they count is added up, not averaged.
        right, count = self.trainer.strategy.reduce(torch.stack([self.right, self.count]), reduce_op="sum")
        self.log("accuracy", right / count, sync_dist=True)

    def digest(self) -> str:
        weights = (tensor.cpu().numpy().tobytes() for tensor in self.state_dict().values())
        return hashlib.sha256(b"".join(weights)).hexdigest()


class Report(Callback):
    """Tells how it goes, on the first rank."""

    def __init__(self, *, with_steps: bool) -> None:
        self.with_steps = with_steps

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
        if self.with_steps and trainer.is_global_zero:
            print(f"step {trainer.global_step}", flush=True)

    def on_train_epoch_end(self, trainer: lightning.Trainer, *_: object) -> None:
        if trainer.is_global_zero:
            seen = trainer.callback_metrics
            told = f"train loss {seen['loss']:.3f}, test accuracy {seen['accuracy']:.1%}"
            print(f"epoch {trainer.current_epoch + 1}: {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dry-run", action="store_const", const=1, dest="epochs", help="only one epoch")
    parser.add_argument("--checkpoint", type=Path, help="a folder: saved there every 10 steps, and gone on from")
    parser.add_argument("--print-steps", action="store_true", help="a line for each step")
    parser.add_argument("--digest", action="store_true", help="the sha256 of the weights at the end")
    arguments = parser.parse_args()

    callbacks: list[Callback] = [Report(with_steps=arguments.print_steps)]
    last = None
    if arguments.checkpoint is not None:
        saving = {"every_n_train_steps": 10, "save_top_k": 0, "save_last": True, "enable_version_counter": False}
        callbacks.append(ModelCheckpoint(arguments.checkpoint, **saving))
        last = arguments.checkpoint / "last.ckpt"

    gpus = torch.cuda.device_count()
    lightning.seed_everything(1, verbose=False)
    model = Reader()
    trainer = lightning.Trainer(
        accelerator="cuda" if gpus else "cpu",
        devices=gpus or 2,
        strategy="ddp",
        max_epochs=arguments.epochs,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=last is not None,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = SwiftDataModule(
        train=partial(build_loader, trainer.world_size, train=True),
        validation=partial(build_loader, trainer.world_size, train=False),
    )
    trainer.fit(model, datamodule=data, ckpt_path=last if last is not None and last.exists() else None)

    if arguments.digest and trainer.is_global_zero:
        print(f"digest {model.digest()}", flush=True)


if __name__ == "__main__":
    main()
