"""The landing thread, the stage, leases and ledger as they are, between a pool of few slots and a consumer.

Drawn schedules first: whatever the device, the consumer and the threads do, nothing goes wrong. Then each rule alone,
and what happens without it.
"""

import contextlib
import random
import sys
import threading
from queue import SimpleQueue

import pytest

from swift_loader.device.cuda import CudaStage
from swift_loader.device.landing import Landing
from swift_loader.errors import LoaderClosed
from tests.slow import slow_but
from tests.unit.device.recording_driver import RecordingDriver
from tests.unit.device.world import Stuck, World
from tests.watching import until

NAME = "swift-landing-c7"


class Watched(SimpleQueue):
    """Tells when the landing thread is about to wait for somebody to call."""

    def __init__(self, about_to_wait):
        super().__init__()
        self.about_to_wait = about_to_wait

    def get(self):
        self.about_to_wait()
        return super().get()


@contextlib.contextmanager
def landing_in(world, kind=Landing, about_to_wait=None):
    landing = kind(world.stage, world, NAME)
    if about_to_wait is not None:
        landing._calls = Watched(about_to_wait)
    landing.start()
    try:
        yield landing
    finally:
        landing.close()
        assert not landing._thread.is_alive()


@pytest.fixture
def quick_switches():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def step(world, random, landing, stream):
    """A training step with habits that are drawn; gives back what it may keep."""
    with world.driver.using(stream):
        seq, batch = world.take_from(landing)
        if batch is None:
            return []
        world.use(seq, batch)
        if random.random() < 0.3:
            world.driver.synchronize()
    return [(stream, seq, batch)] if random.random() < 0.2 else []


def run(world, random, landing, own_stream):
    """A training loop: what it keeps, when it waits for the device, when it leaves is drawn."""
    kept = []
    for _ in range(25):
        kept += step(world, random, landing, random.choice([own_stream, world.driver.default, world.driver.default]))
        if random.random() < 0.3:
            kept.clear()
        if random.random() < 0.1:
            world.restart(landing)
    for stream, seq, batch in kept:
        with world.driver.using(stream):
            world.use(seq, batch)
    for stream in (own_stream, world.driver.default):
        world.driver.reach(stream, stream.given)


@pytest.mark.filterwarnings("ignore:a slot of .* could not be page-locked:RuntimeWarning")
@pytest.mark.parametrize("seed", slow_but(range(60), lambda seed: seed < 10))
def test_whatever_the_device_and_the_threads_do_nothing_goes_wrong(seed, quick_switches):
    draw = random.Random(seed)
    driver = RecordingDriver(seed, refuses=draw.choice([None, None, "no"]))
    ahead = draw.randint(1, 3)
    fails = {number for number in range(60) if draw.random() < 0.1}
    with World(driver, slots=draw.randint(1, 4), ahead=ahead, fails=fails) as world:
        with landing_in(world) as landing:
            run(world, draw, landing, driver.new_stream())
        world.close()
        assert world.wrong == []
        assert driver.live_count == 0


def test_no_more_is_landed_than_was_asked_for():
    for ahead in (1, 3):
        idle = threading.Event()
        driver = RecordingDriver()
        with World(driver, slots=8, ahead=ahead) as world, landing_in(world, about_to_wait=idle.set) as landing:
            assert idle.wait(20)
            assert driver.live_count == 2 * ahead
            idle.clear()
            kept = world.take_from(landing)
            assert idle.wait(20)
            assert driver.live_count == 2 * (ahead + 1)
            del kept
            assert world.wrong == []


def test_without_that_rule_the_device_fills_up():
    class Greedy(Landing):
        def _has_room(self):
            return not self._closing

    with World(RecordingDriver(), slots=8) as world, landing_in(world, Greedy):
        until(lambda: world.wrong)
        assert "more was taken than may be on the device" in world.wrong


