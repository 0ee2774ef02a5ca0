"""The dataset in the training process is built when somebody looks into it, and only then."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
from functools import partial

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset

from swift_loader import ConfigError, SwiftLoader
from tests import trained
from tests.costly import Costly

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")


class OfTorch(Costly, Dataset):
    """The same, of torch's kind."""


@pytest.fixture(autouse=True)
def _from_0() -> None:
    Costly.here = OfTorch.here = 0


def loader_of(dataset_class=Costly, **settings) -> SwiftLoader:
    return SwiftLoader(dataset_class, {}, **{"batch_size": 8, "nb_consumer": 1, "worker_per_consumer": 0, **settings})


def test_what_frameworks_ask_of_a_loader_that_was_started_builds_nothing_here():
    with loader_of(worker_per_consumer=1) as loader:
        loader.start(0)
        assert loader
        assert not trained.has_iterable_dataset(loader)
        assert (len(loader), len(loader.dataset)) == (2, 16)
        assert isinstance(loader.dataset, Costly)
        assert not isinstance(loader.dataset, IterableDataset)
        trained.a_trainer(max_epochs=1).fit(trained.Noting(), train_dataloaders=loader)
    assert Costly.here == 0


def test_a_data_module_builds_nothing_here():
    model = trained.Noting()
    trained.a_trainer(max_epochs=2).fit(model, datamodule=trained.SwiftDataModule(train=loader_of))
    assert len(model.trained) == 4
    assert Costly.here == 0


def test_a_loader_that_lightning_starts_is_counted_here_once_and_keeps_nothing():
    with loader_of() as loader:
        trained.a_trainer(max_epochs=2).fit(trained.Noting(), train_dataloaders=loader)
        assert Costly.here == 1
        gc.collect()
        assert not Costly.alive


def test_before_start_only_the_number_of_batches_has_to_be_counted():
    loader = loader_of()
    assert loader
    assert isinstance(loader.dataset, Costly)
    assert isinstance(loader_of(OfTorch).dataset, Dataset)
    assert not trained.has_iterable_dataset(loader)
    assert repr(loader).startswith("<SwiftLoader Costly")
    pickle.dumps(loader)
    assert Costly.here == 0
    assert [len(loader) for _ in range(2)] == [2, 2]
    assert loader.dataset[3] == 3
    assert Costly.here == 1


def test_no_dataset_outlives_the_loader_and_its_user():
    gc.disable()
    try:
        for loader in (loader_of(), SwiftLoader.from_dataset(Costly(3), 2, 1, 0)):
            dataset = loader.dataset
            assert dataset is loader.dataset
            assert dataset[0] == 0
        del loader, dataset
        assert not Costly.alive
    finally:
        gc.enable()


def test_a_dataset_that_was_looked_into_stays():
    with loader_of() as loader:
        loader.dataset.labels.append("neither")
        loader.start(0)
        assert loader.dataset.labels == ["even", "odd", "neither"]
        assert loader.dataset is loader.dataset
        assert type(loader.dataset) is Costly
    assert Costly.here == 1


def test_a_class_whose_arguments_are_bound_is_known_and_what_a_function_makes_is_looked_at():
    assert isinstance(loader_of(partial(partial(Costly), count=3)).dataset, Costly)
    assert Costly.here == 0
    assert isinstance(loader_of(lambda: Costly(3)).dataset, Costly)
    assert Costly.here == 1


USES = {
    "an item": lambda it: it[3] == 3,
    "an attribute": lambda it: it.labels == ["even", "odd"],
    "a loop": lambda it: list(it) == list(range(16)),
    "what is in it": lambda it: "everything" in it,
    "its text": lambda it: repr(it) == str(it) == "Costly of 16",
    "another beside it": lambda it: type(both := operator.add(it, [1])) is ConcatDataset and len(both) == 17,
    "a part": lambda it: list(Subset(it, [2, 4])) == [2, 4],
    "a copy": lambda it: type(copy.deepcopy(it)) is OfTorch and copy.copy(it).count == 16,
    "a pickle": lambda it: type(pickle.loads(pickle.dumps(it))) is OfTorch,
    "its names": lambda it: "labels" in dir(it) and vars(it)["count"] == 16,
    "itself": lambda it: it == it and hash(it) == hash(it),  # noqa: PLR0124 - as a key
    "in torch's loader": lambda it: [b.tolist() for b in DataLoader(it, 8)] == [list(range(8)), list(range(8, 16))],
}


@pytest.mark.parametrize("use", USES)
def test_what_is_not_built_yet_is_in_use_the_dataset(use: str):
    assert USES[use](loader_of(OfTorch).dataset)
    assert OfTorch.here >= 1


def test_attributes_can_be_set_and_taken_away():
    dataset = loader_of().dataset
    dataset.labels = ["one"]
    del dataset.count
    assert vars(dataset) == {"labels": ["one"]}


class Broken(Costly):
    def __init__(self) -> None:
        raise FileNotFoundError("/no/such")


def test_what_the_constructor_raises_is_raised_where_it_is_used():
    loader = loader_of(Broken)
    assert isinstance(loader.dataset, Broken)
    for use in (lambda: loader.dataset[0], lambda: len(loader), lambda: loader.dataset.labels):
        with pytest.raises(FileNotFoundError, match="/no/such"):
            use()


def test_a_dataset_that_was_given_is_that_one():
    dataset = Costly(5)
    with SwiftLoader.from_dataset(dataset, 2, 1, 0, shuffle=False) as loader:
        assert loader.dataset is dataset
        assert len(loader) == 3
        dataset.count = 7
        assert len(loader) == 4
        assert torch.cat(list(loader)).tolist() == list(range(7))
    with pytest.raises(ConfigError, match="raised TypeError"):
        SwiftLoader.from_dataset(Costly("many"), 2, 1, 0)
