"""What the user does with batches: keeps them, for ever, some of their leaves, or lets them go."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch

from swift_loader import NoRoom
from tests.datasets import Growing, PeakMemory, Pictures, ReadsInto, SameBuffer, Whole
from tests.loaders import started, stream
from tests.slow import start_methods
from tests.torch_datasets import SameMemory
from tests.watching import plain, run_warm, settled, until

_SLOT = "swift-slot"


def slot_mappings() -> list[tuple[int, int]]:
    """Where slots are mapped in this process."""
    lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if _SLOT in line]
    bounds = [line.split()[0].split("-") for line in lines]
    return [(int(start, 16), int(end, 16)) for start, end in bounds]


def lies_in_a_slot(tensor: torch.Tensor) -> bool:
    return any(start <= tensor.data_ptr() < end for start, end in slot_mappings())


def are_pictures(batches: list) -> bool:
    return all((images == (labels % 251)[:, None]).all() for images, labels in batches)


@start_methods
def test_a_large_tensor_is_the_workers_own_memory(method: str):
    with started(Pictures, start_method=method) as loader:
        for images, labels in loader:
            assert lies_in_a_slot(images)
            assert not lies_in_a_slot(labels)  # small ones are copied out
            assert are_pictures([(images, labels)])


def test_a_delivered_tensor_can_be_written_to():
    with started(Pictures) as loader:
        for _ in range(3):
            for images, labels in loader:
                assert are_pictures([(images, labels)])
                images.fill_(255)
                labels.fill_(-1)


def test_all_batches_may_be_kept_for_ever():
    with started(Pictures, {"count": 48}) as loader:
        kept = [batch for _ in range(4) for batch in loader]
        assert are_pictures(kept)
        assert sorted(int(label) for _, labels in kept[:6] for label in labels) == list(range(48))
        fresh = next(iter(loader))
        assert are_pictures([fresh])
    gc.collect()
    assert are_pictures(kept)  # after close() too
    assert len({images.data_ptr() for images, _ in kept}) == len(kept)
    del kept, fresh
    gc.collect()
    assert slot_mappings() == []


def test_keeping_views_of_a_tensor_keeps_its_memory():
    with started(Pictures, {"count": 64}) as loader:
        rows = []
        for images, labels in loader:
            rows.append((images[3], int(labels[3])))
            rows.append((images.numpy()[5], int(labels[5])))
            del images, labels
        for _ in loader:
            pass
        assert all((np.asarray(row) == label).all() for row, label in rows)


def test_keeping_only_labels_does_not_keep_pictures():
    with started(Pictures, {"count": 64}, data_queue_size=2, message_queue_size=1) as loader:
        labels = [batch[1] for _ in range(4) for batch in loader]
        assert loader.statistics()["slots_leased"] <= 1
        assert loader.statistics()["slot_bytes"] < 20 * 8 * 65 * 1024
        assert sorted(int(label) for batch in labels[:8] for label in batch) == list(range(64))


def test_slots_come_home_when_batches_are_dropped():
    with started(Pictures, {"count": 64}, data_queue_size=2, message_queue_size=1) as loader:
        kept = list(loader)
        assert loader.statistics()["slots_leased"] == len(kept)
        images = kept = None
        for images, _ in loader:  # noqa: B007
            pass
        before = loader.statistics()["slot_bytes"]
        for _ in range(20):
            for _ in loader:
                pass
        one_slot = 9 * (64 << 10)
        assert loader.statistics()["slot_bytes"] <= before + 4 * one_slot


def test_more_batches_than_the_budget_holds_is_an_error_that_counts_them():
    with started(Pictures, {"count": 400}, memory_budget=8 << 20, data_queue_size=2, message_queue_size=1) as loader:
        kept = []
        with pytest.raises(NoRoom, match=r"\d+ batches .* are still held.*memory_budget of 8,388,608"):
            kept.extend(loader)  # what came before the error stays in the list
        assert len(kept) > 3
        assert are_pictures(kept)


def test_a_loader_goes_on_after_batches_were_let_go_within_the_budget():
    with started(Pictures, {"count": 400}, memory_budget=8 << 20, data_queue_size=2, message_queue_size=1) as loader:
        for _ in range(2):
            window: list = []
            for batch in loader:
                window = [*window[-2:], batch]
                assert are_pictures(window)


def test_batches_of_all_sizes_come_right():
    one_by_one = {"batch_size": 1, "worker_per_consumer": 2, "shuffle": True}
    with started(Growing, {"count": 76}, **one_by_one) as loader:
        kept = []
        for _ in range(2):
            for batch in loader:
                index = int(batch[0, 0])
                assert batch.shape == (1, 1 << (index % 19))
                assert (batch == index).all()
                kept.append((index, batch))
        assert sorted(index for index, _ in kept) == sorted([*range(76)] * 2)
        assert all((batch == index).all() for index, batch in kept)


def test_a_last_smaller_batch_is_smaller():
    with started(Pictures, {"count": 20}, shuffle=False) as loader:
        assert [tuple(images.shape) for images, _ in loader] == [(8, 65536), (8, 65536), (4, 65536)]


def test_a_batch_of_one_is_still_a_batch():
    with started(Pictures, {"count": 3}, batch_size=1) as loader:
        assert all(images.shape == (1, 65536) and labels.shape == (1,) for images, labels in loader)


def test_a_worker_takes_less_private_memory_than_one_batch():
    nbytes, rows = 1 << 20, 16
    with started(PeakMemory, {"count": 64, "nbytes": nbytes}, batch_size=rows, worker_per_consumer=1) as loader:
        grown = [int(growth.max()) for _ in range(3) for _, growth in loader]
    assert max(grown) < nbytes * rows // 4


def test_a_dataset_with_getitems_is_asked_for_whole_batches():
    with started(Whole, {"count": 20}, shuffle=False) as loader:
        assert [plain(batch["asked"])[1] for batch in loader] == [[8] * 8, [8] * 8, [4] * 4]
    assert stream(Whole, {"count": 20}) == stream(Whole, {"count": 20}, worker_per_consumer=0)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_with_read_into_writes_its_rows_itself(workers: int):
    expected = torch.arange(30, dtype=torch.int32)
    by_hand = 0
    with started(ReadsInto, {"count": 30}, worker_per_consumer=workers, shuffle=False) as loader:
        for _ in range(5):
            batches = list(loader)
            assert torch.equal(torch.cat([batch["x"] for batch in batches])[:, 0, 0], expected)
            by_hand += sum(not batch["direct"].all() for batch in batches)
    assert by_hand <= max(1, workers)  # a worker's first batch tells it the layout


def test_a_dataset_that_gives_the_same_buffer_each_time_is_copied_in_time():
    with started(SameBuffer, {"count": 24}, shuffle=False) as loader:
        assert torch.cat(list(loader))[:, 3].tolist() == list(range(24))


@pytest.mark.parametrize("batch_size", [8, 96])  # of many samples, most are fetched and written in one loop
def test_a_dataset_that_fills_its_tensors_anew_is_copied_in_time(batch_size):
    settings = {"shuffle": False, "worker_per_consumer": 0, "batch_size": batch_size}
    with started(SameMemory, {"count": 288}, **settings) as loader:
        whole, places, last, first = map(torch.cat, zip(*loader, strict=True))
    expected = torch.arange(288)
    assert (places == (expected % 256)[:, None]).all()
    assert all((leaf.reshape(288, -1) == expected[:, None]).all() for leaf in (whole, last, first))


def test_thousands_of_large_batches_may_be_kept_with_few_descriptors(tmp_path):
    out = run_warm(
        tmp_path,
        """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from tests.datasets import Pictures
from tests.loaders import started

if __name__ == "__main__":
    with started(Pictures, {"count": 600, "nbytes": 70_000}, batch_size=1) as loader:
        kept = list(loader)
    print(len(kept), all((images == labels[0] % 251).all() for images, labels in kept))
""",
    )
    assert out == "600 True\n"


def test_an_idle_loader_keeps_no_more_than_its_queues():
    with started(Pictures, {"count": 640}, data_queue_size=3, message_queue_size=1, max_buffer_size=0) as loader:
        next(iter(loader))
        until(lambda: loader.statistics()["slots_full"] >= 3, "full queues")
        assert settled(lambda: loader.statistics()["slots_full"]) <= 3 + 2 * 2
