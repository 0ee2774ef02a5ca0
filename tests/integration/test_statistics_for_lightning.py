"""What a loader counts reaches the Trainer's loggers, in a training that is real and short."""

from __future__ import annotations

import pytest

from swift_loader import ConfigError
from tests import trained
from tests.datasets import Numbers
from tests.loaders import made

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")


def test_the_trainers_loggers_get_what_a_loader_counts():
    logger = trained.KeptLogger()
    trainer = trained.a_trainer(
        trained.SwiftStatistics(every_n_steps=2), max_epochs=2, logger=logger, log_every_n_steps=1
    )
    with made(Numbers, {"count": 24}, worker_per_consumer=1) as loader:
        trainer.fit(trained.Noting(), train_dataloaders=loader)
    ours = [(step, metrics) for step, metrics in logger.told if "swift/batches" in metrics]
    assert [step for step, _ in ours] == [2, 3, 4, 6, 6]
    last = ours[-1][1]
    assert last["swift/batches"] == 6
    assert last["swift/samples"] == 48
    assert 0 <= last["swift/starved_share"] <= 1
    assert all(isinstance(value, int | float) for value in last.values())


def test_several_loaders_are_told_apart():
    logger = trained.KeptLogger()
    trainer = trained.a_trainer(
        trained.SwiftStatistics(), max_epochs=1, logger=logger, limit_train_batches=1, log_every_n_steps=1
    )
    with made(Numbers, {"count": 8}, worker_per_consumer=0) as one, made(Numbers, worker_per_consumer=0) as two:
        trainer.fit(trained.Summing(), train_dataloaders={"one": one, "two": two})
    names = {name for _, metrics in logger.told for name in metrics}
    assert {"swift/0/batches", "swift/1/batches"} <= names


def test_a_callback_that_would_never_log_is_refused():
    with pytest.raises(ConfigError, match="every_n_steps must be at least 1, not 0"):
        trained.SwiftStatistics(every_n_steps=0)
