"""The rig keeps two loaders at most, and tells a dataset that raises from a count that cannot be had."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest

from swift_loader.errors import DataError, WorkerDied
from swift_loader.host import cores, load
from swift_loader.tuning.looks import Choice, Failure, Look
from swift_loader.tuning.rig import Rig


class Loader:
    """Gives batches at once, and knows whether it is alive."""

    def __init__(self, choice: Choice, error: Exception | None = None, first: int = 0) -> None:
        self.pids = [os.getpid()]
        self.choice, self.error, self.is_alive, self.taken, self.first = choice, error, True, 0, first

    def __iter__(self):
        for _ in range(50):
            if self.error is not None:
                raise self.error
            self.taken += 1
            yield self.first + self.taken

    def statistics(self) -> dict[str, float]:
        made_s = 0.001 * self.taken
        warm = min(self.choice.workers, self.taken // 3)
        return {
            "fetch_s": made_s, "collate_s": made_s, "encode_s": 0.0, "samples": 8.0 * self.taken, "workers_warm": warm,
        }  # fmt: skip

    @property
    def worker_pids(self) -> list[int]:
        return self.pids

    def close(self) -> None:
        self.is_alive = False


class Yard:
    """Starts loaders and remembers them."""

    def __init__(self) -> None:
        self.loaders: list[Loader] = []
        self.errors: dict[Choice, Exception] = {}
        self.first: Callable[[Choice], int] = lambda _: 0
        """What a loader's samples begin with."""

    def __call__(self, choice: Choice) -> Loader:
        self.loaders.append(Loader(choice, self.errors.get(choice), self.first(choice)))
        return self.loaders[-1]

    @property
    def alive(self) -> list[Choice]:
        return [loader.choice for loader in self.loaders if loader.is_alive]


@pytest.fixture
def yard():
    return Yard()


def test_a_look_counts_what_came_and_what_it_cost(yard: Yard):
    rig = Rig(yard, consumer_s=0.002)
    look = rig.look(Choice(3), 0.05)
    rig.close()
    assert isinstance(look, Look)
    assert look.seconds >= 0.05
    assert look.samples == 8 * look.batches
    assert look.made_s == pytest.approx(0.002 * look.batches)
    assert look.worker_nbytes > 0
    assert yard.alive == []


def test_a_loader_is_warm_when_every_worker_has_made_a_batch(yard: Yard):
    rig = Rig(yard, consumer_s=0.0)
    rig.look(Choice(4), 0.0)
    rig.close()
    assert yard.loaders[0].taken >= 12


def test_at_most_two_are_alive_and_what_is_looked_at_next_stays(yard: Yard):
    rig = Rig(yard, consumer_s=0.0)
    rig.look(Choice(1), 0.0)
    rig.look(Choice(2), 0.0)
    assert yard.alive == [Choice(1), Choice(2)]
    rig.look(Choice(3), 0.0, beside=Choice(1))
    assert yard.alive == [Choice(1), Choice(3)]
    rig.look(Choice(1), 0.0)
    assert len(yard.loaders) == 3
    rig.close()
    assert yard.alive == []


@pytest.mark.parametrize("error", [DataError("sample 3 raised"), WorkerDied("no memory")])
def test_what_the_first_loader_raises_is_raised(yard: Yard, error: Exception):
    yard.errors[Choice(1)] = error
    rig = Rig(yard, consumer_s=0.0)
    with pytest.raises(type(error), match=str(error)):
        rig.look(Choice(1), 0.0)
    rig.close()
    assert yard.alive == []


@pytest.mark.parametrize(
    ("choice", "error", "raises"),
    [
        (Choice(9), WorkerDied("no memory\nits stack"), False),
        (Choice(1, 4), DataError("sample 3 raised"), False),
        (Choice(9), DataError("sample 3 raised"), True),
    ],
)
def test_later_a_count_that_cannot_be_had_is_a_failure_and_a_bad_sample_is_not(
    yard: Yard, choice: Choice, error: Exception, raises: bool
):
    yard.errors[choice] = error
    rig = Rig(yard, consumer_s=0.0)
    rig.look(Choice(1), 0.0)
    if raises:
        with pytest.raises(DataError):
            rig.look(choice, 0.0)
    else:
        assert rig.look(choice, 0.0) == Failure(str(error).partition("\n")[0])
        assert yard.alive == [Choice(1)]
    rig.close()


