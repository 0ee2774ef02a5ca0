"""Datasets that cannot be sent, built, asked or batched: each has an error of its own, in time, and nothing is left."""

from __future__ import annotations

import socket
import sys
import threading
import types

import pytest
from torch.utils.data import DataLoader

from swift_loader import ConfigError, DataError, LayoutError, SwiftLoader, WorkerDied, WorkerStartFailed
from tests.api.given import (
    Changing,
    Odd,
    Wraps,
    as_bytes,
    fails_for_7,
    generator_of,
    make_no_dataset,
    make_without_length,
)
from tests.datasets import (
    CannotBeBuilt,
    DiesWhenBuilt,
    Failing,
    Holding,
    LengthByWorker,
    Numbers,
    Ragged,
    Records,
    Unbatchable,
    calls,
)
from tests.loaders import made, started
from tests.slow import start_methods
from tests.watching import flat, until

METHODS = start_methods
COUNTS = pytest.mark.parametrize("count", [0, 2])


@METHODS
def test_a_dataset_whose_init_raises_is_told_with_its_traceback(method: str):
    with pytest.raises(WorkerStartFailed, match="could not build the dataset: FileNotFoundError: /no/such") as raised:
        made(CannotBeBuilt, start_method=method).start(0)
    assert isinstance(raised.value.__cause__, FileNotFoundError)
    assert "in __init__" in str(raised.value.__cause__.__cause__)


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_a_shared_dataset_whose_init_raises_is_told_with_its_traceback(method: str):
    with pytest.raises(WorkerStartFailed, match="could not build the dataset: FileNotFoundError: /no/such"):
        made(CannotBeBuilt, start_method=method, share_dataset=True).start(0)


def test_without_workers_a_dataset_whose_init_raises_is_told_alike():
    with pytest.raises(WorkerStartFailed, match="could not build the dataset: FileNotFoundError: /no/such") as raised:
        made(CannotBeBuilt, worker_per_consumer=0).start(0)
    assert isinstance(raised.value.__cause__, FileNotFoundError)


def test_wrong_dataset_kwargs_are_told_with_pythons_words():
    with pytest.raises(WorkerStartFailed, match=r"TypeError.*unexpected keyword argument 'cuont'"):
        made(Numbers, {"cuont": 3}).start(0)


def test_a_dataset_that_kills_its_worker_when_it_is_built_is_not_built_for_ever(tmp_path):
    with pytest.raises(WorkerDied, match=r"exited with code 9 while it builds the dataset; it was started 3 times"):
        made(DiesWhenBuilt, {"folder": str(tmp_path)}, worker_per_consumer=1).start(0)
    assert len(calls(tmp_path)) == 3


NO_BATCH = {
    "an empty dataset": ({"count": 0}, {}, r"Numbers is empty, its len\(\) is 0"),
    "an empty dataset in order": ({"count": 0}, {"shuffle": False, "in_order": False}, "Numbers is empty"),
    "too few for a batch": ({"count": 7}, {"drop_last": True}, "no batch is left of 7 samples with batch_size=8"),
    "too few for all": ({"count": 2}, {"nb_consumer": 3, "even": "drop"}, "no batch is left of 2 samples"),
    "of three": ({"count": 0}, {"nb_consumer": 3, "elastic": True}, "Numbers is empty"),
    "kept": ({"count": 0}, {"cache_setting": {"medium": "memory", "nbytes": 1 << 20}}, "Numbers is empty"),
    "in rotation": ({"count": 0}, {"rotation_setting": {"medium": "memory", "rotation": 2}}, "Numbers is empty"),
}


@COUNTS
@pytest.mark.parametrize("way", NO_BATCH)
def test_where_there_is_no_batch_each_epoch_is_over_at_once_and_start_says_so(way: str, count: int):
    kwargs, settings, told = NO_BATCH[way]
    with made(Numbers, kwargs, worker_per_consumer=count, **settings) as loader:
        with pytest.warns(UserWarning, match=told) as warned:
            loader.start(0)
        assert [warning.filename for warning in warned] == [__file__]
        assert [list(loader) for _ in range(3)] == [[], [], []]
        assert len(loader) == 0
        assert loader
        state = loader.state_dict()
        assert (state["epoch"], state["step"]) == (3, 0)
        loader.set_epoch(9)
        assert list(loader) == []
        loader.load_state_dict(state)
        assert list(loader) == []
        assert loader.state_dict()["epoch"] == 4


def test_a_dataset_that_was_given_may_be_empty_as_for_torch():
    with pytest.warns(UserWarning, match="list is empty"), SwiftLoader.from_dataset([], 4, 1, 0) as loader:
        assert list(DataLoader([], batch_size=4)) == list(loader) == []


def test_tuning_for_nothing_is_refused():
    with pytest.warns(UserWarning, match="is empty"), pytest.raises(ConfigError, match="there is nothing to tune"):
        made(Numbers, {"count": 0}).tune(seconds=1)


