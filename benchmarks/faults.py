"""Faults: how often, how fast and how wholly the loader comes through what happens to workers and trainers.

Measures: the figures that were to be reached, each with its number of measurements, median, p95, p99 and longest. One
random kill per epoch, and a kill every 100 ms (samples of 2 ms, the throughput as a share of the same epochs without
kills): the bytes of each epoch are compared with those of a loader without workers. Worker deaths: from just before the
signal until the loader's telecom thread takes note, and until the replacement's first batch, with one worker and a
dataset that is cheap to build. A worker that is stopped: until another delivers. `close()`. A trainer killed by SIGKILL
in various states: until no process of it is left, then what else is left. A SIGTERM to the whole job: whether the
trainer gets the batches it still wants, and saves its checkpoint. Loaders started and closed over and over.

Leaves out: ten thousand kills and ten thousand cycles (`pytest -m soak tests/fault`); other start methods than
forkserver (the tests); GPUs.

Command: `python -m benchmarks.faults` (about five minutes; `--quick` for a smoke run, `--only` for some of it,
`--epochs` and `--times` for more). The last table is `results/faults.txt`, and stands in
swift_loader/docs/faults.md.

Caveat: times of a few milliseconds on two cores are those of a machine on which nothing else runs. A trainer's end is
that of its whole family: its own memory has to be given back too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import fault_figures, fault_workers, machine, trainer
from benchmarks.apart import run_apart
from benchmarks.duel import RESULTS, say, shown
from benchmarks.fault_figures import Figure, Limit

TITLE = "Faults: what the loader comes through, and how fast"
PAGE = machine.ROOT / "swift_loader" / "docs" / "faults.md"
DEADLINE_S = 600.0


@dataclass(frozen=True)
class Measurement:
    """One measurement, made in a process of its own."""

    run: Callable[[int, int], list[Figure]]
    times: int
    quick_times: int


MEASUREMENTS = {
    "one_kill": Measurement(fault_workers.one_kill, 1000, 10),
    "storm": Measurement(fault_workers.storm, 300, 2),
    "deaths": Measurement(fault_workers.deaths, 50, 1),
    "stopped": Measurement(fault_workers.stopped, 15, 1),
    "closing": Measurement(fault_workers.closing, 15, 1),
    "orphans": Measurement(trainer.orphans, 20, 1),
    "checkpoints": Measurement(trainer.checkpoints, 100, 2),
    "cycles": Measurement(fault_workers.cycles, 200, 3),
}


def main() -> int:
    """Measures; the exit status is 1 when a measurement failed, not when a figure was missed."""
    given = parse()
    names = [name for name in MEASUREMENTS if not given.only or name in given.only.split(",")]
    if given.here:
        found = [each for name in names for each in MEASUREMENTS[name].run(times_of(name, given), given.seed)]
        print(json.dumps([dataclasses.asdict(figure) for figure in found]), flush=True)
        return 0
    figures: list[Figure] = []
    failures: list[str] = []
    begun, load = time.monotonic(), os.getloadavg()[0]
    for group in [names] if given.quick else [[name] for name in names]:
        say(f"faults: {', '.join(f'{name} {times_of(name, given)} times' for name in group)}")
        found_ones, error = measured(",".join(group), given)
        figures += found_ones
        failures += [error] if error else []
    publish(figures, failures, (time.monotonic() - begun, load), given)
    return 1 if failures else 0


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds; its figures mean nothing")
    parser.add_argument("--only", default="", help=f"of {','.join(MEASUREMENTS)}, separated by commas")
    parser.add_argument("--epochs", type=int, default=None, help="epochs with one kill each (1000)")
    parser.add_argument("--times", type=int, default=None, help="how often everything else is measured")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="folder of the results")
    parser.add_argument("--here", action="store_true", help="measure in this very process, and print JSON")
    return parser.parse_args()


def times_of(name: str, given: argparse.Namespace) -> int:
    """How often a measurement is made in this run."""
    asked: int | None = given.epochs if name == "one_kill" else given.times
    plan = MEASUREMENTS[name]
    return asked or (plan.quick_times if given.quick else plan.times)


def measured(names: str, given: argparse.Namespace) -> tuple[list[Figure], str]:
    """The figures of some measurements, made in one child process; or why there are none."""
    words = ["benchmarks.faults", "--here", "--only", names, "--seed", str(given.seed)]
    words += ["--quick"] if given.quick else []
    for option in ("epochs", "times"):
        if (number := getattr(given, option)) is not None:
            words += [f"--{option}", str(number)]
    ended = run_apart(words, DEADLINE_S)
    if ended.code == 0:
        return [figure_of(each) for each in json.loads(ended.out.splitlines()[-1])], ""
    end = f"still running after {DEADLINE_S:.0f} s" if ended.code is None else f"exit code {ended.code}"
    return [], "\n  ".join([f"{names}: {end}", *ended.err.strip().splitlines()[-6:]])


def figure_of(record: dict[str, Any]) -> Figure:
    """A figure as it came out of its process."""
    return Figure(**{**record, "limits": tuple(Limit(**limit) for limit in record["limits"])})


def publish(
    figures: Sequence[Figure], failures: list[str], run: tuple[float, float], given: argparse.Namespace
) -> None:
    """Writes the three files, prints the table, and, of a whole real run, puts it into the page."""
    seconds, load = run
    # Fewer measurements than are asked for prove less: only a whole run may replace the results that are kept.
    fewer = any(times_of(name, given) < plan.times for name, plan in MEASUREMENTS.items())
    partial = bool(given.only) or fewer
    folder: Path = given.out or (Path(tempfile.gettempdir()) / "swift-loader-benchmarks" if partial else RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    known = machine.facts()
    footer = (
        f"{'SMOKE RUN, ' if given.quick else ''}{seconds:.0f} s, seed {given.seed}, load before {load:.1f}, "
        f"{known['cores']} cores "
        f"{known['cpu']}, Python {known['python']}, commit {machine.commit()}"
    )
    record = {
        "title": TITLE,
        "command": "python -m benchmarks.faults",
        "commit": machine.commit(),
        "machine": known,
        "seed": given.seed,
        "seconds": round(seconds, 1),
        "load_before": round(load, 2),
        "counts": {figure.name: len(figure.values) for figure in figures},
        "quick": given.quick,
        "failures": failures,
        "figures": [fault_figures.as_record(figure) for figure in figures],
    }
    stem = folder / "faults"
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    text = fault_figures.table(TITLE, figures, [*(f"FAILED {each}" for each in failures), footer])
    stem.with_suffix(".txt").write_text(text)
    fault_figures.draw(TITLE, figures, footer, stem.with_suffix(".png"))
    if not partial and given.out is None:
        fault_figures.put_between(PAGE, "figures", f"{fault_figures.as_markdown(figures)}\n{footer}\n")
    sys.stdout.write(f"\n{text}written: {shown(stem)}.json .txt .png\n")


if __name__ == "__main__":
    raise SystemExit(main())
