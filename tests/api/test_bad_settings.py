"""Wrong settings and wrong use: each has an error of its own that says what to do, before anything is started."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from swift_loader import ConfigError, DataLoader, EpochPlan, LoaderClosed, SwiftLoader, SwiftLoaderError
from tests.api.argument_table import DESIGNED
from tests.datasets import Iterates, Numbers, Random, WithoutLength
from tests.loaders import made, started
from tests.torch_datasets import TorchIterable, TorchWithoutLength
from tests.watching import flat, plain

_COUNTS = ["batch_size", "nb_consumer", "data_queue_size", "message_queue_size", "nearby_mix", "worker_threads",
           "max_attempts", "max_nb_batch_on_device", "memory_budget", "max_batch_nbytes",
           "max_worker_nbytes"]  # fmt: skip
_COUNTS_FROM_0 = ["worker_per_consumer", "max_buffer_size", "nearby_shuffle", "max_skipped", "retries", "seed"]
_FLAGS = ["shuffle", "benchmark", "validate", "multithread", "drop_last", "elastic", "in_order", "share_dataset",
          "allow_fork", "check_finite"]  # fmt: skip
_CHOICES = ["even", "random_per", "start_method", "on_error", "ragged", "engine"]


@pytest.mark.parametrize("name", _COUNTS)
@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, [1]])
def test_a_count_must_be_a_whole_number_above_0(name: str, value):
    with pytest.raises(ConfigError, match=f"{name} must be"):
        made(Numbers, **{name: value})


@pytest.mark.parametrize("name", _COUNTS_FROM_0)
@pytest.mark.parametrize("value", [-1, 0.5, "0", False, math.inf])
def test_a_count_that_may_be_0_must_be_a_whole_number(name: str, value):
    with pytest.raises(ConfigError, match=f"{name} must be"):
        made(Numbers, **{name: value})


@pytest.mark.parametrize("name", _FLAGS)
@pytest.mark.parametrize("value", [1, 0, "yes", "False"])
def test_a_flag_must_be_true_or_false(name: str, value):
    with pytest.raises(ConfigError, match=f"{name} must be True or False"):
        made(Numbers, **{name: value})


@pytest.mark.parametrize("name", _CHOICES)
@pytest.mark.parametrize("value", ["", "sometimes", 3, True, ["a"]])
def test_a_choice_must_be_one_of_those_that_it_lists(name: str, value):
    with pytest.raises(ConfigError, match=f"{name} must be '"):
        made(Numbers, **{name: value})


@pytest.mark.parametrize("name", ["collate_fn", "batch_encoder", "batch_decoder", "worker_init"])
@pytest.mark.parametrize("value", [3, "collate", [len]])
def test_a_function_must_be_callable(name: str, value):
    with pytest.raises(ConfigError, match=f"{name} must be callable"):
        made(Numbers, **{name: value})


@pytest.mark.parametrize("value", [0, -1.0, "long", math.nan, True])
def test_a_timeout_must_be_seconds_above_0(value):
    with pytest.raises(ConfigError, match="timeout_s must be a number of seconds above 0"):
        made(Numbers, timeout_s=value)


@pytest.mark.parametrize("name", ["benchmark_file", "trace_file", "replay_file"])
def test_a_file_must_be_a_path(name: str):
    with pytest.raises(ConfigError, match=f"{name} must be a path"):
        made(Numbers, **{name: 5})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("nerby_shuffle", "nearby_shuffle"),
        ("seed_nummer", "seed_numer"),
        ("colate_fn", "collate_fn"),
        ("dataqueue_size", "data_queue_size"),
        ("num_worker_threads", "worker_threads"),
        ("suffle", "shuffle"),
        ("dataset_args", "dataset_kwargs"),
    ],
)
def test_a_misspelt_keyword_is_refused_with_the_nearest_name(written: str, meant: str):
    with pytest.raises(ConfigError, match=f"no argument '{written}'; did you mean '{meant}'"):
        made(Numbers, **{written: 1})


def test_an_unknown_keyword_is_refused_with_all_names_by_what_they_are_about():
    with pytest.raises(ConfigError, match=r"no argument 'zzz', nor one with a name like it") as caught:
        made(Numbers, zzz=1)
    told = set(re.findall(r"\w+", str(caught.value)))
    assert set(DESIGNED) - {"seed_numer", "seed_number"} <= told
    assert re.search(r"^  failures: on_error, .*timeout_s$", str(caught.value), re.MULTILINE)


def test_what_is_missing_is_told_with_what_it_is():
    with pytest.raises(ConfigError, match=r"^SwiftLoader lacks nb_consumer \(GPUs, or ranks.*, worker_per_consumer \("):
        SwiftLoader(Numbers, {}, 4)
    with pytest.raises(ConfigError, match=r"lacks dataset_kwargs .* For a dataset that exists already.*from_dataset\("):
        SwiftLoader(Numbers(3), batch_size=4)
    with pytest.raises(ConfigError, match=r"^SwiftLoader.from_dataset lacks nb_consumer .*, worker_per_consumer \("):
        SwiftLoader.from_dataset(Numbers(3), batch_size=4)
    with pytest.raises(ConfigError, match=r"^DataLoader lacks dataset_params \(.*\), nb_worker \("):
        DataLoader(Numbers, batch_size=4)


def test_all_of_torchs_words_are_told_at_once_and_what_is_missing_too():
    dataset = Numbers(3)
    with pytest.raises(ConfigError) as caught:
        SwiftLoader(dataset, batch_size=4, num_workers=2, pin_memory=True, persistent_workers=True)
    lines = str(caught.value).splitlines()
    assert [line.split("'")[1] for line in lines[:3]] == ["num_workers", "pin_memory", "persistent_workers"]
    assert "here it is worker_per_consumer (of one rank in both" in lines[0]
    assert lines[3].startswith("SwiftLoader lacks dataset_kwargs")


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("device", "SwiftLoader.start(consumer_index, device, to_device) takes it"),
        ("nb_worker_per_consumer", "here it is worker_per_consumer"),
        ("generator", "here it is seed (your process's generators are neither read nor moved on)"),
        ("pin_memory", "given by the device in loader.start(rank, device); nothing to set"),
        ("sampler", "here it is plan (an order is a function"),
        ("dataset_params", "here it is dataset_kwargs"),
    ],
)
def test_a_word_that_others_have_is_told_with_ours(word: str, told: str):
    with pytest.raises(ConfigError) as caught:
        made(Numbers, **{word: 1})
    assert f"SwiftLoader has no argument {word!r}: {told}" in str(caught.value)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("num_workers", "here it is nb_worker (of one rank in both"),
        ("sampler", "here it is SwiftLoader's plan (an order"),
        ("seed", "only SwiftLoader has it"),
        ("pin_memory_device", "given by device"),
    ],
)
def test_the_other_loader_tells_it_in_its_own_words(word: str, told: str):
    with pytest.raises(ConfigError) as caught:
        DataLoader(Numbers, {}, 4, 0, **{word: 1})
    assert f"DataLoader has no argument {word!r}: {told}" in str(caught.value)


def test_two_spellings_of_the_seed_at_once_are_refused():
    with pytest.raises(ConfigError, match="seed was given twice, as seed and seed_number"):
        made(Numbers, seed=1, seed_number=1)


def test_a_seed_too_large_is_refused():
    with pytest.raises(ConfigError, match="seed_numer must be below"):
        made(Numbers, seed=None, seed_numer=1 << 64)


@pytest.mark.parametrize("alone", ["batch_encoder", "batch_decoder"])
def test_an_encoder_without_a_decoder_is_refused(alone: str):
    with pytest.raises(ConfigError, match="give both or none"):
        made(Numbers, **{alone: bytes})


def test_settings_that_exclude_each_other_are_refused():
    with pytest.raises(ConfigError, match="ragged='list' is a way of the default collate"):
        made(Numbers, ragged="list", collate_fn=list)
    with pytest.raises(ConfigError, match="needs the methods step_count, indices and fingerprint"):
        made(Numbers, plan=[[0, 1]])


@pytest.mark.parametrize("dataset_class", [None, 5, Numbers(3), "Numbers"])
def test_a_dataset_class_must_be_a_class(dataset_class):
    with pytest.raises(ConfigError, match=r"must be a class.*from_dataset"):
        made(dataset_class)


@pytest.mark.parametrize("kwargs", [[1], "x", {1: 2}])
def test_dataset_kwargs_must_be_keyword_arguments(kwargs):
    with pytest.raises(ConfigError, match="dataset_kwargs must be a dict"):
        SwiftLoader(Numbers, kwargs, 4, 1, 1)


@pytest.mark.parametrize("dataset_class", [Iterates, TorchIterable])
def test_an_iterable_dataset_is_refused_with_the_way_out(dataset_class: type):
    with pytest.raises(ConfigError, match=r"cannot be asked for a sample by index.*shards"):
        made(dataset_class)
    with pytest.raises(ConfigError, match="shards"):
        SwiftLoader.from_dataset(dataset_class(), 4, 1, 1)


@pytest.mark.parametrize("dataset_class", [WithoutLength, TorchWithoutLength])
def test_a_dataset_without_a_length_is_refused(dataset_class: type):
    with pytest.raises(ConfigError, match="has no __len__"):
        made(dataset_class)
    with pytest.raises(ConfigError, match="has no __len__"):
        SwiftLoader.from_dataset(dataset_class(), 4, 1, 1)


@pytest.mark.parametrize("index", [-1, 2, 10**9])
def test_a_consumer_index_out_of_range_is_refused(index: int):
    with pytest.raises(ConfigError, match=f"consumer_index must be from 0 to 1 with nb_consumer=2, not {index}"):
        made(Numbers, nb_consumer=2).start(index)


@pytest.mark.parametrize("index", [True, False, None, 0.0, "0"])
def test_a_consumer_index_must_be_a_whole_number(index):
    with pytest.raises(ConfigError, match="consumer_index must be a whole number"):
        made(Numbers, nb_consumer=2).start(index)


def test_whole_numbers_may_be_numpys():
    one = np.int64(1)
    with SwiftLoader(Numbers, {"count": 40}, np.uint8(4), 2 * one, 0 * one, shuffle=False, seed=one) as loader:
        loader.start(one, "cpu")
        loader.set_epoch(one)
        loader.sampler.set_epoch(one)
        assert flat(loader) == list(range(20, 40))
        assert loader.state_dict()["epoch"] == 2
    with DataLoader(Numbers, {"count": 8}, 4, one, max_queue_size=one, gpu_indices=[0 * one]) as loader:
        assert flat(loader) == list(range(8))


def test_a_consumer_index_that_was_refused_can_be_put_right():
    with made(Numbers, {"count": 10}) as loader:
        with pytest.raises(ConfigError):
            loader.start(7)
        loader.start(0)
        assert sorted(flat(loader)) == list(range(10))


@pytest.mark.parametrize("device", ["gpu9", object(), 1.5])
def test_a_device_that_is_none_is_refused(device):
    with made(Numbers) as loader, pytest.raises(ConfigError, match="device must be"):
        loader.start(0, device)


def test_a_to_device_that_cannot_be_called_is_refused():
    with made(Numbers) as loader, pytest.raises(ConfigError, match="to_device must be callable"):
        loader.start(0, None, "cuda")


def test_starting_twice_is_refused_and_the_loader_goes_on():
    with started(Numbers, {"count": 10}) as loader:
        with pytest.raises(ConfigError, match="called already"):
            loader.start(0)
        assert sorted(flat(loader)) == list(range(10))


def test_iterating_before_start_says_what_to_call():
    loader = made(Numbers, nb_consumer=2)
    with pytest.raises(ConfigError, match=r"which of the 2 consumers.*loader\.start\(consumer_index"):
        next(iter(loader))


def test_iterating_before_start_starts_a_single_consumer_by_itself():
    with made(Numbers, {"count": 10}) as loader:
        assert sorted(flat(loader)) == list(range(10))


@pytest.mark.parametrize("workers", [0, 2])
def test_what_would_go_on_after_close_says_that_it_was_closed(workers: int):
    loader = made(Numbers, worker_per_consumer=workers)
    loader.start(0)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    loader.close()
    loader.close()
    assert loader.state_dict() == state  # frameworks may save it late
    assert loader.statistics()["batches"] == 1
    uses = (
        lambda: next(iterator),
        lambda: next(iter(loader)),
        lambda: loader.start(0),
        lambda: loader.set_epoch(1),
        lambda: loader.load_state_dict(state),
    )
    for use in uses:
        with pytest.raises(LoaderClosed, match="closed"):
            use()
    assert "closed" in repr(loader)


def test_a_loader_closed_before_it_was_started_cannot_be_started():
    loader = made(Numbers)
    loader.close()
    with pytest.raises(LoaderClosed):
        loader.start(0)


@pytest.mark.parametrize("epoch", [-1, 1.0, "1", True, None])
def test_set_epoch_wants_a_whole_number(epoch):
    with started(Numbers, worker_per_consumer=0) as loader, pytest.raises(ConfigError, match="set_epoch takes"):
        loader.set_epoch(epoch)


@pytest.mark.parametrize(
    "settings", [{}, {"nearby_shuffle": 0}, {"shuffle": False, "elastic": True, "random_per": "sample"}]
)
def test_several_consumers_that_draw_alike_cannot_agree_without_a_seed_and_are_told_the_ways(settings: dict):
    ways = r"no process group is initialised.*Give seed=.*or call torch.distributed.init_process_group in 2 ranks.*once"
    with pytest.raises(ConfigError, match=ways):
        made(Numbers, nb_consumer=2, seed=None, **settings).start(0)


@pytest.mark.parametrize(
    "settings", [{"shuffle": False}, {"plan": EpochPlan(sample_count=12, batch_size=4, consumer_count=3)}]
)
def test_several_consumers_need_no_seed_where_it_decides_no_order(settings: dict):
    found = []
    for consumer in range(3):
        given = {"nb_consumer": 3, "seed": None, "worker_per_consumer": 0, "batch_size": 4, **settings}
        with made(Numbers, {"count": 12}, **given) as loader:
            loader.start(consumer)
            found += flat(loader)
    assert sorted(found) == list(range(12))


def test_consumers_without_a_seed_go_on_each_with_the_random_numbers_that_it_drew():
    given = {"nb_consumer": 2, "seed": None, "worker_per_consumer": 0, "shuffle": False}
    with made(Random, {"count": 40}, **given) as loader:
        loader.start(1)
        whole = [plain(batch) for batch in loader]
        state = {**loader.state_dict(), "epoch": 0, "step": 1}
    with made(Random, {"count": 40}, **given) as loader:
        loader.load_state_dict(state)
        loader.start(1)
        assert [plain(batch) for batch in loader] == whole[1:]


def test_a_started_loader_cannot_be_pickled():
    import pickle

    with started(Numbers) as loader, pytest.raises(ConfigError, match=r"send it before start"):
        pickle.dumps(loader)


def test_a_function_that_holds_a_started_loader_is_told_how_to_do_without():
    class Module:
        def __init__(self, loader: SwiftLoader) -> None:
            self.count, self.trainer = 3, [loader]

        def other(self) -> SwiftLoader:
            return made(lambda: Numbers(self.count))

    told = r"cannot be sent.*a function that uses `self`.*folder = self.folder"
    with started(Numbers, worker_per_consumer=0) as loader, pytest.raises(ConfigError, match=told):
        Module(loader).other().start(0)


def test_last_batch_mask_before_the_first_batch_says_so():
    with started(Numbers, worker_per_consumer=0) as loader, pytest.raises(ConfigError, match="none was"):
        _ = loader.last_batch_mask


def test_every_error_of_ours_is_a_swift_loader_error():
    for wrong in ({"batch_size": 0}, {"zzz": 1}, {"seed": -1}):
        with pytest.raises(SwiftLoaderError):
            made(Numbers, **wrong)
