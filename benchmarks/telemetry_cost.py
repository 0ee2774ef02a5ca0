"""Telemetry: what measuring costs for each batch, in nanoseconds, where a batch is made and where it is consumed.

Measures: batches of 32, 256 and 1,024 samples, quick ones (views of an array), slow ones (20 us of work each) and named
ones (with a string beside, which no single loop can write), made by a worker's own code in this process with
`benchmark=True` and with `benchmark=False`, by turns. And what the consumer's thread does to note one batch: the looks
at the clock, the record, and all that becomes of it: sums, histograms, and, with a `benchmark_file`, its line. With
`benchmark=False` all that is left are four looks at the clock for a batch, by which the loader steers: how long a batch
took decides how many orders wait in a channel.

Leaves out: the 24 bytes by which a parcel is longer; the end of an epoch (a millisecond, once).

Command: `python -m benchmarks.telemetry_cost [--seconds 4]`. Goal: at most 20 us for each batch in either process, for
slow samples and quick ones alike.

Caveat: most of it are two looks at the clock for each of 64 samples, whose price is the machine's, and twice as high
when others keep it busy.
"""

from __future__ import annotations

import argparse
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from types import SimpleNamespace
from typing import Any

import numpy as np

from swift_loader.consumer.witness import Witness
from swift_loader.device.stage import Laps
from swift_loader.orders.tickets import Full, Ticket
from swift_loader.plan.ahead import Ahead
from swift_loader.settings.loader import LoaderConfig
from swift_loader.telemetry import Moments
from swift_loader.wire.facts import Facts
from swift_loader.wire.messages import Cost, Parcel
from swift_loader.wire.page import Cell
from swift_loader.wire.recipe import Recipe
from swift_loader.worker.berth import Wanted
from swift_loader.worker.gauges import Clocks
from swift_loader.worker.info import WorkerInfo
from swift_loader.worker.maker import BatchMaker

GOAL_NS = 20_000
SAMPLES = 8192
#: Its checksum takes about 20 us.
TEXT = bytes(60_000)
#: With and without by turns, as many batches as take about so long: in a short turn nobody else runs, mostly.
TURN_NS = 5_000_000


class Quick:
    """Rows of an array."""

    def __init__(self) -> None:
        self.rows = np.zeros((SAMPLES, 16), np.float32)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return self.rows[index], index


class Slow(Quick):
    """The same after 20 us of work."""

    def __getitem__(self, index: int) -> Any:
        zlib.crc32(TEXT)
        return self.rows[index], index


class Named(Quick):
    """A name beside each row."""

    def __getitem__(self, index: int) -> Any:
        return self.rows[index], str(index)


class Berth:
    """A slot that is always large enough."""

    def __init__(self) -> None:
        self.slot = SimpleNamespace(memory=np.zeros(1 << 20, np.uint8), nbytes=1 << 20, views={})
        self.wanted = Wanted([1], 1)
        self.following = None
        self.careful = False
        self.slot_ns = 0

    def room(self, *_: int, **__: int) -> Any:
        return self.slot


def making(dataset: Quick, batch_size: int, *, measures: bool) -> Callable[[], None]:
    """What makes one batch, as a worker does."""
    config = LoaderConfig.parse(batch_size, 1, 1, False, {"benchmark": measures})
    recipe = Recipe(None, {}, dataset, config, 1, 0)
    info = WorkerInfo(0, 0, 1, per_sample=False)
    ahead = Ahead(recipe.plan(Facts(SAMPLES)), 0, batch_size)
    maker = BatchMaker(recipe, dataset, ahead, info, Cell(memoryview(bytearray(64)).cast("q")))
    clocks = Clocks() if measures else None
    berth, steps = Berth(), SAMPLES // batch_size
    state = {"step": 0}

    def make() -> None:
        begun = perf_counter_ns() if clocks is not None else 0
        waited = perf_counter_ns() - begun if clocks is not None else 0
        state["step"] = (state["step"] + 1) % steps
        made = maker.make(1, 0, state["step"], berth)
        if clocks is not None:
            clocks.since(made.cost.made_ns + waited)

    return make


def noting(path: str | None) -> Callable[[], None]:
    """What notes one batch, as the consumer's thread does; without what it does anyway."""
    config = LoaderConfig.parse(32, 1, 1, False, {"benchmark_file": path})
    witness = Witness(Recipe(None, {}, None, config, 1, 0))
    witness.open()
    parcel = Parcel(1, 0, 0, 32, 100_000, Cost(4_000_000, 1_000_000, 0, 0, 200_000, 7, 2_000_000, 5_000_000, 1000))

    def note() -> None:
        handed = perf_counter_ns()
        busy_ns = perf_counter_ns() - handed
        asked = perf_counter_ns()
        came = perf_counter_ns()
        delivery = Full(Ticket(1, 0, 0), parcel, 0, perf_counter_ns())
        delivery.laps = Laps()
        delivery.laps.decode_ns = perf_counter_ns() - perf_counter_ns()
        witness.note(delivery, Moments(delivery.came_ns, asked, came, perf_counter_ns()), busy_ns)

    return note


def per_call_ns(action: Callable[[], None], count: int) -> float:
    """CPU time of this thread, so that whoever else uses the machine is not measured."""
    begun = thread_time_ns()
    for _ in range(count):
        action()
    return (thread_time_ns() - begun) / count


def difference_ns(measured: Callable[[], None], silent: Callable[[], None], seconds: float) -> float:
    """What ``measured`` takes longer."""
    ends = perf_counter_ns() + seconds * 1e9
    found: list[tuple[float, float]] = []
    count = max(1, int(TURN_NS / max(per_call_ns(action, 20) for action in (measured, silent))))
    while perf_counter_ns() < ends or len(found) < 20:
        found.append((per_call_ns(measured, count), per_call_ns(silent, count)))
    return undisturbed(one for one, _ in found) - undisturbed(one for _, one in found)


def undisturbed(found: Iterable[float]) -> float:
    """What a tenth of the turns stay below: others on the machine only ever make it longer."""
    ordered = sorted(found)
    return ordered[len(ordered) // 10]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each of the cases (default: %(default)s)")
    seconds = parser.parse_args().seconds
    print(f"{'what measuring a batch costs':<44}{'ns':>10}")
    with tempfile.TemporaryDirectory() as folder:
        consumer = {
            "consumer, sums and histograms": undisturbed(per_call_ns(noting(None), 2048) for _ in range(19)),
            "consumer, and a line in benchmark_file": undisturbed(
                per_call_ns(noting(str(Path(folder) / f"{turn}.jsonl")), 2048) for turn in range(19)
            ),
        }
    for name, cost in consumer.items():
        print(f"{name:<44}{cost:>10,.0f}")
    worst = 0.0
    for kind, dataset in (("quick", Quick()), ("slow", Slow()), ("named", Named())):
        for batch_size in (32, 256, 1024):
            makers = [making(dataset, batch_size, measures=measures) for measures in (True, False)]
            cost = difference_ns(*makers, seconds)
            worst = max(worst, cost)
            print(f"{f'worker, {batch_size} {kind} samples':<44}{cost:>10,.0f}")
    worst = max(worst, *consumer.values())
    print(f"{'the dearest of them':<44}{worst:>10,.0f}   (goal: <= {GOAL_NS:,})")
    return int(worst > GOAL_NS)


if __name__ == "__main__":
    raise SystemExit(main())