def homes_when_idle(world, kind=Landing):
    """How many slots are home each time that the thread waits for room; the consumer takes three batches."""
    homes, idle = [], threading.Semaphore(0)

    def about_to_wait():
        homes.append(world.home_count)
        idle.release()

    with landing_in(world, kind, about_to_wait) as landing:
        for _ in range(3):
            assert idle.acquire(timeout=20)
            seq, batch = world.take_from(landing)
            world.use(seq, batch)
            del batch
        assert idle.acquire(timeout=20)
        count = len(homes)
        until(landing._calls.empty)
        world.driver.synchronize()
    return homes[:count]


def test_no_slot_is_kept_while_the_thread_waits_for_room():
    with World(RecordingDriver(), slots=1) as world:
        assert set(homes_when_idle(world)) == {1}
        assert world.wrong == []


def test_without_that_rule_workers_lack_the_slots_of_batches_that_are_long_there():
    class Blind(CudaStage):
        is_copying = False

    with World(RecordingDriver(), slots=4, stage=Blind) as world:
        assert 1 not in homes_when_idle(world)[:1]


def test_before_a_delivery_is_waited_for_slots_are_let_go_of():
    with World(RecordingDriver(), slots=1, ahead=3) as world, landing_in(world) as landing:
        for _ in range(6):
            seq, batch = world.take_from(landing)
            world.use(seq, batch)
            del batch
        world.driver.synchronize()
        assert world.wrong == []


def test_without_that_rule_the_loader_stands_still():
    class Patient(World):
        def before_waiting(self):
            """Lets go of nothing."""

    with Patient(RecordingDriver(), slots=1, ahead=3) as world, landing_in(world) as landing:
        world.asked = 1
        landing.hand_out(landing.take())
        with pytest.raises(Stuck):
            landing.take()


class Keeping(CudaStage):
    """Batches hold their slots until they are handed out, as objects do that stay on the host."""

    def begin(self, cargo):
        begun = super().begin(cargo)
        self._driver.reach(self._stream, self._stream.given)
        begun.batch.left["held"] = cargo.hold((1,), "uint8", 0)
        return begun

    def hand_out(self, begun):
        batch = super().hand_out(begun)
        del batch.left["held"]
        return batch


def test_batches_that_wait_to_be_taken_are_no_reason_to_say_that_memory_is_short():
    with World(RecordingDriver(), slots=2, ahead=3, stage=Keeping) as world, landing_in(world) as landing:
        for _ in range(6):
            world.use(*world.take_from(landing))
        world.driver.synchronize()
        assert world.wrong == []


def test_without_that_rule_it_would_be_said():
    class Hasty(Landing):
        def _bring_one(self):
            self._taken_count, kept = self._put_count, self._taken_count
            super()._bring_one()
            self._taken_count = kept

    with World(RecordingDriver(), slots=2, ahead=3, stage=Keeping) as world, landing_in(world, Hasty) as landing:
        until(lambda: landing._put_count == 3)
        world.asked = 3
        for _ in range(2):
            landing.hand_out(landing.take())
        with pytest.raises(Stuck):
            landing.take()


def test_batches_of_an_iteration_that_was_left_are_not_handed_out():
    with World(RecordingDriver(), slots=4, ahead=2) as world, landing_in(world) as landing:
        for _ in range(5):
            world.take_from(landing)
            world.restart(landing)
        world.take_from(landing)
        assert world.wrong == []


def test_without_that_rule_they_are():
    class Forgetful(Landing):
        def restart(self, first):
            """Takes no notice."""

    idle = threading.Event()
    with World(RecordingDriver(), slots=4, ahead=2) as world, landing_in(world, Forgetful, idle.set) as landing:
        assert idle.wait(20)
        world.restart(landing)
        world.take_from(landing)
        assert world.wrong == ["number 1 came where 3 should have"]


