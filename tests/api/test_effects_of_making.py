"""Arguments that decide how batches are made: each has its effect, seen in batches, processes, files and calls."""

from __future__ import annotations

import json
import os
import threading
from itertools import islice

import numpy as np
import psutil
import pytest
import torch

from swift_loader import (
    ConfigError,
    DataError,
    LayoutError,
    NoRoom,
    PoisonedTicket,
    SwiftLoader,
    WorkerError,
    WorkerInfo,
    WorkerStartFailed,
)
from tests.api.given import Generating, InfiniteAtSix, NotedFailure, as_text, encode, make_numbers
from tests.datasets import (
    BothInOneSet,
    Deadly,
    Failing,
    Hangs,
    Noted,
    Numbers,
    Pictures,
    Ragged,
    Records,
    Slow,
    Surroundings,
    calls,
    note,
)
from tests.deadly_datasets import Leaks
from tests.loaders import made, started, stream
from tests.slow import slow
from tests.watching import flat, until, workers

# What is given to dataset_class and batch_size stands in the tests of streams; here are the named keywords.


def test_dataset_class_may_be_a_function_that_makes_the_dataset():
    assert stream(make_numbers, {"count": 16}) == stream(Numbers, {"count": 16})


def test_dataset_kwargs_reach_the_dataset():
    assert len(stream(Numbers, {"count": 80})) == 10


@pytest.mark.parametrize("given", [[3, 1, 2], Numbers(9), "text", torch.arange(12), np.arange(12)])
@pytest.mark.parametrize("count", [0, 2])
def test_from_dataset_takes_a_dataset_that_exists(given, count: int):
    with SwiftLoader.from_dataset(given, 4, 1, count, shuffle=False) as loader:
        loader.start(0)
        found = [sample for batch in loader for sample in (batch if isinstance(batch, list) else batch.tolist())]
    assert found == [getattr(sample, "item", lambda s=sample: s)() for sample in (given[i] for i in range(len(given)))]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_worker_per_consumer_is_the_number_of_processes(count: int):
    with started(Numbers, worker_per_consumer=count) as loader:
        next(iter(loader))
        until(lambda: len(workers()) == count, "that many workers")
        list(loader)
        assert len(workers()) == count


@pytest.mark.parametrize("count", [0, 2])
def test_collate_fn_makes_the_batch(count: int):
    with started(Numbers, {"count": 10}, collate_fn=as_text, worker_per_consumer=count, shuffle=False) as loader:
        assert list(loader) == ["0,1,2,3,4,5,6,7", "8,9"]


def test_collate_fn_none_is_the_default_collate():
    with started(Records, {"count": 8}, collate_fn=None, shuffle=False) as loader:
        batch = next(iter(loader))
    assert torch.equal(batch["i"], torch.arange(8))
    assert batch["x"].shape == (8, 5)
    assert batch["x"].dtype == torch.float32
    assert batch["name"] == [f"sample {i}" for i in range(8)]


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("collate", [None, list])
def test_batch_encoder_and_batch_decoder_carry_the_batch(count: int, collate):
    decoded = []

    def decode(data: bytes) -> list[int]:
        assert isinstance(data, bytes)
        decoded.append(data)
        return list(data)

    options = {"batch_encoder": encode, "batch_decoder": decode, "worker_per_consumer": count, "collate_fn": collate}
    with started(Numbers, {"count": 16}, shuffle=False, **options) as loader:
        assert list(loader) == [list(range(8)), list(range(8, 16))]
    assert decoded == [bytes(range(8)), bytes(range(8, 16))]


def test_multithread_is_a_telecom_thread_per_worker_or_one_for_all():
    def threads(**settings) -> int:
        with started(Numbers, worker_per_consumer=3, **settings) as loader:
            next(iter(loader))
            return sum(thread.name.startswith("swift-telecom-c0w") for thread in threading.enumerate())

    assert threads() == threads(multithread=True) == 3
    assert threads(multithread=False) == 1


def test_validate_true_starts_other_workers_once_the_dataset_is_known_to_build(tmp_path):
    with started(Noted, {"folder": str(tmp_path), "count": 640}, worker_per_consumer=3, shuffle=False) as loader:
        assert flat(loader) == list(range(640))
        until(lambda: len(calls(tmp_path, "init")) == 3, "all workers")
    happened = calls(tmp_path)
    first, second, _ = (call for call in happened if call.what == "init")
    assert first.pid != second.pid
    made_by = {call.index: call.pid for call in reversed(happened) if call.what == "get"}
    assert {made_by[index] for index in range(8)} == {first.pid}  # the first batch, which is handed out like any other
    assert sum(call.index == 0 for call in happened if call.what == "get") <= 2  # and once more for the next epoch


