"""A library that is loaded while a batch is made could not be seeded for it: the batch is made again, once."""

from __future__ import annotations

import random
import sys
import threading
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from swift_loader.worker.info import WorkerInfo
from swift_loader.worker.unmade import MakeFailed
from tests.unit.worker.making import Making


class Library(ModuleType):
    """As OpenCV is: seeded by a function, with a generator for each thread, whose state it does not tell."""

    def __init__(self) -> None:
        super().__init__("cv2")
        self.here = threading.local()
        self.setRNGSeed = self._seed  # one function, as there

    def _seed(self, seed: int) -> None:
        self.here.generator = random.Random(seed)

    def randu(self) -> float:
        if not hasattr(self.here, "generator"):
            self.here.generator = random.Random()
        return self.here.generator.random()


class Imports:
    """Sample i is i, and a number that a library gives."""

    def __init__(self, library: Library, first: int = 1) -> None:
        self.library, self.first = library, first
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 12

    def draw(self, index: int) -> float:
        self.asked.append(index)
        if index == self.first:
            sys.modules["cv2"] = self.library
        return index + self.library.randu()

    def __getitem__(self, index: int) -> Any:
        return self.draw(index)


class Whole(Imports):
    def __getitems__(self, indices: list[int]) -> list:
        return [self[index] for index in indices]


class ReadsInto(Imports):
    def read_into(self, indices: list[int], rows: Any) -> None:
        rows[:] = [self[index] for index in indices]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setitem(sys.modules, "cv2", None)  # put back at the end
    del sys.modules["cv2"]
    return Library()


def _drawn(making: Making, step: int) -> list[float]:
    return making.batch(step).tolist()


@pytest.mark.parametrize("kind", [Imports, Whole, ReadsInto])
@pytest.mark.parametrize("random_per", ["batch", "sample"])
def test_it_is_made_again_and_what_comes_is_what_a_worker_with_the_library_makes(kind, random_per, library):
    late = Making(kind(library), random_per=random_per)
    drawn = [_drawn(late, step) for step in range(3)]
    assert late.dataset.asked[:8] == [*range(4)] * 2
    again = Making(kind(library), random_per=random_per)
    assert [_drawn(again, step) for step in range(3)] == drawn
    assert again.dataset.asked == [*range(12)]


def test_rows_that_the_dataset_writes_itself_are_written_again(library):
    late = Making(ReadsInto(library, first=5))
    drawn = [_drawn(late, step) for step in range(3)][1:]
    assert late.dataset.asked == [0, 1, 2, 3, *[4, 5, 6, 7] * 2, 8, 9, 10, 11]
    again = Making(ReadsInto(library))
    assert [_drawn(again, step) for step in range(3)][1:] == drawn