def test_a_class_where_a_dataset_is_wanted_is_told_with_both_ways():
    with pytest.raises(ConfigError, match=r"Numbers is a class: SwiftLoader\(Numbers, .*from_dataset\(Numbers\(\.\.\."):
        SwiftLoader.from_dataset(Numbers, 4, 1, 1)


@COUNTS
def test_fewer_samples_than_consumers_repeat_and_say_so(count: int):
    given = {"nb_consumer": 3, "consumer": 2, "worker_per_consumer": count}
    with pytest.warns(UserWarning, match="repeat"):  # noqa: SIM117 - only what warns belongs in there
        with started(Numbers, {"count": 2}, **given) as loader:
            ((numbers, mask),) = [(batch.tolist(), loader.last_batch_mask.tolist()) for batch in loader]
    assert numbers[0] in (0, 1)
    assert mask == [False]


@COUNTS
def test_a_function_that_makes_no_dataset_is_refused(count: int):
    with pytest.raises(ConfigError, match=r"int has no __getitem__.*map-style"):
        made(make_no_dataset, worker_per_consumer=count).start(0)


@COUNTS
def test_a_function_that_makes_a_dataset_without_a_length_is_refused(count: int):
    with pytest.raises(ConfigError, match="has no __len__"):
        made(make_without_length, worker_per_consumer=count).start(0)


def test_a_getattr_that_asks_itself_while_it_is_unpickled_is_explained():
    told = r"RecursionError.*has a __getattr__ that asks an attribute of self.*raise AttributeError\(name\)"
    with pytest.raises(WorkerStartFailed, match=told):
        SwiftLoader.from_dataset(Wraps([1, 2]), 2, 1, 1).start(0)


def test_a_generator_cannot_be_sent_and_the_error_names_the_ways_out():
    refusal = r"cannot be sent to worker processes: .*generator.*start_method='fork'"
    with pytest.raises(ConfigError, match=refusal):
        SwiftLoader.from_dataset(Holding(x for x in range(3)), 4, 1, 2).start(0)
    with pytest.raises(ConfigError, match="cannot be sent to worker processes"):
        made(Holding, {"held": (x for x in range(3))}).start(0)


def test_a_socket_cannot_be_sent():
    with socket.socket() as connection, pytest.raises(ConfigError, match=r"cannot be sent to worker processes.*socket"):
        made(Holding, {"held": connection}).start(0)


@pytest.mark.parametrize("kind", ["lock", "open file"])
def test_what_holds_a_lock_or_an_open_file_is_sent_or_refused_but_never_hangs(kind: str, tmp_path):
    path = tmp_path / "file"
    path.write_text("some text")
    with path.open() as file:
        held = threading.Lock() if kind == "lock" else file
        with SwiftLoader.from_dataset(Holding(held), 4, 1, 2, shuffle=False) as loader:
            try:
                loader.start(0)
            except ConfigError as error:
                refusal = str(error)
            else:
                refusal = ""
                assert flat(loader) == list(range(16))
    assert refusal == "" or "cannot be sent to worker processes" in refusal


def _class_of_a_module_without_a_file(monkeypatch, name: str) -> type:
    module = types.ModuleType(name)
    exec("class Set:\n    __len__ = lambda self: 3\n    __getitem__ = lambda self, i: i", vars(module))
    module.Set.__module__ = module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.Set


def test_a_class_of_a_module_that_was_made_here_is_known_to_workers(monkeypatch):
    dataset_class = _class_of_a_module_without_a_file(monkeypatch, "only_in_this_process")
    with made(dataset_class, shuffle=False) as loader:
        loader.start(0)
        assert flat(loader) == [0, 1, 2]


def test_a_class_that_workers_cannot_find_is_told_by_name(monkeypatch):
    dataset_class = _class_of_a_module_without_a_file(monkeypatch, "json.only_in_this_process")
    with pytest.raises(WorkerStartFailed, match=r"ModuleNotFoundError: No module named 'json.only_in_this_process'"):
        made(dataset_class).start(0)


def test_a_length_that_differs_between_workers_is_an_error():
    with (
        pytest.raises(ConfigError, match=r"len\(\) is 65 in swift-worker-c0w1 and 64 in the first"),
        started(LengthByWorker) as loader,
    ):
        until(lambda: list(loader) is None)


@COUNTS
@pytest.mark.parametrize("bad", [0, 9, 15])
def test_a_sample_that_raises_is_named_and_the_loader_goes_on(count: int, bad: int):
    given = {"worker_per_consumer": count, "shuffle": False, "batch_size": 4, "validate": False}
    with started(Failing, {"bad": (bad,), "times": 1}, **{**given, "worker_per_consumer": min(count, 1)}) as loader:
        iterator, guilty = iter(loader), bad // 4
        found = [next(iterator).tolist() for _ in range(guilty)]
        with pytest.raises(DataError, match=f"fetch of sample {bad} .*epoch 0, step {guilty}"):
            next(iterator)
        found += [next(iterator).tolist() for _ in range(3 - guilty)]
        assert [value for batch in found for value in batch] == [
            number for number in range(16) if number // 4 != guilty
        ]
        with pytest.raises(StopIteration):
            next(iterator)
        assert flat(loader) == list(range(16))


