"""A batch with something that has a `.to` of its own, on a device that works as late as it may."""

import pytest

from swift_loader.device.cuda import CudaStage
from swift_loader.device.host import HostStage
from swift_loader.device.moving import by_itself, mapped
from tests.unit.device.recording_driver import RecordingDriver
from tests.unit.device.test_each_wait_of_the_stage_is_needed import FILLED_ANEW, HELD_SOMETHING_ELSE, batches
from tests.unit.device.world import World


class Sheet:
    """Keeps a tensor where nobody else looks."""

    driver = None

    def __init__(self, image):
        self._image = image

    def to(self, device, *, non_blocking=False):
        assert device == self.driver.device
        assert non_blocking
        return Sheet(self.driver.copy(self._image))


class OnSheets(HostStage):
    def land(self, cargo):
        batch = super().land(cargo)
        batch.left["image"] = Sheet(batch.left["image"])
        return batch


def stage_with_sheets(kind=CudaStage):
    def made(driver, decoder, ahead):
        Sheet.driver = driver
        stage = kind(driver, decoder, ahead)
        stage._host = OnSheets(None, None, None, copy_nbytes=-1)
        return stage

    return made


class SheetWorld(World):
    def use(self, seq, batch):
        assert type(batch.left["image"]) is Sheet
        batch.left["image"] = batch.left["image"]._image
        super().use(seq, batch)


@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("ahead", [1, 2])
def test_nothing_goes_wrong_while_the_others_are_copied_ahead(slots, ahead):
    driver = RecordingDriver()
    with SheetWorld(driver, slots=slots + ahead, ahead=ahead, stage=stage_with_sheets()) as world:
        assert batches(world, ahead=ahead) == []
    assert driver.plain_copies == driver.staged_copies == 0


def test_nothing_goes_wrong_without_a_landing_thread():
    driver = RecordingDriver()
    with SheetWorld(driver, slots=3, stage=stage_with_sheets()) as world:
        for _ in range(6):
            seq, batch = world.land()
            world.use(seq, batch)
            del batch
        driver.synchronize()
        world.close()
        assert world.wrong == []


def test_on_a_stream_of_the_consumers_own_it_is_copied_there():
    driver = RecordingDriver()
    with SheetWorld(driver, slots=4, stage=stage_with_sheets()) as world:
        assert batches(world, own_stream=driver.new_stream()) == []


def test_what_it_reads_must_be_held():
    class Stage(CudaStage):
        def hand_out(self, begun):
            add, self._underway.add = self._underway.add, lambda event, read: None
            try:
                return super().hand_out(begun)
            finally:
                self._underway.add = add

    with SheetWorld(RecordingDriver(), slots=1, stage=stage_with_sheets(Stage)) as world:
        assert FILLED_ANEW in batches(world)


def test_it_must_not_be_moved_ahead_since_its_memory_cannot_be_recorded():
    class Stage(CudaStage):
        def begin(self, cargo):
            begun = super().begin(cargo)
            with self._driver.using(self._stream):
                begun.batch = mapped(begun.batch, lambda tensor: tensor, by_itself(self._driver.device))
                begun.event = self._driver.record(self._stream)
            self._underway.add(begun.event, begun.arrays)
            begun.arrays = None
            return begun

    with SheetWorld(RecordingDriver(), slots=1, stage=stage_with_sheets(Stage)) as world:
        assert HELD_SOMETHING_ELSE in batches(world)
