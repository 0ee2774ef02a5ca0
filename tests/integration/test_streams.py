"""The stream of batches is a function of the settings: every sample once, and the same bytes however it is made."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from tests.datasets import Nested, Noted, Numbers, Records, Slow, calls
from tests.loaders import made, started, stream
from tests.slow import slow
from tests.watching import flat, plain, run_warm, settled, until


@pytest.fixture(scope="module")
def expected() -> list:
    """Three epochs, made without any worker."""
    return stream(Records, {"count": 75}, epochs=3, worker_per_consumer=0)


@pytest.mark.parametrize(
    ("workers", "multithread"),
    [(1, True), (2, False), (4, True), slow(1, False), slow(2, True), slow(4, False)],
)
def test_the_stream_is_the_same_with_any_number_of_workers_and_threads(workers: int, multithread: bool, expected: list):
    found = stream(Records, {"count": 75}, epochs=3, worker_per_consumer=workers, multithread=multithread)
    assert found == expected


@pytest.mark.parametrize("method", [slow("spawn"), "fork"])
def test_the_stream_is_the_same_with_any_start_method(method: str, expected: list):
    assert stream(Records, {"count": 75}, epochs=3, start_method=method) == expected


@pytest.mark.parametrize("queues", [(1, 1, 0), slow((3, 2, 1)), slow((40, 1, 0)), (1, 40, 7)])
def test_the_stream_is_the_same_with_any_queues(queues: tuple[int, int, int], expected: list):
    names = ("data_queue_size", "message_queue_size", "max_buffer_size")
    assert stream(Records, {"count": 75}, epochs=3, **dict(zip(names, queues, strict=True))) == expected


@pytest.mark.parametrize("workers", [0, slow(1), slow(2), 4])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_sample_comes_once_per_epoch(workers: int, shuffle: bool):
    with started(Numbers, {"count": 203}, worker_per_consumer=workers, shuffle=shuffle) as loader:
        epochs = [flat(loader) for _ in range(4)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(203))] * 4
    if shuffle:
        assert len({tuple(epoch) for epoch in epochs}) == 4
        assert epochs[0] != list(range(203))
    else:
        assert epochs == [list(range(203))] * 4


def test_batches_come_in_order_though_some_are_slow():
    with started(Slow, {"count": 48, "seconds": 0.002}, worker_per_consumer=4, shuffle=False) as loader:
        assert flat(loader) == list(range(48))


def test_consumers_in_one_process_share_the_samples():
    with ExitStack() as stack:
        loaders = [
            stack.enter_context(started(Numbers, {"count": 101}, consumer=i, nb_consumer=3, worker_per_consumer=1))
            for i in range(3)
        ]
        for _ in range(2):
            iterators = [iter(loader) for loader in loaders]
            rounds = [[next(iterator) for iterator in iterators] for _ in range(len(loaders[0]))]
            assert sorted(flat(batch for batches in rounds for batch in batches)) == list(range(101))


def test_consumers_in_threads_share_the_samples():
    found: dict[int, list[int]] = {}

    def consume(consumer: int) -> None:
        with started(Numbers, {"count": 90}, consumer=consumer, nb_consumer=3, worker_per_consumer=1) as loader:
            found[consumer] = [number for _ in range(2) for number in flat(loader)]

    threads = [threading.Thread(target=consume, args=(consumer,)) for consumer in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for numbers in found.values() for number in numbers) == sorted([*range(90)] * 2)


def test_loaders_side_by_side_do_not_mix():
    with started(Numbers, {"count": 40}, seed=1) as one, started(Records, {"count": 24}, seed=2) as other:
        pairs = list(zip(one, other, strict=False))
        assert len(pairs) == 3
        assert [plain(batch) for _, batch in pairs] == stream(Records, {"count": 24}, seed=2, worker_per_consumer=0)
        assert sorted(flat(one)) == list(range(40))


def test_leaving_early_begins_a_fresh_epoch_with_nothing_of_the_old_one():
    whole = stream(Numbers, {"count": 80}, epochs=3, worker_per_consumer=0)
    with started(Numbers, {"count": 80}) as loader:
        for batch in loader:
            assert plain(batch) == whole[0]
            break
        assert [plain(batch) for batch in loader] == whole[10:20]
        assert [plain(batch) for batch, _ in zip(loader, range(4), strict=False)] == whole[20:24]


def test_leaving_early_again_and_again_keeps_the_stream_right():
    whole = stream(Records, {"count": 40}, epochs=12, worker_per_consumer=0)
    with started(Records, {"count": 40}, worker_per_consumer=3) as loader:
        for epoch in range(11):
            iterator = iter(loader)
            assert [plain(next(iterator)) for _ in range(epoch % 5)] == whole[5 * epoch : 5 * epoch + epoch % 5]
            if epoch % 5 == 0:  # nothing was taken, so the epoch has not begun
                assert plain(next(iterator)) == whole[5 * epoch]
        assert [plain(batch) for batch in loader] == whole[55:]


def test_the_old_iterator_raises_once_a_new_one_has_begun():
    with started(Numbers) as loader:
        old, new = iter(loader), iter(loader)
        next(old)
        next(new)
        with pytest.raises(Exception, match="only the newest"):
            next(old)
        assert len(list(new)) == 7


def test_an_iterator_that_was_never_asked_is_no_epoch():
    whole = stream(Numbers, epochs=1, worker_per_consumer=0)
    with started(Numbers) as loader:
        for _ in range(3):
            iter(loader)
        assert [plain(batch) for batch in loader] == whole


def test_an_epoch_whose_last_batch_was_taken_is_over():
    whole = stream(Numbers, epochs=2, worker_per_consumer=0)
    with started(Numbers) as loader:
        iterator = iter(loader)
        assert [plain(next(iterator)) for _ in range(len(loader))] == whole[:8]
        assert [plain(batch) for batch in loader] == whole[8:]  # the StopIteration was never asked for
        with pytest.raises(StopIteration):
            next(iterator)


def test_set_epoch_chooses_the_epoch():
    whole = stream(Numbers, epochs=6, worker_per_consumer=0)
    with started(Numbers) as loader:
        loader.set_epoch(4)
        assert [plain(batch) for batch in loader] == whole[32:40]
        assert [plain(batch) for batch in loader] == whole[40:48]
        loader.set_epoch(1)
        assert [plain(batch) for batch in loader] == whole[8:16]


def test_set_epoch_as_samplers_want_it_changes_nothing():
    whole = stream(Numbers, epochs=3, worker_per_consumer=0)
    found = []
    with started(Numbers) as loader:
        for epoch in range(3):
            loader.set_epoch(epoch)
            found += [plain(batch) for batch in loader]
    assert found == whole


def test_the_next_epoch_is_made_before_it_is_asked_for(tmp_path):
    with started(Noted, {"folder": str(tmp_path), "count": 16}, data_queue_size=4, shuffle=False) as loader:
        taken = flat(loader)
        assert taken == list(range(16))
        until(lambda: len(calls(tmp_path, "get")) >= 32, "the next epoch")
        # ... and no more of it than the queues hold
        assert settled(lambda: len(calls(tmp_path, "get"))) < 16 * 50


def test_an_epoch_of_one_batch_is_prefetched_over_many_epochs():
    with started(Numbers, {"count": 3}) as loader:
        assert all(sorted(flat(loader)) == [0, 1, 2] for _ in range(50))


def test_nested_samples_keep_their_structure():
    assert stream(Nested, {"count": 20}) == stream(Nested, {"count": 20}, worker_per_consumer=0)
    with started(Nested, {"count": 20}, shuffle=False) as loader:
        batch = next(iter(loader))
    box, pair = batch["boxes"]
    assert type(box).__name__ == "Box"
    assert type(box.corner).__name__ == "Point"
    assert box.corner.y[:, 0].tolist() == list(range(8))
    assert box.label[3] == "box 3"
    assert pair[1] == [None] * 8
    assert batch["raw"][7] == b"7"


def test_a_loader_without_a_seed_draws_one_and_another_draws_another():
    streams = [stream(Numbers, {"count": 64}, seed=None) for _ in range(2)]
    assert streams[0] != streams[1]


def test_a_loader_that_travels_takes_its_seed_along(tmp_path):
    out = run_warm(
        tmp_path,
        """
import multiprocessing, pickle, sys
from swift_loader import SwiftLoader
from tests.datasets import Numbers

def consume(first, other, queue):
    for consumer, loader in enumerate([first, pickle.loads(other)]):
        with loader:
            loader.start(consumer)
            queue.put([n for batch in loader for n in batch.tolist()])

if __name__ == "__main__":
    loader = SwiftLoader(Numbers, {"count": 60}, batch_size=4, nb_consumer=2, worker_per_consumer=1)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=consume, args=(loader, pickle.dumps(loader), queue))
    child.start()
    numbers = sorted(queue.get(timeout=30) + queue.get(timeout=30))
    child.join()
    print(numbers == list(range(60)), child.exitcode)
""",
    )
    assert out == "True 0\n"


def test_pickled_copies_of_a_loader_make_the_same_stream():
    import pickle

    loader = made(Numbers, seed=None)
    copies = [pickle.loads(pickle.dumps(loader)) for _ in range(2)]
    streams = []
    for copy in copies:
        with copy:
            copy.start(0)
            streams.append([plain(batch) for batch in copy])
    assert streams[0] == streams[1]
