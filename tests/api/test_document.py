"""The document's own sample of code, and what it says in words, hold as written."""

from __future__ import annotations

import inspect

import pytest
import torch

from swift_loader import SwiftLoader
from tests.api.given import Squares, repr_bytes
from tests.datasets import Pictures
from tests.loaders import started
from tests.torch_datasets import nested_with_arrays

#: As it stands in the document.
SAMPLE = """
from swift_loader import SwiftLoader

loader = SwiftLoader(
    dataset_class=Dataset,
    dataset_kwargs=dataset_kwargs, # keyword-arguments for dataset construction,
    batch_size=32, # integer defining batch size
    nb_consumer=nb_gpu, # should be the number of GPUs used for training
    worker_per_consumer=4, # number of child processes that loads & batch data for a consumer (a GPU)
    shuffle=True,
    **kwargs,
)
"""


def test_the_sample_runs_as_it_is_written():
    names = {"Dataset": Pictures, "dataset_kwargs": {"count": 96}, "nb_gpu": 1, "kwargs": {"nearby_shuffle": 160}}
    exec(SAMPLE, names)
    loader = names["loader"]
    with loader:
        loader.start(consumer_index=0, device=torch.device("cpu"))
        labels = [label for _, labels in loader for label in labels.tolist()]
        assert len(loader) == 3
    assert sorted(labels) == list(range(96))


def test_every_argument_of_the_document_is_taken_at_once():
    values = {
        "seed_numer": 5,
        "data_queue_size": 4,
        "message_queue_size": 2,
        "collate_fn": list,
        "logger": {"stdout": False},
        "batch_encoder": repr_bytes,
        "batch_decoder": eval,
        "nearby_shuffle": 20,
        "benchmark": True,
        "benchmark_file": None,
        "validate": True,
        "multithread": True,
        "max_nb_batch_on_device": 2,
        "max_buffer_size": 3,
    }
    with SwiftLoader(
        dataset_class=Squares, dataset_kwargs={"count": 9}, batch_size=4, nb_consumer=1, worker_per_consumer=2, **values
    ) as loader:
        loader.start(0)
        batches = list(loader)
    assert sorted(number for batch in batches for number in batch) == [i * i for i in range(9)]


def test_start_takes_the_documents_arguments_by_position():
    assert list(inspect.signature(SwiftLoader.start).parameters) == ["self", "consumer_index", "device", "to_device"]


@pytest.mark.parametrize("workers", [0, 1])
def test_without_a_device_batches_stay_where_the_collate_made_them(workers: int):
    with started(Pictures, worker_per_consumer=workers) as loader:
        images, labels = next(iter(loader))
        assert images.device.type == labels.device.type == "cpu"


@pytest.mark.parametrize("device", [torch.device("cpu"), "cpu", torch.device("meta"), "meta"])
def test_with_a_device_all_tensors_and_arrays_are_moved_there(device: torch.device | str):
    with SwiftLoader(Pictures, {}, 4, 1, 1, seed=1, collate_fn=nested_with_arrays) as loader:
        loader.start(0, device=device)
        batch = next(iter(loader))
    expected = torch.device(device)
    assert batch["deep"][0].device == expected
    assert batch["array"].device == expected
    assert batch["text"] == "left alone"


def test_to_device_is_called_once_for_each_batch_with_the_device():
    asked = []

    def to_device(batch: tuple, device: torch.device) -> str:
        asked.append((type(batch), device))
        return "moved"

    with SwiftLoader(Pictures, {}, 8, 1, 1, seed=1) as loader:
        loader.start(0, torch.device("cpu"), to_device)
        assert list(loader) == ["moved"] * 4
    assert asked == [(tuple, torch.device("cpu"))] * 4


def test_to_device_works_without_a_device():
    with SwiftLoader(Pictures, {}, 8, 1, 1, seed=1) as loader:
        loader.start(0, to_device=lambda batch, device: (device, len(batch)))
        assert list(loader) == [(None, 2)] * 4


def test_each_consumer_gets_its_part():
    numbers = []
    for consumer in range(4):
        with SwiftLoader(Squares, {"count": 40}, 5, 4, 1, seed=3) as loader:
            loader.start(consumer)
            part = [number for batch in loader for number in batch.tolist()]
        assert len(part) == 10
        numbers += part
    assert sorted(numbers) == [i * i for i in range(40)]
