"""DataLoader and AsyncDataLoader: the documents' code as written, and the effect of every argument."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time
from collections import Counter

import pytest
import torch

from swift_loader import AsyncDataLoader, ConfigError, DataLoader, NoRoom
from tests.api.given import Seeing, YourDataset
from tests.datasets import Noted, Numbers, Pictures, calls
from tests.watching import flat, settled, until, workers

#: As they stand in the documents, but for the import line.
SYNC = """
async_dataloader = DataLoader(
    dataset_class=SuitableDataset, #pass the dataset class here, not the object
    dataset_params=params, # keyword arguments used to construct dataset object here 
    batch_size=128, # specify the batch size of the data loader here
    nb_worker=1, # specify the number of worker processes to load from the dataset
    shuffle=True, # whether to perform shuffling
)

# then use this data loader like any other loaders:
for samples in async_dataloader:
    # perform processing here with the samples
"""  # noqa: W291
ASYNC = """
async_dataloader = AsyncDataLoader(
    dataset_class=SuitableDataset, #pass the dataset class here, not the object
    dataset_params=params, # keyword arguments used to construct dataset object here 
    batch_size=128, # specify the batch size of the data loader here
    nb_servers=1, # specify the number of processes (TCP servers) to serve the dataset. More servers consume more CPUs but also faster
    shuffle=True, # whether to perform shuffling
)

# then use this data loader like any other loaders:
for samples in async_dataloader:
    # perform processing here with the samples
"""  # noqa: E501, W291
SUITABLE = """
class SuitableDataset(YourDataset):
    def __init__(self, **kwargs):
        super().__init__(kwargs['param1'], kwargs['param2'])
