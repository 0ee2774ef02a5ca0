"""Arguments that decide which samples come when: each has its effect, seen in the batches that are delivered."""

from __future__ import annotations

from itertools import pairwise

import pytest

from swift_loader import ConfigError, EpochPlan, WeightedPlan
from tests.api.given import Backwards, list_of_five
from tests.datasets import Noted, Numbers, Random, calls
from tests.loaders import made, started, stream
from tests.watching import flat, until


def numbers(count: int = 101, epochs: int = 1, **settings) -> list[list[int]]:
    """The batches of a set of numbers, made without workers: the order does not depend on them."""
    settings = {"worker_per_consumer": 0, **settings}
    return [batch[1] for batch in stream(Numbers, {"count": count}, epochs=epochs, **settings)]


@pytest.mark.parametrize("spelling", ["seed", "seed_numer", "seed_number"])
def test_seed_decides_the_order_under_each_of_its_names(spelling: str):
    given = {"seed": None, spelling: 7}
    assert numbers(**given) == numbers(seed=7, worker_per_consumer=2)
    assert numbers(**given) != numbers(seed=8)


def test_seed_by_default_is_drawn_anew_for_every_loader():
    assert numbers(seed=None) != numbers(seed=None)


def test_seed_decides_what_workers_draw():
    assert stream(Random, seed=3, shuffle=False) == stream(Random, seed=3, shuffle=False)
    assert stream(Random, seed=3, shuffle=False) != stream(Random, seed=4, shuffle=False)


def test_shuffle_false_is_the_order_of_the_dataset_and_true_is_the_default():
    assert [number for batch in numbers(shuffle=False) for number in batch] == list(range(101))
    assert numbers(shuffle=True) != numbers(shuffle=False)


def test_batch_size_is_the_number_of_samples_in_a_batch():
    assert [len(batch) for batch in numbers(64, batch_size=16)] == [16] * 4


def test_nearby_shuffle_limits_how_far_reads_stray():
    def spread(**settings) -> int:
        batches = numbers(4096, batch_size=16, nearby_mix=1, **settings)
        return max(max(batch) - min(batch) for batch in batches[2:20])

    near = [sorted(batch) for batch in numbers(4096, batch_size=16, nearby_mix=1, nearby_shuffle=32)]
    within = [sum(b - a <= 32 for a, b in pairwise(batch)) for batch in near]
    assert sum(within) > 0.9 * 15 * len(near)  # a batch touches one window, or two where one ends
    assert spread(nearby_shuffle=0) > 3000
    default, stated = numbers(4096, batch_size=16), numbers(4096, batch_size=16, nearby_shuffle=80)
    assert default == stated  # five batches is the default


