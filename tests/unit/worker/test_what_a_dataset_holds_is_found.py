"""The walk through a dataset finds what it draws from, calls nothing of it, and is bounded."""

from __future__ import annotations

import functools
import random
from collections import UserDict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from swift_loader.worker.generators import Generators
from swift_loader.worker.reach import reachable
from tests.drawing_datasets import OF_THE_MODULE, Augments, Crop


def found(value: Any) -> set[str]:
    generators = Generators()
    generators.find(dataset=value)
    return {held.path for held in generators.held}


class Holds:
    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass(slots=True)
class Slotted:
    rng: Any
    empty: Any = None


class Listed(list):
    rng = np.random.default_rng()


@pytest.mark.parametrize(
    "hidden",
    [
        lambda rng: rng,
        lambda rng: [0, {"a": (rng,)}],
        lambda rng: deque([rng]),
        lambda rng: {object(): rng},
        lambda rng: UserDict(a=rng),
        lambda rng: functools.partial(Crop.__call__, rng),
        lambda rng: functools.partial(Crop, seed=rng),
        Slotted,
        lambda rng: Holds(Holds(rng)),
        lambda rng: Listed([rng]),
        lambda rng: lambda: rng,
        lambda rng: lambda rng=rng: rng,
        lambda rng: rng.__reduce__,
        lambda rng: Holds(rng).__init__,
        lambda rng: torch.nn.Sequential(Module(rng)),
        lambda rng: [[index] for index in range(100)] + [rng],
    ],
)
@pytest.mark.parametrize(
    "make", [np.random.default_rng, random.Random, np.random.RandomState, torch.Generator, lambda: Seeded(3)]
)
def test_a_generator_is_found_wherever_it_is_held(hidden: Any, make: Any):
    rng = make()
    generators = Generators()
    generators.find(dataset=Holds(hidden(rng)))
    assert rng in [held.value for held in generators.held]


class Seeded(random.Random):
    """One of a kind of its own."""


class Module(torch.nn.Module):
    def __init__(self, rng: Any) -> None:
        super().__init__()
        self.rng = rng


def test_attributes_classes_modules_and_closures_are_told_by_paths_that_do_not_change():
    paths = found(Augments())
    assert paths == found(Augments())
    assert {"dataset.rng", "dataset.random", "dataset.transform.transforms[0].random_generator"} <= paths
    assert any(path.endswith("Randomizable.R") for path in paths)
    assert "tests.drawing_datasets.OF_THE_MODULE" in paths
    assert OF_THE_MODULE.random() != OF_THE_MODULE.random()


def test_what_the_process_draws_from_and_what_has_no_state_is_left_alone():
    common = [np.random.mtrand._rand, random.random.__self__, torch.default_generator, random.SystemRandom()]
    assert found(Holds(common)) == set()


def test_two_generators_over_the_same_bits_are_one():
    bits = np.random.PCG64(1)
    assert len(found(Holds([np.random.Generator(bits), np.random.Generator(bits)]))) == 1


@pytest.mark.parametrize(
    "kind", [np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64, np.random.MT19937]
)
def test_generators_of_every_kind_of_bits_are_seeded_and_put_back(kind: Any):
    rng = np.random.Generator(kind())
    generators = Generators()
    generators.find(dataset=Holds(rng))
    (held,) = generators.held
    before = held.state()
    drawn = rng.random(3).tolist()
    held.seed(1 << 100)
    seeded = rng.random(3).tolist()
    held.seed(1 << 100)
    assert rng.random(3).tolist() == seeded != drawn
    held.put_back(before)
    assert rng.random(3).tolist() == drawn


class Touchy:
    """Whoever asks it anything is told off."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")

    @property
    def value(self) -> Any:
        raise AssertionError

    def _refuse(self, *_: Any) -> Any:
        raise AssertionError

    __len__ = __iter__ = __getitem__ = __bool__ = __repr__ = __hash__ = __eq__ = _refuse  # type: ignore[assignment]


class TouchyList(list):
    def __iter__(self) -> Any:
        raise AssertionError


class TouchyDict(dict):
    def items(self) -> Any:
        raise AssertionError


def test_nothing_of_the_users_is_called_on_the_way():
    assert found(Holds(TouchyList([Touchy(), TouchyDict(a=Touchy())]))) == {
        "dataset.value[0].rng",
        "dataset.value[1]['a'].rng",
    }


def test_what_is_near_is_found_though_there_is_more_than_is_looked_at():
    class Annotated:
        def __init__(self) -> None:
            self.annotations = {
                index: {"boxes": [[[1.0], [2.0]] for _ in range(20)], "more": [[index]]} for index in range(2_000)
            }
            self.transform = Holds([Holds(Crop()), Holds(Holds(Crop()))])

    assert len(found(Annotated())) == 4
    assert sum(1 for _ in reachable({"dataset": Annotated()})) == 20_000


def test_what_holds_itself_is_gone_through_once():
    ring = Holds(None)
    ring.value = [ring, {"ring": ring}]
    assert found(ring) == set()
