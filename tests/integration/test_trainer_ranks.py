"""Two ranks of Lightning's Trainer: each is a consumer, and both go on from the checkpoint that the first has saved."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.resuming import lines_of

#: Two ranks that import Lightning: each half of it is shown by one rank (test_trainer.py), and by ranks without it.
pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
from functools import partial
from pathlib import Path
from swift_loader import ConfigError, SwiftLoader
from swift_loader.integrations.lightning import SwiftDataModule
from tests.datasets import Numbers
from tests.trained import Noting, a_trainer, checkpoints

folder, told = Path(sys.argv[1]), {}


def make(count, shuffle=True, nb_consumer=2, **settings):
    return SwiftLoader(Numbers, {"count": count}, 4, nb_consumer, 1, shuffle, **settings)


def fit(name, ckpt=None, saves=False, module=False, train=make, **settings):
    model = Noting()
    saving = checkpoints(folder / name) if saves else ()
    trainer = a_trainer(*saving, **{"accelerator": "cpu", "devices": 2, "strategy": "ddp", "max_epochs": 2, **settings})
    path = ckpt and folder / ckpt
    if module:
        data = SwiftDataModule(train=lambda: train(41), validation=[partial(make, 9, False), lambda: make(16, False)])
        trainer.fit(model, datamodule=data, ckpt_path=path)
    else:
        with train(41) as loader, make(9, False) as one, make(16, False) as other:
            trainer.fit(model, train_dataloaders=loader, val_dataloaders=[one, other], ckpt_path=path)
    told[name] = {**model.noted(), "devices": sorted(model.devices)}
    return trainer


fit("loaders", saves=True)
fit("mid-epoch", ckpt="loaders/step2.ckpt")
fit("last step", ckpt="loaders/step6.ckpt")
fit("second epoch", ckpt="loaders/step8.ckpt")
limits = {"limit_train_batches": 4, "limit_val_batches": 1, "module": True}
fit("limited", saves=True, **limits)
fit("limited mid-epoch", ckpt="limited/step3.ckpt", **limits)
fit("limited last step", ckpt="limited/step4.ckpt", **limits)
fit("limited epoch's end", ckpt="limited/epoch0.ckpt", **limits)
try:
    trainer = fit("three", module=True, train=partial(make, nb_consumer=3, seed=1))
except ConfigError as error:
    told["refused"] = str(error)
from torch import distributed
(folder / f"{distributed.get_rank()}.json").write_text(json.dumps(told))
distributed.barrier()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the ranks noted, in one run of the job for all tests."""
    folder = tmp_path_factory.mktemp("ranks")
    script = folder / "job.py"
    script.write_text(SCRIPT)
    lines_of(script, str(folder), folder=folder)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def of_ranks(told: list[dict[str, Any]], name: str, number: int) -> list[int]:
    """The samples of all ranks' batches that are noted under this number."""
    batches = [batch for rank in told for batch in rank["loaders"][name] if batch[0] == number]
    skipped = 2 if name == "trained" else 1
    return sorted(sample for batch in batches for sample in batch[skipped:])


def test_an_epoch_of_all_ranks_holds_each_sample_once(told: list[dict[str, Any]]):
    assert [of_ranks(told, "trained", epoch) for epoch in range(2)] == [list(range(41))] * 2
    first, second = ([step[2:] for step in told[0]["loaders"]["trained"] if step[0] == epoch] for epoch in range(2))
    assert first != second
    assert [len(rank["loaders"]["trained"]) for rank in told] == [12, 12]
    assert all(rank["loaders"]["devices"] == ["cpu"] for rank in told)


def test_each_validation_sees_each_sample_once(told: list[dict[str, Any]]):
    for number, count in enumerate((9, 16)):  # of 9 samples, one rank takes two batches and the other one
        assert of_ranks(told, "validated", number) == sorted([*range(count)] * 2)
    assert told[0]["loaders"]["sane"] == [[0, 0, 1, 2, 3], [0, 4], [1, 0, 1, 2, 3], [1, 4, 5, 6, 7]]
    assert told[1]["limited"]["sane"] == [[0, 5, 6, 7, 8], [1, 8, 9, 10, 11]]


@pytest.mark.parametrize(
    ("whole", "resumed", "step"),
    [
        ("loaders", "mid-epoch", 2),
        ("loaders", "last step", 6),
        ("loaders", "second epoch", 8),
        ("limited", "limited mid-epoch", 3),
        ("limited", "limited last step", 4),
        ("limited", "limited epoch's end", 4),
    ],
)
def test_ranks_go_on_together(whole: str, resumed: str, step: int, told: list[dict[str, Any]]):
    for rank in told:
        assert rank[resumed]["trained"] == rank[whole]["trained"][step:]
        assert rank[resumed]["mean"] == rank[whole]["mean"]


def test_every_rank_is_told_of_a_wrong_number_of_consumers(told: list[dict[str, Any]]):
    for rank in told:
        assert "nb_consumer=3, and trainer has 2 ranks: set nb_consumer=trainer.world_size" in rank["refused"]
