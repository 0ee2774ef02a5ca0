"""Rotation with processes: whatever happens to workers, disks and iterations, the stream is the same."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from tests.datasets import Noted, Pictures, Slow, calls
from tests.loaders import made, started, stream
from tests.rotated_datasets import Drawing, small_files
from tests.slow import slow
from tests.watching import flat, plain, until, workers

MEMORY = {"medium": "memory", "rotation": 3, "size": 24}


def quiet(epochs: int = 1, **settings) -> list:
    """What comes where nothing happens, made in this process."""
    return stream(Drawing, {"count": 60}, epochs=epochs, rotation_setting=MEMORY, worker_per_consumer=0, **settings)


@pytest.mark.parametrize("settings", [{}, slow({"shuffle": False}), slow({"worker_threads": 3})])
def test_any_number_of_workers_gives_the_same_batches(settings):
    at_one_place = {"random_per": "sample"} if "worker_threads" in settings else {}
    drawn = stream(Drawing, {"count": 60}, epochs=2, rotation_setting=MEMORY, **settings, **at_one_place)
    expected = quiet(2, shuffle=settings.get("shuffle", True))
    if "worker_threads" in settings:  # threads share the generators of the process
        drawn, expected = ([batch["i"] for batch in batches] for batches in (drawn, expected))
    assert drawn == expected


def test_workers_that_are_killed_change_nothing():
    batches = []
    with started(Drawing, {"count": 60}, rotation_setting=MEMORY, data_queue_size=2) as loader:
        for step, batch in enumerate(chain(loader, loader)):
            batches.append(plain(batch))
            if step in (3, 11, 30):
                os.kill(until(workers)[0].pid, signal.SIGKILL)
        assert loader.statistics()["rotation_reused"] > 0
    assert batches == quiet(2)


@pytest.mark.parametrize(("count", "step"), [(0, 9), (2, 22)])
def test_an_epoch_goes_on_where_it_was_left(count: int, step: int):
    expected = quiet(2)
    with started(Drawing, {"count": 60}, rotation_setting=MEMORY, worker_per_consumer=count) as loader:
        epoch = iter(loader)
        for _ in range(step):
            next(epoch)
        state = loader.state_dict()
    with made(Drawing, {"count": 60}, rotation_setting=MEMORY, worker_per_consumer=2 - count) as loader:
        loader.load_state_dict(state)
        loader.start(0)
        rest = [plain(batch) for _ in range(2) for batch in loader]
    assert rest == expected[step:]


def test_a_loader_that_goes_back_keeps_samples_again():
    with started(Drawing, {"count": 60}, rotation_setting=MEMORY, worker_per_consumer=1) as loader:
        beginning = loader.state_dict()
        one = [plain(batch) for batch in loader]
        loader.load_state_dict(beginning)
        before = loader.statistics()["rotation_reused"]
        assert [plain(batch) for batch in loader] == one
        assert loader.statistics()["rotation_reused"] > before + 100


def test_another_rotation_is_another_stream_and_a_state_of_it_is_refused():
    with started(Drawing, {"count": 60}, rotation_setting=MEMORY, worker_per_consumer=0) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with (
        made(Drawing, {"count": 60}, rotation_setting={**MEMORY, "rotation": 2}) as loader,
        pytest.raises(ValueError, match="rotation was 3 and is 2"),
    ):
        loader.load_state_dict(state)


def _file_at(prefix: Path) -> int:
    """The descriptor of the file that this process has open there."""
    folder = Path("/proc/self/fd")
    for name in os.listdir(folder):
        if (folder / name).is_symlink() and os.readlink(folder / name).startswith(f"{prefix}-"):
            return int(name)
    raise AssertionError(f"no file is open at {prefix}")


@pytest.mark.parametrize("count", [0, 2])
def test_on_disk_there_are_never_more_than_size_samples(count: int, tmp_path):
    nbytes = 16 * 1024
    setting = {"medium": "disk", "rotation": 3, "size": 10, "prefix": tmp_path / "kept"}
    largest, done = [0], threading.Event()
    options = {"worker_per_consumer": count, "batch_size": 4, "rotation_setting": setting}
    with started(Pictures, {"count": 200, "nbytes": nbytes}, **options) as loader:
        fd = _file_at(tmp_path / "kept")

        def look() -> None:
            while not done.wait(0.001):
                found = os.fstat(fd)
                largest.append(max(found.st_size, 512 * found.st_blocks))

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            seen = Counter()
            for images, labels in loader:
                assert (images[:, 5] == labels % 251).all()
                seen.update(labels.tolist())
                largest.append(os.fstat(fd).st_size)
        finally:
            done.set()
            watcher.join(timeout=20)
    assert seen == dict.fromkeys(range(200), 3)
    assert 5 * nbytes < max(largest) <= 10 * (nbytes + 512)


@pytest.mark.parametrize("count", [0, 2])
def test_a_disk_that_is_not_there_is_told_once_and_samples_are_made_again(count: int, tmp_path):
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    setting = {"medium": "disk", "rotation": 3, "size": 24, "prefix": tmp_path / "file" / "kept"}
    options = {"worker_per_consumer": count, "rotation_setting": setting}
    with pytest.warns(RuntimeWarning, match="samples cannot be kept with the prefix .*file/kept") as told:
        found = stream(Drawing, {"count": 60}, **options)
    assert found == quiet()
    assert len(told) == 1


def test_a_disk_that_fills_up_is_told_once_and_samples_are_made_again(tmp_path):
    setting = {"medium": "disk", "rotation": 3, "size": 100, "prefix": tmp_path / "kept"}
    options = {"rotation_setting": setting, "worker_init": small_files, "batch_size": 2}
    with pytest.warns(RuntimeWarning, match="File too large") as told:
        found = stream(Pictures, {"count": 100}, **options)
    assert len(told) == 1
    assert found == stream(Pictures, {"count": 100}, **options | {"worker_init": None})


def test_consumers_share_the_samples_and_their_size(tmp_path):
    setting = {"medium": "disk", "rotation": 3, "size": 16, "prefix": tmp_path / "kept"}
    given = {"folder": str(tmp_path), "count": 61}
    seen: Counter[int] = Counter()
    for consumer in range(2):
        options = {"nb_consumer": 2, "consumer": consumer, "rotation_setting": setting, "batch_size": 2}
        with started(Noted, given, data_queue_size=1, worker_per_consumer=1, **options) as loader:
            seen.update(flat(loader))
            assert os.fstat(_file_at(tmp_path / "kept")).st_size <= 8 * 512
    assert seen == dict.fromkeys(range(61), 3)
    assert len(calls(tmp_path, "get")) <= 61 + 2 * 40  # and what is made of the next epochs


#: Two workers need not find what the other makes at that moment; but with a place for each sample, what they have made.
@pytest.mark.parametrize(("workers", "size", "times"), [(1, 48, 1), (2, 96, 2)])
def test_a_slow_dataset_is_asked_for_a_third_of_the_samples(workers: int, size: int, times: int):
    setting = {"medium": "memory", "rotation": 3, "size": size}
    kwargs, settings = {"count": 96, "seconds": 0.003}, {"rotation_setting": setting, "data_queue_size": 1}
    with started(Slow, kwargs, worker_per_consumer=workers, **settings) as loader:
        assert len(flat(loader)) == 3 * 96
        found = loader.statistics()
    assert found["rotation_reused"] >= (3 - times) * 96
    assert found["rotation_made"] <= (times + 1) * 96  # some of them for the next epoch