def test_validate_true_starts_no_second_worker_where_the_dataset_cannot_be_built(tmp_path):
    with pytest.raises(WorkerStartFailed, match="RuntimeError: no disc"):
        made(NotedFailure, {"folder": str(tmp_path)}, worker_per_consumer=4).start(0)
    assert len(calls(tmp_path, "init")) == 1


def test_validate_true_has_start_raise_what_is_wrong_with_the_first_batch():
    loader = made(Failing, {"bad": (2,)}, shuffle=False)
    with pytest.raises(DataError, match="fetch of sample 2 raised OSError: disc error at 2"):
        loader.start(0)


def test_validate_false_leaves_it_to_the_first_batch():
    with (
        started(Failing, {"bad": (2,)}, shuffle=False, validate=False) as loader,
        pytest.raises(DataError, match="sample 2"),
    ):
        next(iter(loader))


@pytest.mark.parametrize("validate", [True, False])
def test_validate_works_for_sets_smaller_than_a_batch(validate: bool):
    with started(Numbers, {"count": 3}, batch_size=32, validate=validate) as loader:
        assert sorted(flat(loader)) == [0, 1, 2]


def test_worker_threads_fetch_samples_at_the_same_time(tmp_path):
    kwargs = {"folder": str(tmp_path), "count": 24, "parties": 4}
    with started(BothInOneSet, kwargs, worker_threads=4, batch_size=12, worker_per_consumer=1, shuffle=False) as loader:
        assert flat(loader) == list(range(24))


def test_worker_threads_make_the_same_batches_as_one():
    assert stream(Records, {"count": 50}, worker_threads=3) == stream(Records, {"count": 50})


def test_worker_init_is_called_in_each_worker_with_what_it_is(tmp_path):
    def init(info: WorkerInfo) -> None:
        note(str(tmp_path), f"consumer{info.consumer}", info.worker)

    with started(Numbers, worker_init=init, worker_per_consumer=3, nb_consumer=2, consumer=1) as loader:
        list(loader)
        until(lambda: len(calls(tmp_path)) == 3, "three calls")
    told = calls(tmp_path)
    assert sorted((call.what, call.index) for call in told) == [("consumer1", 0), ("consumer1", 1), ("consumer1", 2)]
    assert len({call.pid for call in told} - {os.getpid()}) == 3


@pytest.mark.parametrize("method", ["forkserver", slow("fork")])
@pytest.mark.parametrize("share", [True, False])
def test_share_dataset_builds_it_once(share: bool, method: str, tmp_path):
    kwargs = {"folder": str(tmp_path), "count": 40}
    with started(Noted, kwargs, share_dataset=share, start_method=method, worker_per_consumer=3) as loader:
        assert sorted(flat(loader)) == list(range(40))
        expected = 1 if share else 3
        until(lambda: len(calls(tmp_path, "init")) >= expected, "building")
        until(lambda: len(workers()) == 3)
    assert len(calls(tmp_path, "init")) == expected


def test_share_dataset_with_spawn_is_refused():
    with pytest.raises(ConfigError, match=r"share_dataset=True.*start_method='spawn'"):
        made(Numbers, share_dataset=True, start_method="spawn")


@pytest.mark.parametrize("method", [None, "forkserver", "spawn", "fork"])
def test_start_method_decides_whose_children_workers_are(method: str | None):
    with started(Numbers, start_method=method, worker_per_consumer=1) as loader:
        next(iter(loader))
        (worker,) = until(workers)
        parent = worker.parent()
        assert parent is not None
        is_spawned = parent.pid == os.getpid()
        is_copy = worker.cmdline() == psutil.Process().cmdline()
    assert (is_spawned, is_copy) == {None: (False, False), "forkserver": (False, False), "spawn": (True, False)}.get(
        method, (False, True)
    )


def test_start_method_fork_is_refused_while_threads_run():
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="somebody-else")
    thread.start()
    try:
        with pytest.raises(ConfigError, match=r"fork.*threads run.*somebody-else.*leave start_method out"):
            made(Numbers, start_method="fork").start(0)
    finally:
        go_on.set()
        thread.join()


def test_allow_fork_forks_while_threads_run():
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="somebody-else")
    thread.start()
    try:
        with pytest.raises(ConfigError, match="allow_fork=True"):
            made(Numbers, start_method="fork").start(0)
        with started(Numbers, start_method="fork", allow_fork=True) as loader:
            assert sorted(flat(loader)) == list(range(64))
    finally:
        go_on.set()
        thread.join()