"""
#: Of document 000, in order, with their defaults.
ARGUMENTS = {
    "dataset_class": inspect.Parameter.empty, "dataset_params": inspect.Parameter.empty,
    "batch_size": inspect.Parameter.empty, "nb_worker": inspect.Parameter.empty, "max_minibatch_length": None,
    "max_queue_size": 20, "prefetch_time": None, "shuffle": False, "device": None, "pin_memory": False,
    "gpu_indices": None, "nearby_shuffle": 0, "cache_setting": None, "rotation_setting": None, "use_threading": False,
    "collate_fn": None,
}  # fmt: skip


@pytest.mark.parametrize("code", [SYNC, ASYNC], ids=["000", "001"])
def test_the_documents_code_runs_as_it_is_written(code: str):
    names = {
        "YourDataset": YourDataset, "DataLoader": DataLoader, "AsyncDataLoader": AsyncDataLoader, "seen": [],
        "params": {"param1": 300, "param2": 2},
    }  # fmt: skip
    exec(SUITABLE, names)
    exec(code + "    seen += samples.flatten().tolist()\n", names)
    assert sorted(names["seen"]) == [2 * index for index in range(300)]
    assert len(names["async_dataloader"]) == 3
    names["async_dataloader"].close()


def test_the_signature_is_the_documents():
    parameters = inspect.signature(DataLoader).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == ARGUMENTS
    assert list(parameters) == list(ARGUMENTS)
    assert [name.replace("nb_servers", "nb_worker") for name in inspect.signature(AsyncDataLoader).parameters] == list(
        ARGUMENTS
    )


def test_it_is_started_when_it_is_constructed_and_gives_one_epoch_after_the_other():
    with DataLoader(Numbers, {"count": 20}, 8, 2) as loader:
        until(lambda: len(loader.worker_pids) == 2, "the workers")
        assert [len(batch) for batch in loader] == [8, 8, 4]
        assert flat(loader) == list(range(20))
        assert len(loader) == 3
        assert loader.batch_size == 8
        assert len(loader.dataset) == 20
        assert len(loader.worker_pids) == 2
        assert repr(loader).startswith("<DataLoader Numbers")
        assert loader.statistics()["batches"] == 6
        assert loader.state_dict()["epoch"] == 2
        loader.set_epoch(7)
        list(loader)
        assert loader.state_dict()["epoch"] == 8
    assert not workers()


def test_shuffle_makes_an_order_for_each_epoch():
    with DataLoader(Numbers, {"count": 50}, 8, 0, shuffle=True) as loader:
        one, two = flat(loader), flat(loader)
    assert one != two
    assert sorted(one) == sorted(two) == list(range(50))


def test_state_dict_gives_the_rest_of_an_epoch():
    with DataLoader(Numbers, {"count": 50}, 8, 0, shuffle=True) as loader:
        epoch = iter(loader)
        next(epoch)
        state = loader.state_dict()
        rest = [batch.tolist() for batch in epoch]
    with DataLoader(Numbers, {"count": 50}, 8, 0, shuffle=True) as loader:
        loader.load_state_dict(state)
        assert [batch.tolist() for batch in loader] == rest


def test_nearby_shuffle_keeps_near_what_is_near():
    with DataLoader(Numbers, {"count": 1000}, 10, 0, shuffle=True, nearby_shuffle=50) as loader:
        near = [_spread(batch.tolist(), 1000) for batch in loader]
    with DataLoader(Numbers, {"count": 1000}, 10, 0, shuffle=True) as loader:
        far = [_spread(batch.tolist(), 1000) for batch in loader]
    assert max(near) <= 50
    assert min(far) > 50


def _spread(numbers: list[int], count: int) -> int:
    """The shortest arc that holds them, on the circle of all."""
    points = sorted(numbers)
    gaps = [after - before for before, after in zip(points, [*points[1:], points[0] + count], strict=True)]
    return count - max(gaps)


def test_max_minibatch_length_is_the_most_bytes_of_a_batch():
    told = r"more than max_batch_nbytes allows, 65,536 \(a DataLoader's max_minibatch_length\): make batch_size smaller"
    with pytest.raises(NoRoom, match=told):
        DataLoader(Pictures, {"count": 8}, 4, 1, max_minibatch_length=64 * 1024)
    with (
        DataLoader(Pictures, {"count": 8}, 4, 0, max_minibatch_length=64 * 1024) as loader,
        pytest.raises(NoRoom, match=told),
    ):
        next(iter(loader))
    with DataLoader(Pictures, {"count": 8}, 4, 0, max_minibatch_length=5 * 64 * 1024) as loader:
        assert len(list(loader)) == 2


@pytest.mark.parametrize("size", [1, 15])
def test_max_queue_size_is_how_far_each_worker_is_ahead(size: int, tmp_path):
    given = {"folder": str(tmp_path), "count": 1000}
    with DataLoader(Noted, given, 1, 2, max_queue_size=size):
        made = settled(lambda: len(calls(tmp_path, "get")))
    assert 2 * size <= made <= 2 * (3 * size + 3)


def test_prefetch_time_waits_until_batches_are_ready_and_not_longer():
    begun = time.monotonic()
    with DataLoader(Numbers, {"count": 1000}, 1, 2, max_queue_size=5, prefetch_time=60) as loader:
        assert loader.statistics()["slots_full"] >= 10
    assert time.monotonic() - begun < 30


def test_prefetch_time_is_no_longer_than_it_says(tmp_path):
    given = {"folder": str(tmp_path), "count": 50, "gate_at": 2}
    begun = time.monotonic()
    with DataLoader(Noted, given, 1, 1, prefetch_time=0.3) as loader:
        assert 0.3 < time.monotonic() - begun < 20
        assert loader.statistics()["slots_full"] == 2
        (tmp_path / "open").touch()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_device_is_where_batches_are_moved(device: str):
    with DataLoader(Numbers, {"count": 8}, 4, 0, device=device) as loader:
        assert {batch.device.type for batch in loader} == {device}


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_pin_memory_says_where_it_has_no_effect():
    with (
        pytest.warns(RuntimeWarning, match="pin_memory=True has no effect: there is no accelerator"),
        DataLoader(Numbers, {"count": 8}, 4, 0, pin_memory=True) as loader,
    ):
        assert flat(loader) == list(range(8))


@pytest.mark.parametrize("kind", [DataLoader, AsyncDataLoader])
def test_a_warning_names_the_line_that_makes_the_loader(kind: type[DataLoader]):
    with pytest.warns(UserWarning, match="Numbers is empty") as warned, kind(Numbers, {"count": 0}, 4, 0) as loader:
        assert list(loader) == []
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.skipif(not torch.accelerator.is_available(), reason="there is no accelerator")
def test_pin_memory_page_locks_batches():
    with DataLoader(Pictures, {"count": 8}, 4, 1, pin_memory=True) as loader:
        assert all(images.is_pinned() for images, _ in loader)


def test_gpu_indices_are_what_each_worker_sees_and_each_that_takes_its_place():
    with DataLoader(Seeing, {"count": 2_000}, 1, 2, gpu_indices=[5, 3], max_queue_size=1) as loader:
        seen = set()
        for step, (gpu, told, worker, pid) in enumerate(loader):
            seen.add((int(gpu), int(told), int(worker)))
            if step == 100:
                os.kill(int(pid), signal.SIGKILL)
                pids = set(loader.worker_pids)
            if step > 100 and len(set(loader.worker_pids) - pids) and step > 1000:
                break
        assert seen == {(5, 5, 0), (3, 3, 1)}
        seen = {(int(gpu), int(told), int(worker)) for gpu, told, worker, _ in loader}
        assert seen == {(5, 5, 0), (3, 3, 1)}


@pytest.mark.parametrize("wrong", [[1], [1, 2, 3], "01", [0, -1], [0, True], 3])
def test_gpu_indices_must_name_one_for_each_worker(wrong):
    with pytest.raises(ConfigError, match="gpu_indices must"):
        DataLoader(Numbers, {}, 4, 2, gpu_indices=wrong)


def test_cache_setting_keeps_samples(tmp_path):
    given = {"folder": str(tmp_path), "count": 20}
    kept = {"prefix": str(tmp_path / "kept"), "update_frequency": float("inf")}
    with DataLoader(Noted, given, 8, 0, cache_setting=kept) as loader:
        assert flat(loader) == flat(loader) == list(range(20))
    assert len(calls(tmp_path, "get")) == 20


def test_rotation_setting_makes_the_epoch_longer():
    with DataLoader(Numbers, {"count": 20}, 8, 0, rotation_setting={"medium": "memory", "rotation": 3}) as loader:
        assert len(loader) == 8
        for _ in range(2):
            batches = list(loader)
            assert len(batches) == 8
            assert Counter(flat(batches)) == dict.fromkeys(range(20), 3)


@pytest.mark.parametrize(("threading_too", "count"), [(False, 1), (True, 3)])
def test_use_threading_is_a_thread_for_each_worker(threading_too: bool, count: int):
    with DataLoader(Numbers, {"count": 20}, 8, 3, use_threading=threading_too) as loader:
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("swift-telecom")]
        assert len(names) == count
        assert flat(loader) == list(range(20))


def test_collate_fn_makes_the_batch():
    with DataLoader(Numbers, {"count": 5}, 2, 0, collate_fn=tuple) as loader:
        assert list(loader) == [(0, 1), (2, 3), (4,)]


def test_a_loader_that_was_forgotten_says_so_and_ends_its_workers():
    loader = DataLoader(Numbers, {"count": 5}, 2, 1)
    assert flat(loader) == list(range(5))
    with pytest.warns(ResourceWarning, match="was not closed"):
        del loader  # the last reference
    until(lambda: not workers(), "the end of the workers")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nb_worker": -1}, "nb_worker must be a whole number from 0 on"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1 on"),
        ({"dataset_params": 3}, "dataset_params must be a dict"),
        ({"max_minibatch_length": 0}, "max_minibatch_length must be a whole number of bytes from 1 on"),
        ({"max_queue_size": 0}, "max_queue_size must be"),
        ({"max_queue_size": 2.5}, "max_queue_size must be"),
        ({"prefetch_time": -1}, "prefetch_time must be"),
        ({"prefetch_time": "soon"}, "prefetch_time must be"),
        ({"pin_memory": 1}, "pin_memory must be True or False"),
        ({"use_threading": "yes"}, "use_threading must be True or False"),
        ({"shuffle": None}, "shuffle must be True or False"),
        ({"nearby_shuffle": -1}, "nearby_shuffle must be a whole number from 0 on"),
        ({"rotation_setting": {"medium": "memory"}}, "rotation_setting lacks rotation"),
        ({"cache_setting": 3}, "cache_setting must be"),
    ],
)
def test_wrong_arguments_are_told_by_the_names_that_they_have_here(wrong: dict, message: str):
    given = {"dataset_class": Numbers, "dataset_params": {}, "batch_size": 4, "nb_worker": 1}
    with pytest.raises(ConfigError, match=message):
        DataLoader(**(given | wrong))


def test_the_other_one_calls_them_servers():
    with pytest.raises(ConfigError, match="nb_servers must be a whole number from 0 on"):
        AsyncDataLoader(Numbers, {}, 4, -1)
    with AsyncDataLoader(Numbers, {"count": 9}, 4, nb_servers=2, shuffle=True) as loader:
        assert sorted(flat(loader)) == list(range(9))
        assert repr(loader).startswith("<AsyncDataLoader Numbers")