@COUNTS
@pytest.mark.parametrize("how", ["unpicklable", "unloadable", "stop", "huge", "no text", "key"])
def test_an_error_that_is_hard_to_carry_still_arrives(how: str, count: int):
    names = {"unpicklable": "RuntimeError", "unloadable": "NeedsTwo", "stop": "StopIteration", "huge": "ValueError",
             "no text": "WithoutText", "key": "KeyError"}  # fmt: skip
    with (
        started(Odd, {"how": how}, worker_per_consumer=count, validate=False) as loader,
        pytest.raises(DataError, match=f"fetch of sample [0-7] raised {names[how]}") as raised,
    ):
        next(iter(loader))
    original = raised.value.__cause__
    assert "__getitem__" in str(original if original.__cause__ is None else original.__cause__)
    assert len(str(raised.value)) < 100_000


@COUNTS
def test_samples_that_do_not_fit_each_other_are_named(count: int):
    with (
        pytest.raises(LayoutError, match=r"sample 1, \['boxes'\], has shape \(2, 4\).*sample, 0, has shape \(1, 4\)"),
        started(Ragged, shuffle=False, worker_per_consumer=count) as loader,
    ):
        next(iter(loader))


@COUNTS
def test_a_sample_that_cannot_be_batched_is_told_with_the_way_out(count: int):
    with (
        started(Unbatchable, worker_per_consumer=count, validate=False) as loader,
        pytest.raises(LayoutError, match=r"what.* is a set, which the default collate cannot batch.*collate_fn"),
    ):
        next(iter(loader))


@COUNTS
@pytest.mark.parametrize("other", [{"y": 1}, {"x": 1, "y": 1}, 5, None, [1], {"x": "text"}, {"x": [1]}, {}])
def test_a_sample_of_another_structure_is_named(other, count: int):
    with (
        started(Changing, {"other": other}, worker_per_consumer=count, shuffle=False) as loader,
        pytest.raises(LayoutError, match=r"sample 11.*epoch 0, step 1"),
    ):
        list(loader)


@COUNTS
def test_a_collate_that_fails_is_told_and_the_loader_goes_on(count: int):
    given = {"collate_fn": fails_for_7, "worker_per_consumer": count, "shuffle": False, "batch_size": 4}
    with started(Records, {"count": 16}, **given) as loader:
        iterator = iter(loader)
        assert next(iterator) == 4
        with pytest.raises(DataError, match=r"collate_fn raised ZeroDivisionError.*epoch 0, step 1") as raised:
            next(iterator)
        assert "fails_for_7" in "".join(map(str, (raised.value.__cause__, raised.value.__cause__.__cause__)))
        assert [next(iterator), next(iterator)] == [4, 4]


@COUNTS
@pytest.mark.parametrize("encoder", [lambda batch: 1 // 0, lambda batch: "text", lambda batch: None])
def test_an_encoder_that_fails_is_told(encoder, count: int):
    with (
        started(Numbers, batch_encoder=encoder, batch_decoder=len, worker_per_consumer=count, validate=False) as loader,
        pytest.raises(DataError, match="batch_encoder raised"),
    ):
        next(iter(loader))


@COUNTS
def test_a_decoder_that_fails_raises_its_own_error_and_the_loader_goes_on(count: int):
    def decode(data: bytes) -> int:
        return 4 // (len(data) - 8)

    given = {"batch_encoder": as_bytes, "batch_decoder": decode, "shuffle": False}
    with started(Numbers, {"count": 12}, worker_per_consumer=count, **given) as loader:
        iterator = iter(loader)
        with pytest.raises(ZeroDivisionError):
            next(iterator)
        assert next(iterator) == -1  # the four of the last batch


@COUNTS
def test_a_to_device_that_fails_raises_its_own_error(count: int):
    with made(Numbers, worker_per_consumer=count) as loader:
        loader.start(0, None, lambda batch, device: 1 // 0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                next(iter(loader))


@COUNTS
def test_a_batch_that_cannot_be_pickled_is_told(count: int):
    with (
        started(Numbers, collate_fn=generator_of, worker_per_consumer=count, validate=False) as loader,
        pytest.raises(DataError, match=r"the batch is a generator, which cannot be sent .*generator"),
    ):
        next(iter(loader))


@COUNTS
def test_a_batch_that_loses_all_its_samples_is_an_error(count: int):
    given = {"worker_per_consumer": count, "shuffle": False, "batch_size": 4, "on_error": "skip"}
    with started(Failing, {"bad": (4, 5, 6, 7)}, **given) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(DataError, match="all 4 samples of the batch failed"):
            next(iterator)
        assert next(iterator).tolist() == [8, 9, 10, 11]


def test_a_worker_init_that_fails_is_told():
    with pytest.raises(WorkerStartFailed, match="ZeroDivisionError"):
        made(Numbers, worker_init=lambda info: 1 // 0).start(0)