def test_a_batch_that_cannot_be_landed_raises_at_its_turn_and_the_next_one_comes():
    driver = RecordingDriver()
    idle = threading.Event()
    with World(driver, slots=2) as world, landing_in(world, about_to_wait=idle.set) as landing:
        assert idle.wait(20)
        driver.fails_at = 1
        idle.clear()
        seq, batch = world.take_from(landing)
        assert idle.wait(20)
        driver.fails_at = None
        world.use(seq, batch)
        del batch
        world.asked += 1
        delivery = landing.take()
        assert delivery.seq == 2
        with pytest.raises(RuntimeError, match="out of memory"):
            landing.hand_out(delivery)
        world.expected = 3
        world.use(*world.take_from(landing))
        driver.synchronize()
        assert world.wrong == []


def test_an_error_of_the_pool_is_raised_where_the_batch_would_have_come_and_again_when_asked_again():
    class Broken(World):
        def take(self):
            if self.seq == 2:
                raise OSError("no more")
            return super().take()

    with Broken(RecordingDriver(), ahead=3) as world, landing_in(world) as landing:
        for seq in (1, 2):
            assert world.take_from(landing)[0] == seq
        for _ in range(2):
            with pytest.raises(OSError, match="no more"):
                landing.take()


def test_what_breaks_the_thread_is_raised_whenever_a_batch_is_asked_for():
    class Broken(CudaStage):
        def settle(self):
            raise OSError("the device is gone")

    with World(RecordingDriver(), stage=Broken) as world, landing_in(world) as landing:
        assert world.take_from(landing)[0] == 1
        for _ in range(3):
            with pytest.raises(OSError, match="the device is gone"):
                landing.take()
        world.driver.reach(world.stage._stream, world.stage._stream.given)
        world.stage._underway.let_go()


def test_an_error_that_is_over_when_the_consumer_asks_again_is_not_told_twice():
    class Short(World):
        is_short = True

        def take(self):
            if self.is_short:
                raise OSError("no memory")
            return super().take()

    idle = threading.Event()
    with Short(RecordingDriver()) as world, landing_in(world, about_to_wait=idle.set) as landing:
        with pytest.raises(OSError, match="no memory"):
            landing.take()
        idle.clear()
        landing._calls.put(None)
        assert idle.wait(20)
        world.is_short = False
        world.use(*world.take_from(landing))
        world.driver.synchronize()
        assert world.wrong == []


def test_closing_drops_what_was_landed_and_ends_the_thread():
    idle = threading.Event()
    driver = RecordingDriver()
    with World(driver, slots=4, ahead=3) as world:
        with landing_in(world, about_to_wait=idle.set) as landing:
            assert idle.wait(20)
            landing.close()
            landing.close()
            assert driver.live_count == 0
            with pytest.raises(LoaderClosed):
                landing.take()
        world.close()
        assert world.wrong == []


def test_closing_wakes_a_consumer_that_waits():
    taking = threading.Event()
    let = threading.Event()

    class Slow(World):
        def take(self):
            taking.set()
            let.wait(20)
            raise LoaderClosed("closed")

        def leave(self):
            let.set()

    raised = []

    def consume(landing):
        try:
            landing.take()
        except LoaderClosed as error:
            raised.append(error)

    with Slow(RecordingDriver()) as world, landing_in(world) as landing:
        consumer = threading.Thread(target=consume, args=(landing,))
        consumer.start()
        assert taking.wait(20)
        landing.close()
        consumer.join(20)
        assert len(raised) == 1


def test_a_landing_that_never_began_can_be_closed():
    with World(RecordingDriver()) as world:
        landing = Landing(world.stage, world, NAME)
        landing.close()
        landing.start()
        assert landing._thread.ident is None


def test_the_thread_tells_from_when_to_when_it_landed_each_batch():
    told = []

    def told_of(*arguments):
        return Landing(*arguments, lambda _name: told.append)

    with World(RecordingDriver(), slots=4, ahead=2) as world, landing_in(world, told_of) as landing:
        for _ in range(3):
            world.take_from(landing)
        until(lambda: len(told) >= 3)
        assert {name for name, _, _ in told} == {"land ahead"}
        times = [moment for _, *moments in told for moment in moments]
        assert times == sorted(times)
