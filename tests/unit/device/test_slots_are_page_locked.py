"""A lock is taken once for a slot, ends with it, and never makes a noise where nobody could do anything about it."""

import gc
import os

import pytest

from swift_loader.device.pagelock import PageLock, PageLockRefused, PageLocks
from swift_loader.wire.slot import Slot
from tests.unit.device.recording_driver import RecordingDriver
from tests.watching import run_script


@pytest.fixture
def slots():
    made = [Slot.create(5000) for _ in range(3)]
    yield made
    while made:
        made.pop().close()


def test_a_slot_is_locked_as_a_whole_and_once(slots):
    driver = RecordingDriver()
    locks = PageLocks(driver)
    assert locks.cover(slots[0])
    assert locks.cover(slots[0])
    assert driver.locked == {slots[0].memory.ctypes.data: slots[0].nbytes}
    locks.tell()


def test_after_one_refusal_no_other_slot_is_tried_and_those_that_are_locked_stay_so(slots):
    driver = RecordingDriver()
    locks = PageLocks(driver)
    assert locks.cover(slots[0])
    driver.refuses = "resource exhausted (error 2)"
    assert not locks.cover(slots[1])
    driver.refuses = None
    assert not locks.cover(slots[2])
    assert locks.cover(slots[0])
    assert len(driver.locked) == 1
    with pytest.warns(RuntimeWarning, match=r"8,192 bytes could not be page-locked: resource exhausted") as told:
        locks.tell()
    assert told[0].filename == __file__
    locks.tell()


def test_an_array_of_the_slot_keeps_its_memory_but_not_its_lock(slots):
    driver = RecordingDriver()
    PageLocks(driver).cover(slots[0])
    array = slots[0].memory[:10]
    slots.pop(0).close()
    gc.collect()
    assert driver.locked == {}
    assert driver.wrong == []
    del array


def test_memory_that_cannot_be_unlocked_is_told(slots):
    driver = RecordingDriver()
    lock = PageLock(driver, slots[0].memory)
    driver.locked.clear()
    with pytest.warns(RuntimeWarning, match=r"could not be unlocked: not locked \(error 713\)"):
        del lock


def test_a_refused_lock_is_not_given_back(slots):
    driver = RecordingDriver(refuses="no")
    with pytest.raises(PageLockRefused, match=r"^no$"):
        PageLock(driver, slots[0].memory)
    gc.collect()
    assert driver.log == ["lock"]


def test_in_a_forked_child_the_lock_is_left_to_the_parent(slots):
    driver = RecordingDriver()
    lock = PageLock(driver, slots[0].memory)
    child = os.fork()
    if child == 0:
        del lock
        os._exit(driver.log.count("unlock"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    del lock
    assert driver.log == ["lock", "unlock"]


AT_EXIT = """
import sys
from swift_loader.device.pagelock import PageLock
from swift_loader.wire.slot import Slot

class Gone:
    def lock(self, address, nbytes):
        return None

    def unlock(self, address):
        raise SystemError("the driver is shutting down")

slot = Slot.create(100)
slot.page_lock = PageLock(Gone(), slot.memory)
sys.kept = slot  # lives until the interpreter takes itself apart
print("done")
"""


def test_at_the_end_of_the_interpreter_nothing_is_said(tmp_path):
    assert run_script(tmp_path, AT_EXIT) == "done\n"
