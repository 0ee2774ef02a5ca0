"""What Fabric and the Trainer are given, and who closes it: one rank, no processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from swift_loader import ConfigError, LoaderClosed, SwiftLoader
from tests import trained
from tests.datasets import Numbers
from tests.loaders import made
from tests.watching import flat

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")

loader_of = partial(made, Numbers, worker_per_consumer=0, shuffle=False)


class Kept:
    """Makes loaders, and keeps them."""

    def __init__(self, count: int = 16, **settings: Any) -> None:
        self.count = count
        self.settings = settings
        self.loaders: list[SwiftLoader] = []

    def __call__(self) -> SwiftLoader:
        self.loaders.append(loader_of({"count": self.count}, **self.settings))
        return self.loaders[-1]


def is_closed(loader: SwiftLoader) -> bool:
    try:
        next(iter(loader))
    except LoaderClosed:
        return True
    return False


# ---- Fabric


@pytest.fixture
def fabric() -> trained.Fabric:
    return trained.Fabric(accelerator="cpu", devices=1)


def test_fabric_gets_one_loader_back_as_it_is(fabric: trained.Fabric):
    with loader_of({"count": 16}) as loader:
        assert trained.setup_loaders(fabric, loader) is loader
        assert flat(loader) == list(range(16))


def test_fabric_gets_several_loaders_back_as_a_list(fabric: trained.Fabric):
    with loader_of({"count": 16}) as one, loader_of({"count": 8}) as other:
        assert trained.setup_loaders(fabric, one, other) == [one, other]
        assert flat(other) == list(range(8))


def test_fabric_s_device_is_handed_through(monkeypatch: pytest.MonkeyPatch):
    fabric = trained.Fabric(accelerator="cpu", devices=1)
    monkeypatch.setattr(trained.Fabric, "device", torch.device("meta"))  # a device that every machine has
    with loader_of() as moved, loader_of() as stays:
        trained.setup_loaders(fabric, moved)
        trained.setup_loaders(fabric, stays, move_to_device=False)
        assert next(iter(moved)).device.type == "meta"
        assert next(iter(stays)).device.type == "cpu"


def test_nothing_starts_if_one_has_a_wrong_number_of_consumers(fabric: trained.Fabric):
    with loader_of() as good, loader_of(nb_consumer=2) as bad:
        with pytest.raises(ConfigError, match="nb_consumer=2, and fabric has 1 ranks: set nb_consumer=fabric"):
            trained.setup_loaders(fabric, good, bad)
        good.start(0)


@pytest.mark.parametrize("loaders", [(), ([1, 2],), (torch.utils.data.DataLoader([1, 2]),)])
def test_fabric_s_line_takes_our_loaders_only(loaders: tuple, fabric: trained.Fabric):
    with pytest.raises(ConfigError, match="setup_loaders"):
        trained.setup_loaders(fabric, *loaders)


# ---- the data module


def test_a_data_module_has_the_hooks_of_what_it_was_given():
    module = trained.SwiftDataModule(train=loader_of, test=loader_of)
    assert isinstance(module, trained.LightningDataModule)
    hooks = ("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader")
    assert [trained.is_overridden(hook, module) for hook in hooks] == [True, False, True, False]


def test_what_functions_make_is_made_when_needed_and_closed_after():
    train, validation, test = Kept(), Kept(8), Kept(9)
    module = trained.SwiftDataModule(train=train, validation=[validation, validation], test=test)
    model, trainer = trained.Noting(), trained.a_trainer(max_epochs=2)
    trainer.fit(model, datamodule=module)
    assert [len(kept.loaders) for kept in (train, validation, test)] == [1, 2, 0]
    assert len(model.trained) == 4
    assert [flat_of(model.validated[0], number) for number in range(2)] == [list(range(8))] * 2
    assert all(map(is_closed, train.loaders + validation.loaders))

    trainer.validate(model, datamodule=module, verbose=False)
    trainer.test(model, datamodule=module, verbose=False)
    assert [len(kept.loaders) for kept in (train, validation, test)] == [1, 4, 1]
    assert flat_of(model.tested, 0) == list(range(9))
    assert all(map(is_closed, validation.loaders + test.loaders))


def test_the_trainer_s_device_is_handed_through(monkeypatch: pytest.MonkeyPatch):
    module = trained.SwiftDataModule(train=loader_of)
    module.trainer = trained.a_trainer()
    monkeypatch.setattr(type(module.trainer.strategy), "root_device", torch.device("meta"))
    assert next(iter(module.train_dataloader())).device.type == "meta"
    module.teardown("fit")


def flat_of(batches: list[list[int]], number: int) -> list[int]:
    return [sample for loader, *batch in batches if loader == number for sample in batch]


def test_a_loader_that_was_given_serves_many_stages_and_is_its_giver_s():
    with loader_of({"count": 16}) as train, loader_of({"count": 8}) as validation:
        module = trained.SwiftDataModule(train=train, validation={"one": validation})
        model, trainer = trained.Noting(), trained.a_trainer(max_epochs=1)
        trainer.fit(model, datamodule=module)
        trainer.validate(model, datamodule=module, verbose=False)
        trainer.fit(model, datamodule=module)
        assert [flat_of(batches, 0) for batches in model.validated] == [list(range(8))] * 2
        assert flat(train) == list(range(16))


def test_predictions_come_in_the_set_s_order():
    module = trained.SwiftDataModule(predict=Kept(20))
    predictions = trained.a_trainer().predict(trained.Noting(), datamodule=module)
    assert [sample for batch in predictions for sample in batch] == list(range(20))


def test_what_was_made_is_closed_when_training_fails():
    class Failing(trained.Noting):
        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            raise RuntimeError("the model is at fault")

    train = Kept()
    with pytest.raises(RuntimeError, match="at fault"):
        trained.a_trainer(max_epochs=1).fit(Failing(), datamodule=trained.SwiftDataModule(train=train))
    assert is_closed(train.loaders[0])


def test_what_was_made_before_a_mistake_is_closed_too():
    good = Kept()
    with pytest.raises(ConfigError, match="nb_consumer=2, and trainer has 1 ranks"):
        trained.a_trainer(max_epochs=1).fit(
            trained.Noting(), datamodule=trained.SwiftDataModule(train=[good, Kept(nb_consumer=2)])
        )
    assert is_closed(good.loaders[0])


def test_loaders_are_made_anew_where_lightning_is_told_to_reload():
    train, model = Kept(seed=3, shuffle=True), trained.Noting()
    trained.a_trainer(max_epochs=3, reload_dataloaders_every_n_epochs=1).fit(
        model, datamodule=trained.SwiftDataModule(train=train)
    )
    assert len(train.loaders) == 3
    assert all(map(is_closed, train.loaders))
    with loader_of({"count": 16}, seed=3, shuffle=True) as same:
        assert [step[2:] for step in model.trained] == [batch.tolist() for _ in range(3) for batch in same]


def a_number() -> int:
    return 3


@pytest.mark.parametrize("source", [3, "train", [3], a_number, [[1, 2], [3, 4]]])
def test_a_data_module_takes_loaders_or_what_makes_them(source: Any):
    with pytest.raises(ConfigError, match="SwiftDataModule takes SwiftLoaders, not a"):
        trained.a_trainer(max_epochs=1).fit(trained.Noting(), datamodule=trained.SwiftDataModule(train=source))


def test_a_data_module_outside_of_a_trainer_tells_what_it_needs():
    with pytest.raises(ConfigError, match="give it to one"):
        trained.SwiftDataModule(train=loader_of).train_dataloader()


def test_what_lightning_cannot_do_with_foreign_loaders_is_refused():
    with pytest.raises(ConfigError, match="overfit_batches"):
        trained.a_trainer(max_epochs=1, overfit_batches=1).fit(
            trained.Noting(), datamodule=trained.SwiftDataModule(train=Kept())
        )


def only_lists_and_dicts() -> list[Callable[[], Any]]:
    return [
        lambda: [loader_of({"count": 16}), loader_of({"count": 16})],
        lambda: {"a": loader_of({"count": 16}), "b": [loader_of({"count": 16})]},
    ]


@pytest.mark.parametrize("source", only_lists_and_dicts())
def test_several_loaders_for_training_come_in_their_containers(source: Callable[[], Any]):
    class Both(trained.Noting):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            one, other = (batch["a"], batch["b"][0]) if isinstance(batch, dict) else batch
            assert torch.equal(one, other)
            return super().training_step(one, batch_idx)

    model = Both()
    trained.a_trainer(max_epochs=1).fit(model, datamodule=trained.SwiftDataModule(train=source))
    assert [step[2:] for step in model.trained] == [list(range(8)), list(range(8, 16))]
