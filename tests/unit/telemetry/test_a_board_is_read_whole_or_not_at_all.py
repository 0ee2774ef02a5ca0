"""What a loader shows of itself: written as a whole, read as a whole or not at all, and gone when it is closed."""

from __future__ import annotations

import dataclasses
import os
import threading

import pytest

from swift_loader.telemetry import board
from swift_loader.telemetry.board import Board, Shown, WorkerShown, read
from tests.shown import shown, worker


def find() -> int:
    """The descriptor of the one board that this process has."""
    (found,) = [
        int(entry)
        for entry in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{entry}")
        and os.readlink(f"/proc/self/fd/{entry}") == f"/memfd:{board.NAME} (deleted)"
    ]
    return found


@pytest.fixture
def a_board():
    one = Board()
    yield one
    one.close()


def test_what_was_posted_last_is_read(a_board: Board):
    for step in range(3):
        a_board.post(shown(step=step, workers=[worker(0), worker(1, index=step)]))
    found = read(find())
    assert found == shown(step=2, workers=[worker(0), worker(1, index=2)])
    assert isinstance(found, Shown)
    assert isinstance(found.workers[0], WorkerShown)


def test_nothing_is_read_before_the_first_post_or_after_the_end(a_board: Board):
    fd = find()
    assert read(fd) is None
    a_board.close()
    a_board.post(shown())
    with pytest.raises(OSError, match="Bad file descriptor"):
        read(fd)


def test_a_page_that_was_written_to_meanwhile_is_not_taken_for_one(a_board: Board):
    a_board.post(shown(dataset="x" * 1000))
    fd = find()
    os.pwrite(fd, b"y", 500)
    assert read(fd) is None


def test_a_reader_beside_a_writer_reads_only_whole_pages(a_board: Board):
    stop = threading.Event()

    def write() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            a_board.post(shown(step=step, dataset="ab"[step % 2] * (step % 3000)))

    a_board.post(shown(step=1, dataset="b"))
    writer = threading.Thread(target=write)
    writer.start()
    try:
        fd = find()
        for _ in range(200):
            found = read(fd)
            assert found is not None
            assert found.dataset == "ab"[found.step % 2] * (found.step % 3000)
    finally:
        stop.set()
        writer.join(10)


def test_hundreds_of_workers_do_not_burst_the_page(a_board: Board):
    a_board.post(shown(workers=[worker(number, last_death="x" * 300) for number in range(500)]))
    found = read(find())
    assert found is not None
    assert found.workers == []


def test_what_another_version_wrote_is_not_read(a_board: Board, monkeypatch: pytest.MonkeyPatch):
    told = dataclasses.asdict(shown())
    for other in (
        {**told, "more": 1},
        {name: told[name] for name in list(told)[1:]},
        [1, 2],
        {**told, "workers": [{}]},
    ):
        monkeypatch.setattr(board, "_told", lambda _, other=other: other)
        a_board.post(shown())
        assert read(find()) is None


def test_it_is_for_this_user_alone(a_board: Board):
    status = os.fstat(find())
    assert status.st_mode & 0o777 == 0o600
    assert status.st_nlink == 0
