"""The stage alone, both halves on one thread, so that what goes wrong goes wrong each time.

Each test takes one wait or hold away and shows what happens; the first one shows that with all of them nothing does.
"""

import contextlib
import gc
import weakref

import pytest
import torch

from swift_loader.device.cuda import CudaStage
from swift_loader.device.pagelock import PageLock
from swift_loader.device.stage import Laps
from tests.unit.device.recording_driver import Event, RecordingDriver
from tests.unit.device.world import PIXELS, ROWS, World

FILLED_ANEW = "a slot was filled anew before its copy was done"
HELD_SOMETHING_ELSE = "a batch was used that held something else"
NO_LONGER_LOCKED = "a copy read memory that was no longer locked"


def batches(world, count=6, *, ahead=1, own_stream=None):
    """What a training loop does; the device works when it is waited for at the end, and not before."""
    begun = []
    for _ in range(count):
        world.asked += 1
        while len(begun) < ahead:
            begun.append(world.begin())
            world.stage.let_go()
        seq, one = begun.pop(0)
        with world.driver.using(own_stream) if own_stream else contextlib.nullcontext():
            batch = world.stage.hand_out(one)
            del one
            world.use(seq, batch)
        del batch
    begun.clear()
    for stream in (own_stream, world.driver.default, world.stage._stream):
        if stream is not None:
            world.driver.reach(stream, stream.given)
    world.close()
    return world.wrong


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("ahead", [1, 2])
def test_with_all_of_them_nothing_goes_wrong(slots, ahead):
    driver = RecordingDriver()
    with World(driver, slots=slots, ahead=ahead) as world:
        assert batches(world, ahead=ahead) == []
    assert driver.plain_copies == driver.staged_copies == 0
    assert driver.log.count("lock") == driver.log.count("unlock") <= slots


def test_without_the_consumers_wait_a_batch_is_used_before_it_is_there():
    class Driver(RecordingDriver):
        def wait(self, stream, event):
            """Does not wait."""

    with World(Driver(), slots=12, ahead=6) as world:
        assert HELD_SOMETHING_ELSE in batches(world, ahead=6)


def test_it_is_the_consumers_own_stream_that_waits():
    driver = RecordingDriver()
    with World(driver, slots=12, ahead=6) as world:
        assert batches(world, ahead=6, own_stream=driver.new_stream()) == []

    class Default(RecordingDriver):
        def wait(self, stream, event):
            super().wait(self.default, event)

    driver = Default()
    with World(driver, slots=12, ahead=6) as world:
        assert HELD_SOMETHING_ELSE in batches(world, ahead=6, own_stream=driver.new_stream())


def test_without_holding_what_is_read_a_slot_is_filled_anew_too_early():
    class Careless(CudaStage):
        def open(self):
            super().open()
            self._underway.add = lambda event, read: None

    with World(RecordingDriver(), stage=Careless) as world:
        assert FILLED_ANEW in batches(world)


def test_without_asking_whether_the_event_has_fired_a_slot_is_filled_anew_too_early():
    class Hasty(CudaStage):
        def let_go(self):
            self._underway._held.clear()

    with World(RecordingDriver(), stage=Hasty) as world:
        assert FILLED_ANEW in batches(world)


def test_closing_waits_for_the_copies_under_way():
    with World(RecordingDriver()) as world:
        world.asked = 1
        _, begun = world.begin()
        world.stage.close()
        assert world.driver.reading == {}
        assert world.home_count == 1
        del begun


def test_closing_ends_in_peace_though_the_device_is_broken(monkeypatch):
    def broken(event):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with World(RecordingDriver()) as world:
        world.asked = 1
        _, begun = world.begin()
        monkeypatch.setattr(Event, "synchronize", broken)
        world.stage.close()
        assert not world.stage.is_copying
        monkeypatch.undo()
        world.driver.reach(world.stage._stream, world.stage._stream.given)
        del begun


def test_without_waiting_for_the_event_a_slot_is_filled_anew_too_early():
    class Hasty(CudaStage):
        def settle(self):
            self._underway._held.clear()

    with World(RecordingDriver(), slots=1, stage=Hasty) as world:
        assert FILLED_ANEW in batches(world)


def test_an_event_in_front_of_the_copies_would_say_nothing():
    class Early(RecordingDriver):
        def using(self, stream):
            self.early = self.record(stream)
            return super().using(stream)

        def record(self, stream):
            return super().record(stream) if stream.name == "default" or not hasattr(self, "early") else self.early

    with World(Early()) as world:
        assert FILLED_ANEW in batches(world)


def test_without_recording_memory_on_the_consumers_stream_it_is_written_while_it_is_used():
    class Driver(RecordingDriver):
        def used_on(self, tensor, stream):
            """Records nothing."""

    with World(Driver(), slots=1) as world:
        assert HELD_SOMETHING_ELSE in batches(world)


def test_copies_and_their_memory_belong_to_the_side_stream():
    class Driver(RecordingDriver):
        def using(self, stream):
            return contextlib.nullcontext()

    with World(Driver()) as world:
        assert FILLED_ANEW in batches(world)


def failed_landing(stage):
    """A landing whose first copy began, and whose second one failed; then the next batch."""
    driver = RecordingDriver()
    with World(driver, slots=1, stage=stage) as world:
        world.asked, driver.fails_at = 2, 1
        with pytest.raises(RuntimeError, match="out of memory"):
            world.begin()
        driver.fails_at = None
        seq, begun = world.begin()
        world.use(seq, world.stage.hand_out(begun))
        del begun
        world.driver.synchronize()
        world.close()
        return world.wrong


