"""A carousel gives back what was put on it, until the plan puts another sample there, and nothing else ever."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.host.locks import Locks
from swift_loader.reuse.carousel import Carousel, Ground, Use
from tests.slow import examples

PLACES = 8


def opened_anew(fd: int, flags: int = os.O_RDWR) -> int:
    return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)


class Park:
    """A ground, and carousels on it as several workers have them."""

    def __init__(self, *, checks: bool = False, data_fd: int | None = None) -> None:
        data_fd = os.memfd_create("data") if data_fd is None else data_fd
        self.ground = Ground(os.memfd_create("index"), data_fd, PLACES, checks)
        self.told: list[str] = []
        self.free_nbytes = 1 << 40
        self.carousels: list[Carousel] = []

    def carousel(self) -> Carousel:
        made = Carousel(self.ground, lambda nbytes: nbytes <= self.free_nbytes, self.told.append)
        self.carousels.append(made)
        return made

    @property
    def nbytes(self) -> int:
        return os.fstat(self.ground.data_fd).st_size

    def close(self) -> None:
        for carousel in self.carousels:
            carousel.close()
        self.ground.close()


@pytest.fixture
def park() -> Iterator[Park]:
    made = Park()
    yield made
    made.close()


def record(value: int, nbytes: int = 100) -> np.ndarray:
    return np.full(nbytes, value, np.uint8)


def use(position: int, *, epoch: int = 0, order: int = 1) -> Use:
    return Use(position, position + 1000, epoch, order)


def test_what_one_worker_puts_there_another_finds_in_memory_of_its_own(park):
    park.carousel().put(use(3), record(7))
    other = park.carousel()
    found = other.get(use(3))
    assert found.tolist() == [7] * 100
    found[:] = 0
    assert other.get(use(3)).tolist() == [7] * 100


def test_nothing_is_found_where_nothing_was_put(park):
    assert park.carousel().get(use(0)) is None


def test_a_sample_of_another_epoch_or_position_is_not_taken_for_it(park):
    carousel = park.carousel()
    carousel.put(use(3), record(7))
    assert carousel.get(use(3, epoch=1)) is None
    assert carousel.get(use(3 + PLACES)) is None


def test_the_plan_puts_a_later_sample_in_the_place_of_an_earlier_one(park):
    carousel = park.carousel()
    carousel.put(use(3, order=5), record(7))
    carousel.put(use(3 + PLACES, order=9), record(8))
    assert carousel.get(use(3)) is None
    assert carousel.get(use(3 + PLACES))[0] == 8


def test_a_worker_that_is_late_does_not_take_the_place_back(park):
    carousel = park.carousel()
    carousel.put(use(3 + PLACES, order=9), record(8))
    carousel.put(use(3, order=5), record(7))
    assert carousel.get(use(3)) is None
    assert carousel.get(use(3 + PLACES))[0] == 8


def test_after_going_back_in_the_stream_places_are_taken_again(park):
    carousel = park.carousel()
    carousel.put(use(3 + PLACES, epoch=4, order=9), record(8))
    carousel.put(use(3, epoch=0, order=10), record(7))
    assert carousel.get(use(3))[0] == 7


def test_a_larger_sample_makes_all_places_larger(park):
    one, other = park.carousel(), park.carousel()
    one.put(use(0), record(1, nbytes=100))
    other.put(use(1), record(2, nbytes=5_000))
    assert other.get(use(1)).tolist() == [2] * 5_000
    assert one.get(use(0)) is None
    one.put(use(0), record(1, nbytes=100))
    assert other.get(use(0)).tolist() == [1] * 100
    assert one.get(use(1))[0] == 2


@settings(max_examples=examples(60), derandomize=True, deadline=None, database=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 3_000)), max_size=60))
def test_the_file_has_no_more_than_so_many_of_the_largest_sample(puts):
    park = Park()
    carousel = park.carousel()
    try:
        for order, (position, nbytes) in enumerate(puts):
            carousel.put(use(position, order=order), record(position, nbytes))
            found = carousel.get(use(position))
            assert found is not None
            assert found.tolist() == [position] * nbytes
            largest = max(size for _, size in puts[: order + 1])
            assert park.nbytes <= PLACES * max(1.25 * largest + 64, largest + 160)
    finally:
        park.close()


def test_samples_of_one_size_take_hardly_more_than_that():
    park = Park()
    carousel = park.carousel()
    for position in range(3 * PLACES):
        carousel.put(use(position, order=position), record(position, 1000 + position % 5))
    assert park.nbytes <= PLACES * (1005 + 128)
    park.close()


def test_a_place_that_somebody_writes_is_let_alone(park):
    carousel = park.carousel()
    carousel.put(use(3), record(7))
    elsewhere = opened_anew(park.ground.index_fd)
    locks = Locks(elsewhere)
    assert locks.take(3)
    assert carousel.get(use(3)) is None
    carousel.put(use(3, order=2), record(9))
    assert carousel.get(use(4)) is None
    os.close(elsewhere)  # as when that worker dies
    assert carousel.get(use(3))[0] == 7


def test_a_place_that_is_read_is_not_written_but_may_be_read(park):
    one, other = park.carousel(), park.carousel()
    one.put(use(3), record(7))
    with one._hold(3, alone=False) as has_it:
        assert has_it
        other.put(use(3 + PLACES, order=2), record(8))
        assert other.get(use(3))[0] == 7


def test_a_worker_that_dies_while_it_writes_leaves_nothing_that_looks_whole(park, monkeypatch):
    carousel = park.carousel()
    carousel.put(use(3, order=1), record(7))

    def dies(fd: int, data: object, offset: int) -> int:
        monkeypatch.undo()
        os.pwrite(fd, bytes(10), offset)
        raise MemoryError  # in the middle

    real = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda fd, *rest: dies(fd, *rest) if fd == park.ground.data_fd else real(fd, *rest)
    )
    with pytest.raises(MemoryError):
        carousel.put(use(3, order=2), record(8))
    assert park.carousel().get(use(3)) is None


def test_a_flipped_bit_on_a_disk_is_seen():
    park = Park(checks=True)
    carousel = park.carousel()
    carousel.put(use(3), record(7))
    room = int.from_bytes(os.pread(park.ground.index_fd, 8, 0), "little")
    os.pwrite(park.ground.data_fd, b"\x06", 3 * room + 50)
    assert carousel.get(use(3)) is None
    os.pwrite(park.ground.data_fd, b"\x07", 3 * room + 50)
    assert carousel.get(use(3))[0] == 7
    park.close()


def test_a_file_that_was_cut_is_no_sample(park):
    carousel = park.carousel()
    carousel.put(use(3), record(7))
    os.ftruncate(park.ground.data_fd, 10)
    assert carousel.get(use(3)) is None


def test_a_full_disk_is_told_once_and_nothing_is_asked_of_it_again():
    park = Park(data_fd=os.open("/dev/full", os.O_RDWR))
    os.pwrite(park.ground.index_fd, (256).to_bytes(8, "little"), 0)
    carousel = park.carousel()
    for order in range(3):
        carousel.put(use(3, order=order), record(7))
        assert carousel.get(use(3)) is None
    assert park.told == ["No space left on device"]
    park.close()


def test_a_disk_that_cannot_be_written_is_told():
    real = os.memfd_create("data")
    park = Park(data_fd=opened_anew(real, os.O_RDONLY))
    os.close(real)
    carousel = park.carousel()
    carousel.put(use(3), record(7))
    assert carousel.get(use(3)) is None
    assert len(park.told) == 1
    park.close()


def test_a_thread_that_is_late_finds_it_closed(park):
    carousel = Carousel(park.ground, lambda _: True, park.told.append)
    carousel.put(use(3), record(7))
    carousel.close()
    with open(os.devnull, "wb"):  # which may have the number that the carousel had
        assert carousel.get(use(3)) is None
        carousel.put(use(4), record(8))
    assert park.told == []
    assert park.carousel().get(use(3))[0] == 7


def test_memory_that_is_not_there_is_not_taken(park):
    park.free_nbytes = 1 << 20
    carousel = park.carousel()
    carousel.put(use(3), record(7))
    assert park.nbytes == 0
    assert park.told == ["Cannot allocate memory"]