BUSY = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(100)"


def test_a_look_begins_when_the_others_have_filled_their_queues(yard: Yard, monkeypatch):
    # On a busy machine whoever computes may have no core for as long as a glance takes: here one takes longer than any
    # scheduler lets it wait for a tenth of that.
    monkeypatch.setattr("swift_loader.tuning.rig._GLANCE_S", 0.3)
    monkeypatch.setattr("swift_loader.tuning.rig._SETTLING_S", 60.0)
    rig = Rig(yard, consumer_s=0.0)
    rig.look(Choice(1), 0.0)
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy:
        yard.loaders[0].pids = [busy.pid]
        rig.look(Choice(2), 0.0, beside=Choice(1))
        used_s = load.load_of([busy.pid]).cpu_s
        busy.kill()
    assert used_s > 0.45
    rig.close()


def test_others_that_never_rest_are_not_waited_for_long(yard: Yard, monkeypatch):
    monkeypatch.setattr("swift_loader.tuning.rig._SETTLING_S", 0.2)
    rig = Rig(yard, consumer_s=0.0)
    rig.look(Choice(1), 0.0)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        yard.loaders[0].pids = [busy.pid]
        assert isinstance(rig.look(Choice(2), 0.0, beside=Choice(1)), Look)
        busy.kill()
    rig.close()


def test_threads_that_make_other_samples_each_time_cannot_be_had(yard: Yard):
    yard.first = lambda choice: 1000 * len(yard.loaders) if choice.threads > 1 else 0
    rig = Rig(yard, consumer_s=0.0)
    rig.look(Choice(1), 0.0)
    found = rig.look(Choice(1, 2), 0.0)
    assert isinstance(found, Failure)
    assert "other samples each time" in found.reason
    assert Choice(1, 2) not in yard.alive
    assert isinstance(rig.look(Choice(2), 0.0), Look)
    rig.close()
    assert yard.alive == []


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(lambda _yard, _choice: 0, id="those that one thread makes"),
        pytest.param(lambda _yard, choice: 7 * (choice.threads > 1), id="others, drawn sample by sample"),
        pytest.param(lambda yard, _choice: 1000 * len(yard.loaders), id="never the same, by one thread either"),
    ],
)
def test_threads_that_are_as_reproducible_as_one_thread_are_looked_at(yard: Yard, first: Callable[[Yard, Choice], int]):
    yard.first = partial(first, yard)
    rig = Rig(yard, consumer_s=0.0)
    rig.look(Choice(1), 0.0)
    assert isinstance(rig.look(Choice(1, 2), 0.0), Look)
    count = len(yard.loaders)
    assert isinstance(rig.look(Choice(2, 2), 0.0), Look)
    assert len(yard.loaders) == count + 1  # that is known by now
    rig.close()
    assert yard.alive == []


def test_batches_that_come_in_any_order_say_nothing_of_threads(yard: Yard):
    yard.first = lambda choice: 1000 * len(yard.loaders) if choice.threads > 1 else 0
    rig = Rig(yard, consumer_s=0.0, compares=False)
    rig.look(Choice(1), 0.0)
    assert isinstance(rig.look(Choice(1, 2), 0.0), Look)
    rig.close()


def test_what_processes_use_is_read_and_those_that_have_gone_count_for_nothing():
    spent = sum(range(3_000_000))
    mine = load.load_of([os.getpid()])
    assert spent > 0
    assert mine.cpu_s > 0
    assert mine.nbytes > 1 << 20
    assert load.load_of([]) == load.load_of([2**22 + 1]) == (0.0, 0.0, 0)


def test_one_of_several_consumers_has_its_share_of_the_cores_and_gives_it_back():
    allowed = os.sched_getaffinity(0)
    with cores.confined(len(allowed)):
        assert len(os.sched_getaffinity(0)) == 1
        assert cores.usable(len(allowed)) <= 1
    assert os.sched_getaffinity(0) == allowed
    with cores.confined(1):
        assert os.sched_getaffinity(0) == allowed
