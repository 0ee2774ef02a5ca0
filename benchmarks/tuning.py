"""Tuning: whether what `tune` picks is as good as the best of everything that could be picked.

Measures: the decoding workload (400x400 JPEG, Pillow, crop, 224, flip, float32, batches of 64) with a consumer that
sleeps 40 ms per batch. First `loader.tune(consumer_ms=40)`, three times, each with a loader of its own. Then an
exhaustive sweep: 1 to 4 workers x 1 and 2 threads x data queues of 5, 10 and 40 batches, in turns, over several rounds.
A setting is part of it if it makes the same batches each time: threads do not, since samples draw their crops from
Python's own generator, as most datasets do. Then a play-off, in turns: what was picked, the best of the sweep, and the
best with each smaller number of workers than was picked. Rates are batches per second from one batch to another, after
what was lying ready was taken.

Leaves out: loaders that are bound by something else than decoding, devices, consumers that use cores themselves.

Command: `python -m benchmarks.tuning` (four minutes; `--quick` is a smoke run). The last table is `results/tuning.txt`.

Caveat: the best of many noisy figures is too good; so the play-off, not the sweep, decides.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.duel import RESULTS, say, shown
from benchmarks.jpeg_workload import JpegImages, jpeg_files
from swift_loader import SwiftLoader
from swift_loader.batch.digest import checksum_of_all

BATCH_SIZE = 64
CONSUMER_S = 0.040
REACH = 0.97
TRIES = 3
#: A batch that took longer to come was not lying ready.
READY_S = 1e-3


class Setting(NamedTuple):
    """What may be picked."""

    workers: int
    threads: int
    data_queue: int
    message_queue: int = 10


class Extent(NamedTuple):
    """How much is measured."""

    rounds: int
    batches: int
    finals: int
    tune_s: float
    settings: Sequence[Setting]


WHOLE = Extent(2, 60, 8, 100.0, [Setting(*each) for each in itertools.product((1, 2, 3, 4), (1, 2), (5, 10, 40))])
QUICK = Extent(1, 20, 2, 15.0, [Setting(*each) for each in itertools.product((1, 2, 3), (1,), (10,))])


def main() -> int:
    """Tunes, sweeps, plays off; the exit status is 1 where a pick falls short."""
    parser = argparse.ArgumentParser(description="Is what tune picks the best there is?")
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures mean nothing")
    parser.add_argument("--out", type=Path, default=None, help="folder of the results")
    given = parser.parse_args()
    extent = QUICK if given.quick else WHOLE
    files = jpeg_files(64)
    picks, seconds = [], []
    for number in range(TRIES):
        with made(files, Setting(1, 1, 10)) as loader:
            found = loader.tune(consumer_ms=1e3 * CONSUMER_S, seconds=extent.tune_s)
        picks.append(Setting(*found.choice))
        seconds.append(found.took_s)
        say(f"tuning {number + 1}/{TRIES}: {words(picks[-1])} in {found.took_s:.0f} s\n{found.table()}")
    bearable = {threads for threads in {each.threads for each in extent.settings} if is_reproducible(files, threads)}
    settings = [setting for setting in extent.settings if setting.threads in bearable]
    sweep = in_turns("sweep", files, settings, extent.rounds, extent.batches)
    finalists = contenders(picks, sweep)
    finals = in_turns("play-off", files, finalists, extent.finals, extent.batches)
    text, reached = told(picks, seconds, sweep, finals)
    if len(settings) < len(extent.settings):
        text += "Threads make other samples of this dataset each time: they were left out.\n"
    folder = given.out or (Path(tempfile.gettempdir()) / "swift-loader-benchmarks" if given.quick else RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / "tuning"
    stem.with_suffix(".txt").write_text(text)
    stem.with_suffix(".json").write_text(json.dumps(as_record(picks, seconds, sweep, finals), indent=1) + "\n")
    sys.stdout.write(f"\n{text}written: {shown(stem)}.json .txt\n")
    return 0 if reached else 1


def made(files: list[bytes], setting: Setting) -> SwiftLoader:
    """A loader that was not started."""
    return SwiftLoader(
        JpegImages,
        {"files": files, "count": 64 * BATCH_SIZE},
        BATCH_SIZE,
        1,
        setting.workers,
        seed=1,
        worker_threads=setting.threads,
        data_queue_size=setting.data_queue,
        message_queue_size=setting.message_queue,
    )


def is_reproducible(files: list[bytes], threads: int) -> bool:
    """Whether the batches are the same each time. Of one thread that is known, whatever else is set."""
    return threads == 1 or first_batches(files, threads) == first_batches(files, threads)


def first_batches(files: list[bytes], threads: int) -> list[int]:
    """What stands for them."""
    with made(files, Setting(1, threads, 10)) as loader:
        loader.start(0)
        return [checksum_of_all(batch) for batch in itertools.islice(loader, 4)]


def rate(files: list[bytes], setting: Setting, batches: int) -> float:
    """Batches per second that a consumer gets who sleeps after each."""
    with made(files, setting) as loader:
        loader.start(0)
        stream = itertools.chain.from_iterable(itertools.repeat(loader))
        for _ in range(4 * setting.workers + 8):  # every worker has its slots
            next(stream)
        came = time.perf_counter()
        for _ in range(4 * setting.data_queue):  # what lies ready is taken, or never ends
            before, _ = time.perf_counter(), next(stream)
            came = time.perf_counter()
            if came - before > READY_S:
                break
        for _ in range(batches):
            time.sleep(CONSUMER_S)
            next(stream)
        return batches / (time.perf_counter() - came)


Rates = dict[Setting, list[float]]


def in_turns(name: str, files: list[bytes], settings: Sequence[Setting], rounds: int, batches: int) -> Rates:
    """Every setting once per round, in an order that is turned from round to round."""
    found: Rates = {setting: [] for setting in settings}
    for number in range(rounds):
        order = list(settings) if number % 2 == 0 else list(reversed(settings))
        for setting in order:
            found[setting].append(rate(files, setting, batches))
        say(f"{name} {number + 1}/{rounds}")
    return found


def contenders(picks: Sequence[Setting], sweep: Rates) -> list[Setting]:
    """The picks, the best of all, and the best with each smaller number of workers."""
    best = max(sweep, key=lambda setting: median(sweep[setting]))
    chosen = {*picks, best}
    for count in range(1, max(pick.workers for pick in picks)):
        fewer = [setting for setting in sweep if setting.workers == count]
        if fewer:
            chosen.add(max(fewer, key=lambda setting: median(sweep[setting])))
    return sorted(chosen)


def told(picks: Sequence[Setting], seconds: Sequence[float], sweep: Rates, finals: Rates) -> tuple[str, bool]:
    """The table, and whether every pick reached what it should."""
    best = max(finals, key=lambda setting: median(finals[setting]))
    lines = [
        f"Tuning: decoding, batches of {BATCH_SIZE}, a consumer of {1e3 * CONSUMER_S:.0f} ms per batch",
        "",
        f"{'workers, threads, queue':<28}{'batches/s':>10}{'lowest':>9}{'highest':>9}{'of best':>9}{'sweep':>9}",
        "-" * 74,
    ]
    for setting, rates in finals.items():
        swept = f"{median(sweep[setting]):.2f}" if setting in sweep else "-"
        numbers = f"{median(rates):>10.2f}{min(rates):>9.2f}{max(rates):>9.2f}{share(finals, setting, best):>9.3f}"
        lines.append(f"{words(setting):<28}{numbers}{swept:>9}")
    lines += ["", f"{'tune picked':<28}{'seconds':>10}{'of best':>9}  fewest workers that reach {REACH}"]
    lines.append("-" * 74)
    reached = True
    for pick, took in zip(picks, seconds, strict=True):
        fewer = [each for each in finals if each.workers < pick.workers and share(finals, each, best) >= REACH]
        is_good = share(finals, pick, best) >= REACH and not fewer
        reached &= is_good
        verdict = "yes" if is_good else f"NO: {words(fewer[0])} do" if fewer else "NO"
        lines.append(f"{words(pick):<28}{took:>10.0f}{share(finals, pick, best):>9.3f}  {verdict}")
    known = machine.facts()
    footer = f"{known['cores']} cores {known['cpu']}, Python {known['python']}, commit {machine.commit()}"
    return "\n".join([*lines, "", footer[:80], ""]), reached


def share(finals: Rates, setting: Setting, best: Setting) -> float:
    """Of the best: the middle of the ratios, each within a round."""
    return median(one / other for one, other in zip(finals[setting], finals[best], strict=True))


def words(setting: Setting) -> str:
    """Short."""
    messages = "" if setting.message_queue == Setting(1, 1, 1).message_queue else f", messages {setting.message_queue}"
    return f"{setting.workers} x {setting.threads}, {setting.data_queue}{messages}"


def as_record(picks: Sequence[Setting], seconds: Sequence[float], sweep: Rates, finals: Rates) -> dict[str, Any]:
    """The run as it is kept."""
    return {
        "question": "tuning",
        "commit": machine.commit(),
        "machine": machine.facts(),
        "picks": [{**pick._asdict(), "seconds": took} for pick, took in zip(picks, seconds, strict=True)],
        "sweep": [{**setting._asdict(), "rates": rates} for setting, rates in sweep.items()],
        "finals": [{**setting._asdict(), "rates": rates} for setting, rates in finals.items()],
    }


if __name__ == "__main__":
    raise SystemExit(main())
