"""A slot: anonymous, sealed memory that two sides map once, and the page of words about all of them."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.wire.page import BUILDS, FETCHES, MAX_SLOTS, SENDS, WAITS, Control
from swift_loader.wire.slot import Slot, room_for

PAGE = 4096


@given(st.integers(0, 1 << 40))
def test_room_is_enough_in_whole_pages_and_a_thirtieth_too_much_at_most(nbytes):
    room = room_for(nbytes)
    assert room >= max(nbytes, PAGE)
    assert room % PAGE == 0
    assert room - nbytes < max(PAGE, nbytes / 30) or room == PAGE


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_more_bytes_never_get_less_room(one, other):
    assert (room_for(one) <= room_for(other)) == (one <= other) or room_for(one) == room_for(other)


@given(st.integers(0, 1 << 40))
def test_room_that_was_given_is_room_enough_for_itself(nbytes):
    assert room_for(room_for(nbytes)) == room_for(nbytes)


def test_what_one_side_writes_the_other_reads():
    slot = Slot.create(10_000)
    other = Slot.map(os.dup(slot.fd))
    third = Slot.map(os.dup(slot.fd))
    assert slot.nbytes == other.nbytes == third.nbytes == room_for(10_000)
    slot.memory[5000] = 7
    third.memory[5001] = 8
    assert other.memory[5000:5002].tolist() == [7, 8]
    for one in (slot, other, third):
        one.close()


def test_nobody_can_shrink_or_grow_or_unseal_it():
    slot = Slot.create(PAGE)
    for size in (0, PAGE - 1, PAGE + 1, 10 * PAGE):
        with pytest.raises(PermissionError):
            os.ftruncate(slot.fd, size)
    with pytest.raises(PermissionError):
        os.pwrite(slot.fd, b"x", 2 * PAGE)
    assert os.fstat(slot.fd).st_size == slot.nbytes
    slot.close()


def test_its_pages_are_there_from_the_start():
    slot = Slot.create(100 * PAGE)
    assert os.fstat(slot.fd).st_blocks * 512 == slot.nbytes
    slot.close()


def test_it_begins_as_zeros_and_has_no_name():
    slot = Slot.create(PAGE)
    assert not slot.memory.any()
    assert "memfd:swift-slot" in os.readlink(f"/proc/self/fd/{slot.fd}")
    assert not os.get_inheritable(slot.fd)
    slot.close()


def test_memory_stays_while_an_array_views_it():
    slot = Slot.create(PAGE)
    view = slot.memory[10:20]
    view[:] = 3
    slot.close()
    slot.close()
    del slot
    gc.collect()
    assert view.tolist() == [3] * 10


def test_nothing_of_it_is_left_when_all_have_let_go():
    before = len(os.listdir("/proc/self/fd"))
    slot = Slot.create(PAGE)
    slot.views["array"] = np.ndarray((4,), "int32", slot.memory, 64)
    slot.close()
    del slot
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_words_and_cells_of_a_page_are_seen_by_its_other_side_and_by_nobody_else():
    control = Control.create(3)
    other = Control(os.dup(control.fd), 3)
    control.slot_words[0], control.slot_words[MAX_SLOTS - 1] = (1 << 64) - 1, 5
    for worker in range(3):
        other.cell(worker).enter(FETCHES, 10 + worker)
        other.cell(worker).at(worker, 100 + worker)
    assert (other.word(0)[0], other.word(1)[0], other.word(MAX_SLOTS - 1)[0]) == ((1 << 64) - 1, 0, 5)
    assert [control.cell(worker).seq for worker in range(3)] == [10, 11, 12]
    assert [control.cell(worker).index for worker in range(3)] == [100, 101, 102]
    control.close()
    other.close()


def test_a_cell_names_a_sample_only_while_one_is_in_hand():
    control = Control.create(1)
    cell = control.cell(0)
    cell.enter(FETCHES, 4)
    assert (cell.index, cell.stage, cell.seq) == (None, "fetches", 4)
    cell.at(0, 0)
    assert cell.index == 0
    for stage, words in ((SENDS, "sends"), (WAITS, "waits"), (BUILDS, "builds the dataset")):
        cell.enter(stage, 4)
        assert (cell.index, cell.stage) == (None, words)
    control.close()


CLOSED = """
import os, sys
from swift_loader.wire.slot import Slot
os.closerange(0, int(sys.argv[1]))
slots = [Slot.create(100) for _ in range(3)]
os._exit(min(slot.fd for slot in slots))
"""


@pytest.mark.parametrize("count", [1, 3])
def test_its_descriptor_is_none_of_the_standard_streams_where_those_are_closed(count):
    least = subprocess.run([sys.executable, "-c", CLOSED, str(count)], check=False, timeout=60).returncode
    assert least >= 3
