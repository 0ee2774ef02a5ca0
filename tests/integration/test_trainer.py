"""Lightning's Trainer goes on from its own checkpoints with the batches that are left: none is lost, none doubled."""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from swift_loader import ConfigError
from tests import trained
from tests.datasets import Numbers
from tests.loaders import made
from tests.slow import slow_but

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint"),
]

SAMPLES, STEPS, EPOCHS = 37, 5, 3

for_training = partial(made, Numbers, {"count": SAMPLES}, worker_per_consumer=0)
for_validation = partial(made, Numbers, {"count": 12}, worker_per_consumer=0, shuffle=False)

WAYS: dict[str, dict[str, Any]] = {
    "a loader": {},
    "a loader with a worker": {"loader": {"worker_per_consumer": 1}, "max_epochs": 2},
    "limit_train_batches": {"limit_train_batches": 3},
    "two loaders for validation": {"validation": 2},
    "validation within the epoch": {"validation": 1, "val_check_interval": 2},
    "max_steps": {"max_steps": 12, "max_epochs": -1, "at_epoch_ends": False},
    "accumulated gradients": {"accumulate_grad_batches": 2},
    "a data module without a seed": {"module": True, "loader": {"seed": None}},
    "a data module with limit_train_batches": {"module": True, "loader": {"seed": None}, "limit_train_batches": 3},
    "a data module with validation": {"module": True, "loader": {"seed": None}, "validation": 2},
}


#: One of a loader, one of its workers, one of a data module, and one of validation.
QUICK = ("a loader with a worker", "max_steps", "validation within the epoch", "a data module with limit_train_batches")

# After a checkpoint of an epoch's end, with max_steps, Lightning makes an epoch of one batch, of torch's loaders too.


def fit(
    folder: Path | None = None,
    ckpt: Path | None = None,
    loader: dict[str, Any] | None = None,
    validation: int = 0,
    module: bool = False,
    **settings: Any,
) -> trained.Noting:
    """Trains; saves each step in ``folder``, and goes on from ``ckpt``."""
    model = trained.Noting()
    trainer = trained.a_trainer(*(trained.checkpoints(folder) if folder else ()), **{"max_epochs": EPOCHS, **settings})
    make = partial(for_training, **(loader or {}))
    with ExitStack() as stack:
        if module:
            data = trained.SwiftDataModule(train=make, validation=[for_validation] * validation or None)
            trainer.fit(model, datamodule=data, ckpt_path=ckpt)
        else:
            train = stack.enter_context(make())
            tests = [stack.enter_context(for_validation()) for _ in range(validation)]
            trainer.fit(model, train_dataloaders=train, val_dataloaders=tests or None, ckpt_path=ckpt)
    return model


def steps_of_checkpoints(folder: Path, in_epoch: int, accumulated: int) -> dict[Path, int]:
    """How many batches were trained with when each checkpoint was saved."""
    found = {}
    for path in folder.glob("*.ckpt"):
        kind, number = re.fullmatch(r"([a-z]+)(\d+)", path.stem).groups()
        if kind == "epoch":
            found[path] = (int(number) + 1) * in_epoch
        else:  # an optimizer step, at every so many batches and at the epoch's last one
            ends = [*range(accumulated, in_epoch, accumulated), in_epoch]
            epoch, step = divmod(int(number) - 1, len(ends))
            found[path] = epoch * in_epoch + ends[step]
    return found


@pytest.mark.parametrize("way", slow_but(WAYS, QUICK.__contains__))
def test_what_is_left_comes_after_a_checkpoint_of_any_step(way: str, tmp_path: Path):
    settings = {**WAYS[way]}
    at_epoch_ends = settings.pop("at_epoch_ends", True)
    in_epoch = settings.get("limit_train_batches", STEPS)
    whole = fit(tmp_path, **settings)
    assert [step[:2] for step in whole.trained[:7]] == [[n // in_epoch, n % in_epoch] for n in range(7)]
    for epoch in range(2):
        samples = [sample for number, _, *batch in whole.trained if number == epoch for sample in batch]
        assert len(samples) == len(set(samples)) == min(SAMPLES, 8 * in_epoch)

    saved = steps_of_checkpoints(tmp_path, in_epoch, settings.get("accumulate_grad_batches", 1))
    assert set(saved.values()) >= {1, in_epoch - 1, in_epoch, in_epoch + 1} or "accumulate_grad_batches" in settings
    for path, step in saved.items():
        if path.stem.startswith("step") or at_epoch_ends:
            rest = fit(ckpt=path, **settings)
            assert rest.trained == whole.trained[step:], path.stem
            assert rest.mean.item() == whole.mean.item(), path.stem


def test_a_shorter_loader_goes_on_where_it_was_too(tmp_path: Path):
    def run(ckpt: Path | None = None) -> list[list[int]]:
        model, saving = trained.OfTwo(), () if ckpt else trained.checkpoints(tmp_path)
        with for_training() as longer, made(Numbers, {"count": 16}, worker_per_consumer=0, seed=5) as shorter:
            trained.a_trainer(*saving, max_epochs=EPOCHS).fit(
                model, train_dataloaders=[longer, shorter], ckpt_path=ckpt
            )
        return model.trained

    whole = run()
    for epoch in range(EPOCHS):
        shorter = [step[-8:] for step in whole[epoch * STEPS :][:STEPS]]
        assert sorted(shorter[0] + shorter[1]) == sorted(shorter[2] + shorter[3]) == list(range(16))
        assert shorter[:2] != shorter[2:4]
    for step in (1, 2, 3, 4, 6, 7, 8, 9, 11, 13, 14):  # at an epoch's last step the shorter one is left early
        assert run(tmp_path / f"step{step}.ckpt") == whole[step:], step


def test_a_checkpoint_may_be_saved_when_training_is_over(tmp_path: Path):
    def run(epochs: int, seed: int | None, ckpt: Path | None = None, saved: Path | None = None) -> list[list[int]]:
        model, trainer = trained.Noting(), trained.a_trainer(max_epochs=epochs)
        trainer.fit(model, datamodule=trained.SwiftDataModule(train=partial(for_training, seed=seed)), ckpt_path=ckpt)
        if saved is not None:
            trainer.save_checkpoint(saved)
        return model.trained

    first = run(2, None, saved=tmp_path / "end.ckpt")
    rest = run(4, None, ckpt=tmp_path / "end.ckpt")
    seed = torch.load(tmp_path / "end.ckpt")["SwiftDataModule"]["train"][0]["seed"]
    assert first + rest == run(4, seed)


def test_a_checkpoint_of_other_loaders_is_refused(tmp_path: Path):
    fit(tmp_path, module=True, max_epochs=1)
    with pytest.raises(ConfigError, match="batch_size was 8 and is 4"):
        fit(ckpt=tmp_path / "step2.ckpt", module=True, loader={"batch_size": 4})
    both = trained.SwiftDataModule(train=[for_training, for_training])
    with pytest.raises(ConfigError, match="the checkpoint is of 1 loaders for training, and there are 2"):
        trained.a_trainer(max_epochs=1).fit(trained.OfTwo(), datamodule=both, ckpt_path=tmp_path / "step2.ckpt")