def test_start_method_fork_takes_what_cannot_be_sent():
    lines = (line for line in ["a", "b", "c"])
    with SwiftLoader.from_dataset(Generating(lines), 1, 1, 1, shuffle=False, start_method="fork") as loader:
        loader.start(0)
        assert [batch for (batch,) in loader] == ["a", "b", "c"]


@pytest.mark.parametrize("count", [0, 2])
def test_on_error_raise_raises_at_its_step_and_goes_on(count: int):
    given = {"worker_per_consumer": count, "batch_size": 4, "shuffle": False}
    for setting in ({}, {"on_error": "raise"}):
        with started(Failing, {"count": 20, "bad": (12,)}, **given, **setting) as loader:
            iterator = iter(loader)
            assert [next(iterator).tolist() for _ in range(3)][2] == [8, 9, 10, 11]
            expected = r"fetch of sample 12 raised OSError: disc error at 12 \(consumer 0, worker \d, epoch 0, step 3\)"
            with pytest.raises(DataError, match=expected) as raised:
                next(iterator)
            assert isinstance(raised.value.__cause__, OSError)
            assert "in __getitem__" in str(raised.value.__cause__.__cause__)
            assert next(iterator).tolist() == [16, 17, 18, 19]
            assert [batch.tolist() for batch in islice(loader, 3)][2] == [8, 9, 10, 11]


@pytest.mark.parametrize("count", [0, 2])
def test_on_error_skip_leaves_only_that_sample_out_and_counts_it(count: int):
    given = {"worker_per_consumer": count, "batch_size": 4, "shuffle": False, "on_error": "skip"}
    with started(Failing, {"bad": (5, 6)}, **given) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
        assert loader.statistics()["samples_skipped"] == 2


@pytest.mark.parametrize("count", [0, 2])
def test_max_skipped_is_how_many_may_be_left_out(count: int):
    given = {"worker_per_consumer": count, "batch_size": 4, "shuffle": False, "on_error": "skip"}
    with started(Failing, {"bad": (5, 9)}, max_skipped=1, **given) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [0, 1, 2, 3]
        assert next(iterator).tolist() == [4, 6, 7]
        with pytest.raises(DataError, match=r"(?s)2 samples were left out, more than max_skipped=1.*disc error at 9"):
            next(iterator)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("retries", [0, 1, 2])
def test_retries_is_how_often_a_sample_is_tried_again(count: int, retries: int):
    given = {"worker_per_consumer": count, "shuffle": False, "validate": False, "retries": retries}
    with started(Failing, {"bad": (3,), "times": 2}, **given) as loader:
        if retries < 2:
            with pytest.raises(DataError, match="sample 3"):
                list(loader)
        else:
            assert flat(loader) == list(range(16))


@pytest.mark.parametrize("attempts", [None, 1, 2])
def test_max_attempts_is_how_many_workers_a_batch_may_kill(attempts: int | None, tmp_path):
    given = {"worker_per_consumer": 2, "shuffle": False, "batch_size": 4, "max_attempts": attempts}
    with started(Deadly, {"folder": str(tmp_path), "how": "segfault", "count": 4000}, **given) as loader:
        with pytest.raises(PoisonedTicket, match="sample 13"):
            list(loader)
        # One more where the other worker took the batch over just before.
        assert len(calls(tmp_path, "dies")) - (attempts or 3) in (0, 1)


@pytest.mark.parametrize("count", [0, 2])
def test_ragged_decides_between_an_error_and_lists(count: int):
    for setting in ({}, {"ragged": "error"}):
        with pytest.raises(LayoutError, match=r"boxes.*\(2, 4\).*\(1, 4\).*collate_fn.*ragged='list'"):
            stream(Ragged, shuffle=False, worker_per_consumer=count, **setting)
    with started(Ragged, {"count": 8}, shuffle=False, ragged="list", worker_per_consumer=count) as loader:
        (batch,) = loader
    assert [tuple(boxes.shape) for boxes in batch["boxes"]] == [(1 + i % 3, 4) for i in range(8)]
    assert all((boxes == i).all() for i, boxes in enumerate(batch["boxes"]))
    assert torch.equal(batch["i"], torch.arange(8))


