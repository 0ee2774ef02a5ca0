"""The plain stage: a user's function, or ``.to``, on the consumer's thread; what it reads is held until it was read."""

import random
import threading

import pytest
import torch

from swift_loader.device.plain import PlainStage, Work
from tests.slow import slow_but
from tests.unit.device.recording_driver import RecordingDriver
from tests.unit.device.test_each_wait_of_the_stage_is_needed import FILLED_ANEW
from tests.unit.device.world import PIXELS, ROWS, World, plain
from tests.unit.device.world import Work as RecordingWork


def moving(driver):
    """A ``to_device`` as many write it: the batch is changed in its place, so nothing of the old one stays in it."""

    def to_device(batch, device):
        for name, tensor in batch.left.items():
            batch.left[name] = driver.copy(tensor)
        return batch

    return to_device


def batches(world, count=8):
    for _ in range(count):
        seq, batch = world.land()
        world.use(seq, batch)
        del batch
    world.driver.synchronize()
    world.close()
    return world.wrong


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_what_the_function_reads_is_held_though_it_changes_the_batch_in_its_place(slots):
    driver = RecordingDriver()
    with World(driver, slots=slots, stage=plain(moving(driver))) as world:
        assert batches(world) == []
    assert driver.plain_copies == 8  # the small leaves: these were copied out on the host
    assert driver.log.count("lock") == driver.log.count("unlock") <= slots


@pytest.mark.parametrize("seed", slow_but(range(20), lambda seed: seed < 5))
def test_whatever_the_device_does_nothing_goes_wrong(seed):
    draw = random.Random(seed)
    driver = RecordingDriver(seed)
    with World(driver, slots=draw.randint(1, 4), stage=plain(moving(driver))) as world:
        kept = []
        for _ in range(30):
            seq, batch = world.land()
            world.use(seq, batch)
            kept.append((seq, batch))
            if draw.random() < 0.4:
                kept.clear()
            if draw.random() < 0.2:
                driver.synchronize()
        for seq, batch in kept:
            world.use(seq, batch)
        driver.synchronize()
        kept.clear()
        del batch
        world.close()
        assert world.wrong == []


def test_without_that_hold_a_slot_is_filled_anew_too_early():
    class OnlyTheBatch(PlainStage):
        def land(self, cargo):
            batch = super().land(cargo)
            self._underway._held[-1][1][:] = [batch]
            return batch

    driver = RecordingDriver()
    with World(driver, slots=1, stage=plain(moving(driver), OnlyTheBatch)) as world:
        assert FILLED_ANEW in batches(world)


def test_without_waiting_for_the_event_a_slot_is_filled_anew_too_early():
    class Hasty(PlainStage):
        def settle(self):
            self._underway._held.clear()

    driver = RecordingDriver()
    with World(driver, slots=1, stage=plain(moving(driver), Hasty)) as world:
        assert FILLED_ANEW in batches(world)


def test_no_more_than_two_batches_are_under_way():
    driver = RecordingDriver()
    with World(driver, slots=8, stage=plain(moving(driver))) as world:
        for _ in range(6):
            world.land()
            assert len(world.stage._underway) <= 2
        assert world.home_count == len(world.slots) - 2
        world.stage.settle()
        assert world.home_count == len(world.slots) == 3


def test_what_the_function_began_is_waited_for_though_it_failed():
    driver = RecordingDriver()

    def to_device(batch, device):
        driver.copy(batch.left["image"])
        raise ValueError("of the user")

    with World(driver, slots=1, stage=plain(to_device)) as world:
        with pytest.raises(ValueError, match="of the user"):
            world.land()
        assert world.home_count == 0
        world.stage.settle()
        assert world.home_count == 1
        world.close()
        assert world.wrong == []


def test_the_function_is_called_once_for_each_batch_on_the_consumers_thread_and_stream():
    driver = RecordingDriver()
    calls = []

    def to_device(batch, device):
        calls.append((batch.right[0], threading.current_thread(), driver.current_stream(), device))
        return batch

    own, here = driver.new_stream(), threading.current_thread()
    with World(driver, slots=4, stage=plain(to_device)) as world:
        with driver.using(own):
            for _ in range(3):
                world.land()
        assert calls == [(f"sample {seq}", here, own, torch.device("cpu")) for seq in (1, 2, 3)]
        world.close()
        assert world.wrong == []


def test_what_the_function_leaves_on_the_host_holds_the_slot_only_if_it_is_large():
    driver = RecordingDriver()
    kept = []
    with World(driver, slots=2, stage=plain(lambda batch, device: kept.append(batch.left["label"]))) as world:
        world.land()
        world.stage.settle()
        assert world.home_count == 1
        assert kept[0].tolist() == [1.0] * ROWS


def test_without_events_the_device_is_waited_for_after_the_function():
    driver = RecordingDriver()
    work = RecordingWork(driver, has_events=False)
    with World(driver, slots=1, stage=lambda *_: PlainStage(work, None, moving(driver))) as world:
        driver.lock(*_memory_of(world))
        seq, batch = world.land()
        assert work.synchronized == 1
        assert world.home_count == 1
        world.use(seq, batch)
        driver.synchronize()
        assert world.wrong == []


def _memory_of(world):
    """The place of the slot that is to come, so that copies from it are late ones."""
    number = world.ledger.take(1, ())
    slot = world._made(number)
    world.ledger.given_back(number)
    return slot.memory.ctypes.data, slot.nbytes


class Device:
    """The module of a device that has one stream, as that of mps."""

    class Event:
        made = 0

        def record(self):
            Device.Event.made += 1

        def query(self):
            return True

        def synchronize(self):
            """Has happened."""


@pytest.mark.parametrize(("module", "events"), [(Device, 3), (None, 0)])
def test_without_a_function_batches_are_moved_by_to(module, events):
    driver = RecordingDriver()
    Device.Event.made = 0
    work = Work(torch.device("meta"), module)
    with World(driver, slots=1, stage=lambda *_: PlainStage(work, None, None)) as world:
        for _ in range(3):
            _, batch = world.land()
            assert {tensor.device.type for tensor in batch.left.values()} == {"meta"}
            assert batch.left["image"].shape == (ROWS, PIXELS)
            del batch
        world.close()
        assert world.wrong == []
    assert Device.Event.made == events