def test_nearby_mix_is_how_many_windows_a_group_of_batches_draws_from():
    def windows(mix: int) -> float:
        batches = numbers(4096, batch_size=32, nearby_shuffle=32, nearby_mix=mix)
        return sum(len({number // 32 for number in batch}) for batch in batches) / len(batches)

    assert 2 * windows(1) < windows(16)
    assert numbers(4096, nearby_mix=16) == numbers(4096)


#: Of 101 samples in batches of 8 for 4 consumers: sizes of the first and of the last consumer's batches.
EVEN = {
    (True, "balance"): ([8, 8, 5, 5], [8, 8, 5, 4]),
    (True, "pad"): ([8, 8, 8, 8], [8, 8, 8, 8]),
    (True, "drop"): ([8, 8, 8, 1], [8, 8, 8, 1]),
    (True, "none"): ([8, 8, 8, 2], [8, 8, 8, 1]),
    (False, "none"): ([8, 8, 8, 2], [8, 8, 7]),
}


@pytest.mark.parametrize(("shuffle", "even"), EVEN)
def test_even_decides_how_consumers_take_the_same_number_of_steps(shuffle: bool, even: str, recwarn):
    def sizes(consumer: int, **settings) -> list[int]:
        batches = numbers(shuffle=shuffle, nb_consumer=4, consumer=consumer, **settings)
        return [len(batch) for batch in batches]

    first, last = EVEN[shuffle, even]
    assert sizes(0, even=even) == first
    assert sorted(sizes(3, even=even)) == sorted(last)


def test_even_is_balance_when_shuffling_and_none_when_not():
    assert numbers(nb_consumer=4) == numbers(nb_consumer=4, even="balance")
    with pytest.warns(UserWarning, match="take .* batches per epoch.*even='pad'"):
        found = numbers(9, shuffle=False, nb_consumer=4, batch_size=2)
    with pytest.warns(UserWarning, match="take"):
        assert numbers(9, shuffle=False, nb_consumer=4, batch_size=2, even="none") == found


@pytest.mark.parametrize("workers", [0, 1])
def test_even_none_may_leave_a_consumer_without_a_batch(workers: int):
    given = {"nb_consumer": 4, "batch_size": 2, "worker_per_consumer": workers, "shuffle": False}
    with pytest.warns(UserWarning, match="from 0 to 2 batches"):
        found = numbers(9, epochs=3, consumer=3, **given)
    assert found == []


def test_last_batch_mask_marks_what_even_repeats():
    with started(Numbers, {"count": 10}, batch_size=4, even="pad", worker_per_consumer=0) as loader:
        masks = [(batch.tolist(), loader.last_batch_mask.tolist()) for batch in loader]
    assert [mask for _, mask in masks] == [[True] * 4, [True] * 4, [True, True, False, False]]
    real = [number for batch, mask in masks for number, is_real in zip(batch, mask, strict=True) if is_real]
    assert sorted(real) == list(range(10))


def test_drop_last_leaves_out_the_smaller_last_batch():
    assert [len(batch) for batch in numbers(30, shuffle=False)] == [8, 8, 8, 6]
    assert [len(batch) for batch in numbers(30, shuffle=False, drop_last=True)] == [8, 8, 8]
    assert [len(batch) for batch in numbers(30, drop_last=True)] == [8, 8, 8]


def test_elastic_makes_the_same_global_steps_for_any_number_of_consumers():
    def steps(consumers: int, **settings) -> list[list[int]]:
        parts = [
            numbers(96, batch_size=12 // consumers, nb_consumer=consumers, consumer=consumer, **settings)
            for consumer in range(consumers)
        ]
        return [sorted(number for part in step for number in part) for step in zip(*parts, strict=True)]

    assert steps(1, elastic=True) == steps(2, elastic=True) == steps(3, elastic=True)
    assert steps(1, nearby_shuffle=60) != steps(3, nearby_shuffle=60)


@pytest.mark.parametrize("workers", [0, 2])
def test_plan_takes_the_place_of_the_built_in_one(workers: int):
    with started(Numbers, {"count": 91}, plan=Backwards(), worker_per_consumer=workers) as loader:
        assert [batch.tolist() for batch in loader] == [[90, 0, 0], [89, 0, 0], [88, 0, 0]]
        assert [batch.tolist() for batch in loader] == [[90, 0, 1], [89, 0, 1], [88, 0, 1], [87, 0, 1]]
        assert len(loader) == 4


def test_plan_takes_the_plans_that_ship():
    same = EpochPlan(sample_count=101, batch_size=8, seed=1, window=40)
    assert numbers(plan=same, seed=None) == numbers()
    weights = [0.0] * 100 + [1.0]
    weighted = WeightedPlan(weights, batch_size=8, consumer_count=1, seed=1, samples_per_epoch=40)
    assert {number for batch in numbers(plan=weighted) for number in batch} == {100}


def test_plan_that_asks_for_samples_that_are_not_there_says_so():
    with pytest.raises(Exception, match="out of range"), started(list_of_five, {}, plan=Backwards()) as loader:
        list(loader)


def test_in_order_false_hands_out_batches_as_they_come(tmp_path):
    def first_batches(folder, **settings) -> list[int]:
        kwargs = {"folder": str(folder), "count": 24, "gate_at": 3}
        taken = []
        options = {"batch_size": 1, "shuffle": False, "message_queue_size": 1, **settings}
        with started(Noted, kwargs, **options) as loader:
            for batch in loader:
                taken += batch.tolist()
                if len(taken) == 3:
                    until(lambda: len(calls(folder, "get")) > 6, "the other worker's batches")
                if len(taken) == (3 if settings.get("in_order", True) else 6):
                    (folder / "open").touch()
        return taken

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert first_batches(tmp_path / "a") == list(range(24))
    overtaken = first_batches(tmp_path / "b", in_order=False, max_buffer_size=20)
    assert overtaken.index(3) > 4
    assert sorted(overtaken) == list(range(24))


def test_in_order_false_keeps_epochs_apart():
    with started(Numbers, {"count": 30}, in_order=False, worker_per_consumer=3, batch_size=2) as loader:
        assert [sorted(flat(loader)) for _ in range(6)] == [list(range(30))] * 6
        for _ in range(5):
            next(iter(loader))
        assert sorted(flat(loader)) == list(range(30))


def test_random_per_decides_whether_a_sample_draws_the_same_in_another_batch():
    def drawn(**settings) -> dict[int, list[float]]:
        batches = stream(Random, {"count": 30}, worker_per_consumer=0, **settings)
        return {i: row for batch in batches for i, row in zip(batch["i"][1], batch["drawn"][1], strict=True)}

    assert drawn(random_per="sample") == drawn(random_per="sample", shuffle=False)
    assert drawn(random_per="batch") != drawn(random_per="batch", shuffle=False)
    assert drawn() == drawn(random_per="batch")


def test_len_is_known_before_start_where_all_consumers_have_the_same():
    loader = made(Numbers, {"count": 101}, nb_consumer=4)
    assert len(loader) == 4
    with pytest.raises(ConfigError, match=r"consumers take \[0, 2\] batches each: call start"):
        len(made(Numbers, {"count": 9}, nb_consumer=4, shuffle=False, batch_size=2))


def test_the_dataset_can_be_had_from_the_loader():
    loader = made(Numbers, {"count": 12})
    assert len(loader.dataset) == 12
    assert loader.dataset[3] == 3
    assert [loader.dataset[i] for i in range(3)] == [0, 1, 2]
