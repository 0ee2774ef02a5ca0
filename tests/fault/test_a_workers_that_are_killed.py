"""Rows A1, A2 and A8 of the faults: workers that are killed, from outside or by a sample.

The kills of a storm are drawn from a seed, which is printed when it fails. Ten thousand of them: ``-m soak``.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from swift_loader import DataError, PoisonedTicket
from swift_loader.testing import Nemesis
from tests.datasets import Deadly, Random
from tests.deadly_datasets import SlowAtFirst
from tests.fault.soaked import Soak
from tests.loaders import started, stream
from tests.slow import slow
from tests.watching import flat, plain, until, workers

COUNT, BATCH = 200, 4
#: Without workers samples draw from this process's own generators, which two storms at the same time share.
_drawing = threading.Lock()


#: Of workers that are killed faster than they can make one batch that one is poison, after four times as many as this.
_MANY = 100


def storm(
    seed: int,
    kills: int,
    every_s: tuple[float, float] = (0.05, 0.1),
    told: Callable[[str], None] = lambda _: None,
    **settings: object,
) -> tuple[int, int]:
    """Whole epochs, until so many workers were killed; each must be what it is without a kill. Tells kills, epochs."""
    epochs = 0
    with (
        started(Random, {"count": COUNT}, batch_size=BATCH, max_attempts=_MANY, **settings) as loader,
        Nemesis(loader, every_s, seed=seed) as nemesis,
    ):
        while nemesis.strikes < kills:
            found = list(map(plain, loader))
            assert found == _expected(epochs), f"seed {seed}, epoch {epochs}, after {nemesis.strikes} kills"
            epochs += 1
            told(f"{nemesis.strikes} of {kills} kills")
    return nemesis.strikes, epochs


def _expected(epoch: int) -> list:
    with _drawing, started(Random, {"count": COUNT}, batch_size=BATCH, worker_per_consumer=0) as loader:
        loader.set_epoch(epoch)
        return [plain(batch) for batch in loader]


@pytest.mark.parametrize("kills", [15, slow(150)])
def test_a2_a_storm_of_kills_loses_nothing_and_doubles_nothing(kills: int):
    """Two at the same time, among one worker and among four."""
    with ThreadPoolExecutor(2) as both:
        storms = [both.submit(storm, seed=1, kills=kills, worker_per_consumer=count) for count in (1, 4)]
        assert sum(one.result()[0] for one in storms) >= 2 * kills


@pytest.mark.slow
def test_a2_a_storm_among_workers_that_are_spawned():
    # They take 0.1 s to start. Killed more often than that, they would be killed at the same first sample each time.
    storm(seed=1, kills=15, every_s=(0.3, 0.5), start_method="spawn")


def test_a2_a_storm_that_nobody_lives_through_his_first_sample_in_makes_no_batch_poison():
    kwargs = {"count": 96, "seconds": 0.3}
    with started(SlowAtFirst, kwargs, worker_per_consumer=3, shuffle=False, validate=False) as loader:
        with Nemesis(loader, every_s=(0.03, 0.03), seed=1) as nemesis:
            until(lambda: nemesis.strikes >= 60, "60 kills")
        assert flat(loader) == list(range(96))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a2_ten_thousand_kills():
    soak = Soak("kills", "one kill every 50 to 100 ms among 4 workers; each epoch compared with one without kills", 2)
    kills, epochs = storm(soak.seed, 10_000, told=soak.progress, worker_per_consumer=4)
    soak.keep(kills=kills, epochs=epochs, epochs_exact=epochs, batches_lost=0, batches_doubled=0)


@pytest.mark.parametrize("method", ["forkserver", slow("spawn"), "fork"])
@pytest.mark.parametrize("in_main_thread", [True, False])
def test_a1_a_worker_killed_at_a_random_batch_is_replaced(method: str, in_main_thread: bool):
    chance = random.Random(f"{method} {in_main_thread}")
    expected = stream(Random, {"count": COUNT}, worker_per_consumer=0)
    found: list = []

    def consume() -> None:
        with started(Random, {"count": COUNT}, start_method=method, data_queue_size=1, message_queue_size=1) as loader:
            for step, batch in enumerate(loader):
                found.append(plain(batch))
                if step in (chance_step, chance_step + 3):
                    until(workers)[0].kill()

    chance_step = chance.randrange(1, 20)
    if in_main_thread:
        consume()
    else:
        if method == "fork":
            pytest.skip("fork is refused where threads run")
        thread = threading.Thread(target=consume)
        thread.start()
        thread.join(60)
    assert found == expected


def test_a8_a_poison_sample_is_named_and_with_no_more_attempts_than_were_set(tmp_path):
    with started(Deadly, {"folder": str(tmp_path), "how": "segfault"}, shuffle=False, max_attempts=2) as loader:
        begun = time.monotonic()
        with pytest.raises(PoisonedTicket, match=r"killed 2 workers.* sample 13"):
            list(loader)
        assert time.monotonic() - begun < 20  # to reach: 2 s
        with pytest.raises(PoisonedTicket):  # in the next epoch too
            list(loader)
    assert issubclass(PoisonedTicket, Exception)
    assert not issubclass(PoisonedTicket, DataError)