def test_per_sample_a_dataset_does_not_write_whole_batches():
    class Drawing(ReadsInto):
        def draw(self, index: int) -> float:
            return random.random()

    makings = [(Making(Drawing(None), size, random_per="sample"), 12 // size) for size in (4, 3)]
    fours, threes = ([one for step in range(steps) for one in _drawn(making, step)] for making, steps in makings)
    assert fours == threes


def test_a_collate_that_brings_it_gets_its_samples_again(library):
    def collate(samples: list) -> float:
        sys.modules["cv2"] = library
        return library.randu()

    making = Making([*range(12)], collate_fn=collate)
    first = making.batch(0)
    assert making.batch(0) == first != making.batch(1)


def test_with_threads_each_sample_draws_its_own_and_the_batch_is_made_again(library):
    def drawn(threads: int) -> list[list[float]]:
        making = Making(Imports(library), worker_threads=threads, random_per="sample")
        making.info._shares = True
        try:
            return [_drawn(making, step) for step in range(3)]
        finally:
            making.maker.close()

    late = drawn(3)
    assert drawn(2) == late
    assert len({number % 1 for batch in late for number in batch}) == 12


def test_what_it_raised_unseeded_is_forgotten(library):
    class Raises(Imports):
        def __getitem__(self, index: int) -> float:
            drawn = super().__getitem__(index)
            if len(self.asked) == 1:
                raise ValueError("of numbers that nobody has seeded")
            return drawn

    making = Making(Raises(library, first=0))
    drawn = _drawn(making, 0)
    assert _drawn(Making(Imports(library)), 0) == drawn


def test_what_it_raises_seeded_is_raised(library):
    class Raises(Imports):
        def __getitem__(self, index: int) -> float:
            super().__getitem__(index)
            raise ValueError(f"asked {len(self.asked)} times")

    making = Making(Raises(library, first=0))
    with pytest.raises(MakeFailed, match="asked 2 times"):
        making.made(0)
    with pytest.raises(MakeFailed, match="asked 3 times"):
        making.made(0)


def test_a_sample_that_is_left_out_of_the_first_making_may_be_there_in_the_second(library):
    class Raises(Imports):
        def __getitem__(self, index: int) -> float:
            drawn = super().__getitem__(index)
            if len(self.asked) == 2:
                raise ValueError
            return drawn

    making = Making(Raises(library), on_error="skip")
    made = making.made(0)
    assert (made.rows, made.skipped) == (4, [])


def test_a_sample_that_is_kept_is_made_again_by_itself(library):
    info = WorkerInfo(0, 0, 7, per_sample=False)
    dataset = Imports(library)
    kept = info.made(0, 1, lambda: dataset[1])
    assert dataset.asked == [1, 1]
    assert info.made(0, 1, lambda: dataset[1]) == kept != info.made(1, 1, lambda: dataset[1])
    assert dataset.asked == [1] * 4


class Torchs:
    """As torch is: its generator can be asked for its state, and is known when it is new."""

    class Generator:
        def __init__(self) -> None:
            self.random = random.Random(0)

        def manual_seed(self, seed: int) -> None:
            self.random.seed(seed)

        def get_state(self) -> Torchs.State:
            return Torchs.State(self.random.getstate()[1])

        def set_state(self, state: Torchs.State) -> None:
            self.random.setstate((3, tuple(state.words.tolist()), None))

    class State:
        def __init__(self, words: Any) -> None:
            self.words = np.array(words)

        def numpy(self) -> np.ndarray:
            return self.words

    def __init__(self) -> None:
        self.default_generator = self.Generator()


@pytest.fixture
def torchs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("torch")
    module.default_generator, module.Generator = Torchs().default_generator, Torchs.Generator
    monkeypatch.delitem(sys.modules, "torch")
    return module


def test_where_nothing_was_drawn_from_it_nothing_is_made_again(torchs, monkeypatch):
    info = WorkerInfo(0, 0, 7, per_sample=False)
    calls = []

    def make() -> int:
        monkeypatch.setitem(sys.modules, "torch", torchs)
        calls.append(1)
        return torchs.default_generator.random.random() if len(calls) == 3 else 0

    for times in (1, 2, 3):
        info.generators.whole(make)
        assert len(calls) == times
        if times == 2:
            torchs.default_generator = Torchs().default_generator  # as new again
    info.generators.whole(make)
    assert len(calls) == 4


def test_drawn_from_it_is_seeded_afterwards_and_in_between_put_back_as_new(torchs, monkeypatch):
    info = WorkerInfo(0, 0, 7, per_sample=False)

    def make() -> float:
        monkeypatch.setitem(sys.modules, "torch", torchs)
        return torchs.default_generator.random.random()

    kept = info.made(0, 3, make)
    assert torchs.default_generator.random.random() == random.Random(0).random()
    assert info.made(0, 3, make) == kept


def test_a_dataset_that_makes_itself_new_generators_at_each_sample_is_not_followed_for_ever():
    class Restless:
        def __init__(self) -> None:
            self.count = 0

        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> int:
            self.rng = np.random.default_rng()
            self.count += 1
            return index

    making = Making(Restless())
    making.info.generators.find(dataset=making.dataset)
    assert [_drawn(making, step) for step in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert making.dataset.count <= 16
