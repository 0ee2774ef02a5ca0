"""`swift-loader tune package.module:Dataset`: how many workers, threads and queued batches, for this machine."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from swift_loader.cli import bar, naming
from swift_loader.errors import ConfigError, SwiftLoaderError
from swift_loader.loader import SwiftLoader
from swift_loader.settings.arguments import StartMethod
from swift_loader.telemetry.words import nbytes

if TYPE_CHECKING:
    from swift_loader.cli.chart import Panel
    from swift_loader.cli.page import Page
    from swift_loader.tuning import Progress, Tuning

#: There is room for a choice that differs in everything.
_BAR = "|{bar:8}| {desc:.67}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("dataset", help="package.module:Dataset, a class or a function that makes the dataset")
    parser.add_argument("--kwargs", default="{}", help="its arguments, as JSON (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="of one consumer (default: %(default)s)")
    parser.add_argument("--consumer-ms", type=float, default=0.0, metavar="T",
                        help="how long a training step takes; 0 takes batches as fast as they come")  # fmt: skip
    parser.add_argument("--nb-consumer", type=int, default=1, metavar="N", help="that share this machine (default: 1)")
    parser.add_argument("--collate", metavar="pkg.mod:fn", help="the collate_fn")
    parser.add_argument("--start-method", choices=get_args(StartMethod), default="auto")
    parser.add_argument("--settings", default="{}", help="further keywords of SwiftLoader, as JSON")
    parser.add_argument("--device", help="where batches should be (default: host memory)")
    parser.add_argument("--max-workers", type=int, metavar="N", help="no more are tried")
    parser.add_argument("--no-threads", action="store_true", help="worker_threads are not tried")
    parser.add_argument("--seconds", type=float, default=100.0, help="it ends after so long (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("swift-loader-tune"), metavar="FOLDER",
                        help="where page, chart and JSON go (default: ./%(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Prints what was found; 1 if the dataset fails, 2 if it was called wrongly, 130 if it was stopped."""
    from swift_loader.cli import results  # what it needs may be missing, and that is better known now

    naming.look_here()
    watch = _Watch()
    try:
        keywords = _keywords(arguments)
        with _loader(arguments, keywords) as loader, watch.shown(arguments.seconds):
            found = loader.tune(
                arguments.consumer_ms,
                seconds=arguments.seconds,
                max_workers=arguments.max_workers,
                threads=not arguments.no_threads,
                device=arguments.device,
                on_progress=watch,
            )
    except ConfigError as error:
        print(f"swift-loader tune: {error}", file=sys.stderr)
        return 2
    except SwiftLoaderError as error:
        naming.show_error("tune", error)
        return 1
    except KeyboardInterrupt:
        bar.wipe()
        print("stopped" if watch.last is None else f"stopped; so far:\n\n{watch.last}")
        return 130
    found = dataclasses.replace(found, subject=found.subject._replace(arguments=_as_in_a_call(keywords)))
    told = found.to_dict()
    print(json.dumps(told, indent=1) if arguments.json else found)
    return 0 if results.write(arguments.out, "tune", told, [panel(found)], page(found)) else 1


def _keywords(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings, apart from those that stand in every call."""
    keywords = naming.arguments_of(arguments.settings, "--settings")
    if arguments.collate is not None:
        keywords["collate_fn"] = naming.named(arguments.collate, "the collate_fn is named as package.module:function")
    if arguments.start_method != "auto":
        keywords["start_method"] = arguments.start_method
    return keywords


def _loader(arguments: argparse.Namespace, keywords: dict[str, Any]) -> SwiftLoader:
    made_by, kwargs = naming.named(arguments.dataset), naming.arguments_of(arguments.kwargs)
    return SwiftLoader(made_by, kwargs, arguments.batch_size, arguments.nb_consumer, 1, **keywords)


def _as_in_a_call(keywords: dict[str, Any]) -> str:
    return ", ".join(f"{name}={getattr(value, '__name__', repr(value))}" for name, value in keywords.items())


class _Watch:
    """Shows how far it is, where somebody looks, and keeps what is known."""

    def __init__(self) -> None:
        self.last: Tuning | None = None
        self._bar: Any = None

    @contextlib.contextmanager
    def shown(self, seconds: float) -> Iterator[None]:
        with bar.bars()(total=seconds, disable=None, leave=False, ncols=bar.WIDTH, bar_format=_BAR) as self._bar:
            yield

    def __call__(self, progress: Progress) -> None:
        self.last = progress.so_far
        minutes, seconds = divmod(max(0, round(progress.seconds - progress.passed_s)), 60)
        self._bar.set_description_str(f"<{minutes}:{seconds:02} left, {progress.now}", refresh=False)
        self._bar.n = progress.passed_s
        self._bar.refresh()


def panel(found: Tuning) -> Panel:
    """The chart: a bar for each choice."""
    from swift_loader.cli.chart import Bar, Panel

    usual = found.usual
    bars = [
        Bar(
            row.choice.words(usual), row.batches_per_s, f"{row.batches_per_s:.3g}, starved {row.starved:.0%}",
            row.lowest if row.looks > 1 else None, row.highest if row.looks > 1 else None, row.choice == found.choice,
        )
        for row in found.rows
    ]  # fmt: skip
    most = 1 / found.consumer_s if found.consumer_s else None
    return Panel("batches/s, middle and range of all looks", bars, most, "what the consumer takes")


def page(found: Tuning) -> Page:
    """The page; its chart is still to be drawn."""
    from swift_loader.cli.page import Page, Table

    head = ("workers", "threads", "queues", "batches/s", "low - high", "samples/s", "starved", "looks")
    cells = [
        (
            str(row.choice.workers), str(row.choice.threads), f"{row.choice.data_queue} / {row.choice.message_queue}",
            f"{row.batches_per_s:,.3g}", f"{row.lowest:,.3g} - {row.highest:,.3g}", f"{row.samples_per_s:,.0f}",
            f"{row.starved:.1%}", str(row.looks),
        )
        for row in found.rows
    ]  # fmt: skip
    marked = next((place for place, row in enumerate(found.rows) if row.choice == found.choice), None)
    footer = (
        f"{found.took_s:.0f} s of short runs on {found.cores:g} cores. A worker takes {1e3 * found.batch_s:.3g} ms for "
        f"a batch of {found.batch_size} and waits for {found.waiting:.0%} of that for something else than a core; "
        f"{nbytes(found.worker_nbytes)} of memory are its own."
    )
    title = f"Workers for {found.subject.dataset}"
    return Page(title, found.verdict, "", Table(head, cells, marked), found.code, found.notes, footer)
