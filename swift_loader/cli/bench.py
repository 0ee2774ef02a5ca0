"""`swift-loader bench package.module:Dataset`: a dataset beside torch's DataLoader, on this machine.

Measures nothing itself: every side of every round is a process of its own, and they come in turns.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from swift_loader.cli import aside, bar, naming
from swift_loader.cli.bench_side import EPOCHS, SIDES, Measured, Spec
from swift_loader.errors import ConfigError
from swift_loader.host import cores
from swift_loader.settings.arguments import StartMethod

if TYPE_CHECKING:
    from swift_loader.cli.bench_report import Report

_CHILD = ("-c", "import sys; from swift_loader.cli.bench_side import main; sys.exit(main())")
_BAR = "{desc:<28.28} |{bar}| {n_fmt}/{total_fmt}, {remaining} left"
#: An epoch has at least so many batches for each worker: else the first and the last of them are most of it.
_LEAST_BATCHES = 10
#: So much longer than meant a whole epoch may be before an excerpt stands for it.
_A_LITTLE_LONGER = 2.0
#: Beyond what the rounds themselves may take: for starting, and for ending.
_PATIENCE_S = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("dataset", help="package.module:Dataset, a class or a function that makes the dataset")
    parser.add_argument("--kwargs", default="{}", help="its arguments, as JSON (default: %(default)s)")
    parser.add_argument("--batch-size", type=naming.positive, default=32, help="default: %(default)s")
    parser.add_argument("--workers", type=naming.positive, default=2, help="of every side (default: %(default)s)")
    parser.add_argument("--collate", metavar="pkg.mod:fn", help="the collate_fn of every side")
    parser.add_argument("--start-method", choices=get_args(StartMethod)[1:], help="default: each side's own")
    parser.add_argument("--consumer-ms", type=float, default=0.0, metavar="T", help="a pause after each batch")
    parser.add_argument("--sides", nargs="+", choices=tuple(SIDES), default=list(SIDES), help="default: all")
    parser.add_argument("--rounds", type=naming.positive, default=3, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=6.0, metavar="S",
                        help="about so long each side runs in a round (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("swift-loader-bench"), metavar="FOLDER",
                        help="where page, chart and JSON go (default: ./%(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Prints the comparison; 1 if a side failed, 2 if it was called wrongly, 130 if it was stopped."""
    from swift_loader.cli import bench_report, results  # what it needs may be missing: better known now

    naming.look_here()
    try:
        spec = _spec(arguments)
        report = _looked_at(spec, arguments.seconds)
    except ConfigError as error:
        print(f"swift-loader bench: {error}", file=sys.stderr)
        return 2
    except aside.NoAnswer as error:
        print(f"swift-loader bench: the dataset cannot be looked at: {error}", file=sys.stderr)
        return 1
    is_stopped = False
    try:
        for latest in _rounds(report, arguments.sides, arguments.rounds):
            report = latest
    except KeyboardInterrupt:
        is_stopped = True
        bar.wipe()
        print("stopped; so far:\n")
    told = report.to_dict()
    print(json.dumps(told, indent=1) if arguments.json else report)
    if is_stopped:
        return 130
    is_written = results.write(arguments.out, "bench", told, bench_report.panels(report), bench_report.page(report))
    return 0 if is_written and not report.failures else 1


def _looked_at(spec: Spec, seconds: float) -> Report:
    """A report without rounds, once it is known how long an epoch is."""
    from swift_loader.cli.bench_report import Report

    print("looking at the dataset ...", file=sys.stderr)
    gauge = aside.answer_of(_CHILD, {"side": "gauge", "spec": asdict(spec), "seconds": min(2.0, seconds)}, _PATIENCE_S)
    fitting = sized(spec, gauge["length"], gauge["sample_s"], seconds)
    return Report(fitting, gauge["length"], float(len(cores.allowed())), {}, {})


def sized(spec: Spec, length: int, sample_s: float, seconds: float) -> Spec:
    """With epochs of such a length that all of them take about so many seconds."""
    count = len(cores.allowed())
    batch_s = max(spec.batch_size * sample_s / min(spec.workers, count), spec.consumer_ms / 1e3, 1e-6)
    whole = -(-length // spec.batch_size)
    steps = max(_LEAST_BATCHES * spec.workers, int(seconds / EPOCHS / batch_s))
    limit_s = _PATIENCE_S / 2 + 4 * seconds
    return replace(spec, steps=None if whole <= _A_LITTLE_LONGER * steps else steps, limit_s=limit_s)


def _spec(arguments: argparse.Namespace) -> Spec:
    naming.named(arguments.dataset)
    if arguments.collate is not None:
        naming.named(arguments.collate, "the collate_fn is named as package.module:function")
    return Spec(
        dataset=arguments.dataset,
        kwargs=naming.arguments_of(arguments.kwargs),
        batch_size=arguments.batch_size,
        workers=arguments.workers,
        collate=arguments.collate,
        start_method=arguments.start_method,
        consumer_ms=arguments.consumer_ms,
        seed=arguments.seed,
    )


def _rounds(report: Report, sides: Sequence[str], count: int) -> Iterator[Report]:
    """Runs every side in every round, each round beginning with another; gives the report after each."""
    turns = [sides[(number + place) % len(sides)] for number in range(count) for place in range(len(sides))]
    rounds: dict[str, list[Measured]] = {}
    failures: dict[str, str] = {}
    for side in _with_bar(turns):
        if side in failures:
            continue
        try:
            told = {"side": side, "spec": asdict(report.spec), "length": report.length}
            answer = aside.answer_of(_CHILD, told, report.spec.limit_s + _PATIENCE_S)
            rounds.setdefault(side, []).append(Measured(**answer))
        except aside.NoAnswer as error:
            failures[side] = str(error)
        yield replace(report, rounds=rounds, failures=failures)


def _with_bar(turns: list[str]) -> Iterator[str]:
    with bar.bars()(turns, disable=None, leave=False, ncols=bar.WIDTH, bar_format=_BAR) as shown:
        for side in shown:
            shown.set_description_str(side)
            yield side