@pytest.mark.parametrize("count", [0, 2])
def test_check_finite_takes_a_sample_with_an_infinity_as_failed(count: int):
    given = {"worker_per_consumer": count, "batch_size": 4, "shuffle": False}
    with started(InfiniteAtSix, {"count": 8}, **given) as loader:
        assert [batch.isinf().sum().item() for batch in loader] == [0, 1]
    with started(InfiniteAtSix, {"count": 8}, check_finite=True, **given) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [0, 1, 2, 3]
        with pytest.raises(DataError, match=r"sample 6 has 1 of 1 values that are NaN or infinite.*step 1\)"):
            next(iterator)
    with started(InfiniteAtSix, {"count": 8}, check_finite=True, on_error="skip", **given) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 7]]


def test_memory_budget_is_what_slots_may_take():
    with started(Pictures, {"count": 640}, memory_budget=4 << 20, message_queue_size=1) as loader:
        for _ in loader:
            assert loader.statistics()["slot_bytes"] <= 4 << 20


def test_max_worker_nbytes_replaces_workers_that_grow():
    for most, replaced in ((None, False), (1 << 40, False), (40 << 20, True)):
        with started(Leaks, {"count": 128, "nbytes": 1 << 20}, max_worker_nbytes=most) as loader:
            assert sorted(index for batch in loader for index in batch["index"].tolist()) == list(range(128))
            assert bool(loader.statistics()["workers_recycled"]) is replaced


def test_max_batch_nbytes_refuses_larger_batches():
    with pytest.raises(NoRoom, match=r"524,\d+ bytes.*max_batch_nbytes.*500,000"):
        made(Pictures, max_batch_nbytes=500_000).start(0)
    assert len(stream(Pictures, {"count": 16}, max_batch_nbytes=600_000)) == 2


def test_max_batch_nbytes_is_a_quarter_of_the_budget():
    with pytest.raises(NoRoom, match=r"max_batch_nbytes.*250,000"):
        made(Pictures, memory_budget=1_000_000).start(0)


@pytest.mark.parametrize("ahead", [None, 1, 4])
def test_max_nb_batch_on_device_changes_no_batch(ahead: int | None):
    assert stream(Records, {"count": 40}, max_nb_batch_on_device=ahead) == stream(Records, {"count": 40})


def test_engine_local_is_the_default():
    assert stream(Numbers, engine="local") == stream(Numbers)
    with pytest.raises(ConfigError, match="engine must be 'local', 'ray' or a RayEngine, not 'dask'"):
        made(Numbers, engine="dask")


@pytest.mark.filterwarnings("ignore:swift-worker:RuntimeWarning")  # that it stands still, which other tests are about
def test_timeout_s_is_how_long_a_worker_may_make_no_progress(tmp_path):
    given = {"shuffle": False, "timeout_s": 0.5, "worker_per_consumer": 1}
    with started(Hangs, {"folder": str(tmp_path), "times": 1}, **given) as loader:
        assert flat(loader) == list(range(32))
    assert len(calls(tmp_path, "hangs")) == 1


@pytest.mark.filterwarnings("ignore:swift-worker:RuntimeWarning")  # that it stands still, which other tests are about
def test_timeout_s_names_a_sample_that_always_hangs(tmp_path):
    given = {"shuffle": False, "timeout_s": 0.5, "max_attempts": 2, "worker_per_consumer": 1}
    with (
        started(Hangs, {"folder": str(tmp_path), "count": 4000}, **given) as loader,
        pytest.raises(WorkerError, match="sample 13"),
    ):
        list(loader)
    assert len(calls(tmp_path, "hangs")) == 2


def test_timeout_s_changes_nothing_for_those_who_are_in_time():
    assert stream(Slow, {"count": 16, "seconds": 0.01}, timeout_s=1) == stream(Slow, {"count": 16, "seconds": 0.01})


def test_workers_do_arithmetic_with_one_thread_each():
    for method in ("forkserver", "spawn"):
        with started(Surroundings, start_method=method) as loader:
            told = [json.loads(text) for batch in loader for text in batch]
        assert {(one["omp"], one["openblas"], one["mkl"]) for one in told} == {("1", "1", "1")}


@pytest.mark.parametrize("count", [0, 2])
def test_cache_setting_keeps_samples_so_that_each_is_asked_for_once(count: int, tmp_path):
    kept = {"prefix": tmp_path / "made" / "kept"}
    given = {"folder": str(tmp_path), "count": 32}
    epochs = stream(Noted, given, epochs=2, cache_setting=kept, worker_per_consumer=count)
    assert epochs == stream(Numbers, {"count": 32}, epochs=2)
    assert sorted(call.index for call in calls(tmp_path, "get")) == list(range(32))
