"""What a dataset draws from generators of its own, or of what it imports late, is keyed as all random numbers are."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from swift_loader import SwiftLoader, worker_info
from tests.datasets import Numbers
from tests.drawing_datasets import Augments, AugmentsLater, Compose, Crop, ImportsTorch, MixedAnew
from tests.loaders import made, started, stream
from tests.torch_datasets import TorchsOwn
from tests.watching import plain


@pytest.fixture(scope="module")
def expected() -> list:
    return stream(Augments, {"count": 40}, epochs=2, worker_per_consumer=0)


def test_torch_that_is_imported_by_a_sample_is_seeded_for_it():
    expected = stream(ImportsTorch, {"count": 48}, worker_per_consumer=0)
    assert stream(ImportsTorch, {"count": 48}) == expected
    with made(ImportsTorch, {"count": 48}, worker_per_consumer=0) as loader:
        loader.start(0)
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
    with made(ImportsTorch, {"count": 48}, worker_per_consumer=1) as loader:
        loader.load_state_dict(state)
        loader.start(0)
        assert [plain(batch) for batch in loader] == expected[2:]


@pytest.mark.parametrize("way", ["class", "from_dataset", "share_dataset"])
def test_what_a_dataset_holds_is_seeded_whoever_makes_the_batch(way: str, expected: list):
    settings: dict[str, Any] = {"batch_size": 8, "nb_consumer": 1, "worker_per_consumer": 2, "seed": 1}
    loader = (
        SwiftLoader.from_dataset(Augments(40), **settings)
        if way == "from_dataset"
        else SwiftLoader(Augments, {"count": 40}, share_dataset=way == "share_dataset", **settings)
    )
    with loader:
        loader.start(0)
        assert [plain(batch) for _ in range(2) for batch in loader] == expected


def test_what_it_draws_is_new_in_every_sample_and_epoch(expected: list):
    for name in expected[0]:
        drawn = [number for batch in expected for number in batch[name][1]]
        assert len(set(drawn)) == len(drawn) == 80


def test_what_is_made_at_first_use_is_seeded_from_the_first_batch_on(expected: list):
    assert stream(AugmentsLater, {"count": 40}, epochs=2) == expected
    assert stream(AugmentsLater, {"count": 40}, epochs=2, worker_per_consumer=0) == expected


def test_per_sample_they_are_seeded_for_each():
    def by_sample(**settings: Any) -> list:
        batches = stream(Augments, {"count": 40}, random_per="sample", worker_per_consumer=0, **settings)
        return sorted(
            tuple(row) for batch in batches for row in zip(*(leaf[1] for leaf in batch.values()), strict=True)
        )

    assert by_sample() == by_sample(shuffle=False, batch_size=5)


def test_what_is_drawn_at_the_turn_of_an_epoch_is_the_same_in_all_workers():
    expected = stream(MixedAnew, {"count": 40}, epochs=2, worker_per_consumer=0)
    assert stream(MixedAnew, {"count": 40}, epochs=2) == expected
    assert expected[0]["order"] != expected[5]["order"]


def test_generators_of_torch_are_seeded_and_the_scripts_own_are_put_back():
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    streams = [stream(TorchsOwn, {"count": 16, "generator": generator}, worker_per_consumer=count) for count in (0, 2)]
    assert streams[0] == streams[1]
    assert torch.equal(generator.get_state(), before)


def test_without_workers_a_datasets_own_generators_are_put_back_too():
    dataset = Augments(16)
    expected = Augments(16)
    with SwiftLoader.from_dataset(dataset, 8, 1, 0, seed=1) as loader:
        loader.start(0)
        list(loader)
    assert dataset.rng.random() == expected.rng.random()
    assert dataset.random.random() == expected.random.random()
    assert dataset.transform.transforms[0](0.0) == expected.transform.transforms[0](0.0)


class Mixing:
    """A collate with a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def __call__(self, samples: list) -> float:
        return self.rng.random()


def test_what_the_collate_holds_is_seeded_too():
    one, other = (stream(Numbers, {"count": 40}, collate_fn=Mixing(), worker_per_consumer=0) for _ in range(2))
    assert one == other
    assert len(set(one)) == len(one)


def test_generators_that_the_process_has_are_seeded_once_though_the_dataset_holds_them():
    class Holds(Numbers):
        def __init__(self) -> None:
            super().__init__(8)
            self.held = [np.random.mtrand._rand, random.random.__self__, torch.default_generator]

        def __getitem__(self, index: int) -> Any:
            return np.random.random(), random.random(), torch.rand(()).item()

    class HoldsNone(Holds):
        def __init__(self) -> None:
            Numbers.__init__(self, 8)

    assert stream(Holds, worker_per_consumer=0) == stream(HoldsNone, worker_per_consumer=0)


def test_what_is_kept_draws_its_own_numbers_from_them(tmp_path):
    setting = {"prefix": str(tmp_path / "cache"), "update_frequency": 2}
    settings: dict[str, Any] = {"cache_setting": setting, "epochs": 3, "worker_per_consumer": 0}
    first = stream(Augments, {"count": 40}, **settings)
    again = stream(Augments, {"count": 40}, **settings)  # some of it is read back, some made again
    assert first == again


class WithInfo(Numbers):
    def __init__(self) -> None:
        super().__init__(8)
        self.info, self.transform = worker_info(), Compose(Crop())

    def __getitem__(self, index: int) -> float:
        return self.transform(0.0)


def test_a_dataset_may_hold_what_tells_of_its_worker():
    with started(WithInfo, worker_per_consumer=0) as loader:
        assert len({number for _ in range(2) for batch in loader for number in plain(batch)[1]}) == 16