def test_copies_that_began_before_one_failed_are_waited_for():
    assert failed_landing(CudaStage) == []


def test_without_that_wait_a_slot_is_filled_anew_too_early():
    class NoEvent:
        def synchronize(self):
            """Does not wait."""

    class Careless(CudaStage):
        def begin(self, cargo):
            record, self._driver.record = self._driver.record, lambda stream: NoEvent()
            try:
                return super().begin(cargo)
            finally:
                self._driver.record = record

    class Until(Careless):
        """Only the failed one is careless."""

        def begin(self, cargo):
            return super().begin(cargo) if self._driver.fails_at is not None else CudaStage.begin(self, cargo)

    assert FILLED_ANEW in failed_landing(Until)


# What is page-locked --------------------------------------------------------------------------------------------------


def test_a_slot_is_locked_once_for_all_its_batches_and_unlocked_when_it_is_gone():
    with World(RecordingDriver(), slots=1) as world:
        assert batches(world, 5) == []
        assert world.driver.log == ["open", "lock", "unlock"]


def test_a_slot_that_is_gone_stays_locked_until_its_copy_is_done():
    driver = RecordingDriver()
    with World(driver, slots=1) as world:
        world.asked = 1
        _, begun = world.begin()
        world.let_slots_go()
        gc.collect()
        assert driver.locked
        driver.reach(world.stage._stream, world.stage._stream.given)
        world.stage.let_go()
        assert not driver.locked
        assert driver.wrong == []
        del begun


class Elsewhere(CudaStage):
    """Keeps the locks somewhere else than in the slots."""

    def begin(self, cargo):
        begun = super().begin(cargo)
        self.keep(cargo.room)
        return begun


def test_a_lock_that_goes_with_the_landing_is_gone_before_the_copy():
    class Forgets(Elsewhere):
        def keep(self, room):
            room.page_lock = None

    with World(RecordingDriver(), stage=Forgets) as world:
        assert "memory was unlocked while a copy had yet to read it" in batches(world)
        assert NO_LONGER_LOCKED in world.wrong


def test_a_lock_that_the_stage_keeps_is_never_given_back():
    class Keeps(Elsewhere):
        kept = ()

        def keep(self, room):
            self.kept = (*self.kept, room.page_lock)

    with World(RecordingDriver(), stage=Keeps) as world:
        assert batches(world) == ["memory was never unlocked"]


def test_a_lock_that_waits_for_the_mappings_end_is_given_back_too_late():
    class Late(Elsewhere):
        def keep(self, room):
            lock = room.page_lock
            if isinstance(lock, PageLock):
                lock._pid = 0
                weakref.finalize(room.mapping, self._driver.unlock, lock._address).atexit = False
                room.page_lock = True

    with World(RecordingDriver(), stage=Late) as world:
        batches(world)
        gc.collect()  # what wrote the samples hangs in a cycle with the memory
        assert world.wrong.count("memory was unlocked after it was unmapped") == 2


WHY = r"could not be page-locked: out of memory \(error 2\).*ulimit -l"


def test_where_locking_is_refused_one_warning_says_why_and_batches_go_through_torchs_own_memory():
    driver = RecordingDriver(refuses="out of memory (error 2)")
    with World(driver, slots=2) as world, pytest.warns(RuntimeWarning, match=WHY) as told:
        assert batches(world) == []
    assert len(told) == 1
    assert driver.log == ["open", "lock"]
    assert driver.staged_copies == 6 * 2
    assert driver.plain_copies == 0


def test_a_slot_whose_batch_was_staged_is_home_at_once():
    driver = RecordingDriver(refuses="no")
    with World(driver, slots=1) as world:
        world.asked = 1
        _, begun = world.begin()
        assert world.home_count == 1
        del begun


def test_memory_of_one_batch_alone_is_neither_locked_nor_staged():
    driver = RecordingDriver()
    with World(driver) as world:
        world.asked = 1
        cargo, landed = world.unload(world.take())
        cargo.room = None
        batch = world.stage.land(cargo)
        landed()
        assert driver.log == ["open"]
        assert driver.plain_copies == 2
        assert torch.equal(batch.left["image"], torch.full((ROWS, PIXELS), 1, dtype=torch.uint8))
        del batch, cargo
        world.close()
        assert world.wrong == []


def test_nothing_of_a_batch_is_copied_out_on_the_host_on_its_way():
    driver = RecordingDriver()
    with World(driver, slots=1) as world:
        world.asked = 1
        _, begun = world.begin()
        assert (driver.plain_copies, driver.staged_copies, len(driver.reading)) == (0, 0, 2)
        assert begun.batch.right == ["sample 1"] * ROWS
        del begun


class Stopwatch:
    """A timer of a device that has a clock."""

    def __init__(self, stream):
        self.given = [stream.given]
        self.stream = stream

    def stop(self):
        self.given.append(self.stream.given)

    def elapsed_ns(self):
        return None


def test_the_devices_clock_measures_the_copies_and_nothing_else():
    driver = RecordingDriver()
    driver.timer = Stopwatch
    with World(driver) as world:
        delivery = world.take()
        cargo, landed = world.unload(delivery)
        cargo.laps = Laps()
        begun = world.stage.begin(cargo)
        landed()
        assert cargo.laps.device is not None
        before, after = cargo.laps.device.given
        assert after - before == len(begun.tensors)
        assert cargo.laps.decode_ns > 0
        assert cargo.laps.transfer_ns > 0
        world.driver.reach(world.stage._stream, world.stage._stream.given)
