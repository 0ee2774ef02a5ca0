"""What `swift-loader top` prints of the loaders that it has found: lines of at most so many columns.

Pure: what is shown and the time come in, text goes out. Texts from other processes (a class's name, an error) are
printed without whatever could steer a terminal.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from swift_loader.cli.boards import Found
from swift_loader.telemetry import words
from swift_loader.telemetry.board import Shown, WorkerShown

_NS = 1e9
_BAR = 10
#: A loader in which something is being made posts twice a second.
_SILENT_S = 3.0
#: A worker that makes no progress for less is at work.
_STILL_S = 1.0
#: Lines for what went wrong.
_MOST_TOLD = 3
_HOLDERS = {"slots_free": "free", "slots_ordered": "ordered", "slots_full": "full", "slots_leased": "held"}
#: What a worker is at has so much room, and in narrow terminals what the other columns leave of it.
_AT_WIDTH, _OTHER_COLUMNS, _LEAST_AT = 39, 41, 18
#: What several workers do: the first word of what one does, otherwise.
_PLURALS = {
    "waits": "wait", "starts": "start", "builds": "build", "fetches": "fetch", "collates": "collate",
    "encodes": "encode", "sends": "send", "leaves": "leave", "is": "are", "was": "were", "has": "have",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figures:
    """What follows from a board at one moment."""

    batches_per_s: float | None
    """None: not measured, or too little to tell."""
    samples_per_s: float | None
    nbytes_per_s: float | None
    starved: float | None
    """The share of time that the consumer waited for data."""
    since_s: float
    """For how long the consumer has waited, or done something else."""
    up_s: float
    silent_s: float
    """How long ago the board was written."""


def figures_of(shown: Shown, now_ns: int) -> Figures:
    """What is worth telling."""
    since_s = max(0.0, (now_ns - shown.since_ns) / _NS)
    waits_s = since_s if shown.is_waiting else 0.0
    passed_s = shown.recent_s + waits_s
    up_s, silent_s = (now_ns - shown.began_ns) / _NS, max(0.0, (now_ns - shown.posted_ns) / _NS)
    if not shown.is_measured or shown.recent_batches == 0 or passed_s <= 0:
        return Figures(None, None, None, None, since_s, up_s, silent_s)
    return Figures(
        shown.recent_batches / passed_s,
        shown.recent_samples / passed_s,
        shown.recent_nbytes / passed_s,
        min(1.0, (shown.recent_wait_s + waits_s) / passed_s),
        since_s,
        up_s,
        silent_s,
    )


def lines_of(loaders: Sequence[Found], now_ns: int, width: int, height: int | None = None) -> list[str]:
    """All loaders, one block each; no line is longer than ``width``.

    Where they would be more than ``height`` lines, the workers of each loader are summed up in one.
    """
    if not loaders:
        return ["No loader of yours runs on this machine."]
    lines = _blocks(loaders, now_ns, width, is_short=False)
    is_short = height is not None and len(lines) > height
    return _blocks(loaders, now_ns, width, is_short=True) if is_short else lines


def part_of(lines: Sequence[str], first: int, height: int, width: int) -> tuple[list[str], int]:
    """What of ``lines`` can be shown from the ``first`` on, and which the first can be at most."""
    if len(lines) <= height:
        return list(lines), 0
    room = max(1, height - 1)
    first = max(0, min(first, len(lines) - room))
    foot = f"lines {first + 1}-{first + room} of {len(lines)}; j, k and arrows scroll"
    return [*lines[first : first + room], foot[:width]], first


def _blocks(loaders: Sequence[Found], now_ns: int, width: int, *, is_short: bool) -> list[str]:
    lines: list[str] = []
    for found in loaders:
        lines += [line[:width].rstrip() for line in _block(found, now_ns, width, is_short=is_short)] + [""]
    return lines[:-1]


def _block(found: Found, now_ns: int, width: int, *, is_short: bool) -> Iterator[str]:
    shown, figures = found.shown, figures_of(found.shown, now_ns)
    name = plain(shown.dataset)
    of = f"step {shown.step}/{shown.step_count}" if shown.step_count else f"step {shown.step}"
    ends = f"epoch {shown.epoch}  {of}  up {words.duration(figures.up_s)}"
    head = f"consumer {shown.consumer} of {shown.consumer_count}  pid {found.pid}"
    room = width - len(head) - len(ends) - 4
    if room >= 6:
        head += f"  {name if len(name) <= room else name[: room - 3] + '...'}"
    yield f"{head:<{max(0, width - len(ends) - 1)}} {ends}"
    yield f"  {_rates(shown, figures, width - 2)}"
    if shown.workers:
        yield f"  {_queues(shown)}"
        yield from [f"  {_crowd(shown.workers)}"] if is_short else _workers(shown.workers, width)
    if shown.store:
        yield f"  store: {plain(shown.store)}"
    if figures.silent_s > _SILENT_S and any(worker.ordered for worker in shown.workers):
        yield f"  silent for {words.duration(figures.silent_s)}: its Python is held by one call, or stopped"
    most = 1 if is_short else _MOST_TOLD
    deaths = [worker for worker in shown.workers if worker.deaths]
    for worker in deaths[-2:]:
        text = f"worker {worker.number} was replaced {_times(worker.deaths)}: {worker.last_death}"
        yield from _told(text, width, most)
    for text in shown.last:
        yield from _told(text, width, most)


def _rates(shown: Shown, figures: Figures, width: int) -> str:
    if not shown.is_measured:
        return "not measured (benchmark=False)"
    does = f"{'waits' if shown.is_waiting else 'works'} for {words.duration(figures.since_s)}"
    if figures.batches_per_s is None or figures.samples_per_s is None:
        return f"{words.counted(shown.batches, 'batch')} so far; the consumer {does}"
    batches = f"{words.number(figures.batches_per_s)} batches/s"
    samples = f"{words.number(figures.samples_per_s)} samples/s"
    nbytes, starved = f"{words.nbytes(figures.nbytes_per_s or 0)}/s", f"starved {figures.starved or 0:.0%}"
    # What tells least is left out first where there is no room.
    for parts in ((batches, samples, nbytes, starved, does), (batches, samples, starved, does)):
        if len(line := "  ".join(parts)) <= width:
            return line
    return f"{batches}  {starved}  {does}"


def _queues(shown: Shown) -> str:
    ready = min(shown.ready, shown.ready_most)  # one more may be there at the moment in which it is handed out
    full = round(_BAR * ready / max(1, shown.ready_most))
    bar = "#" * full + "." * (_BAR - full)
    slots = ", ".join(f"{shown.slots[name]} {word}" for name, word in _HOLDERS.items() if shown.slots.get(name))
    size = words.nbytes(shown.slots.get("slot_bytes", 0))
    return f"ready [{bar}] {ready}/{shown.ready_most}  slots: {slots or 'none yet'}, {size}"


def _crowd(workers: Sequence[WorkerShown]) -> str:
    """All workers in one line: first who stands still, since that is what the others wait for."""
    head = words.counted(len(workers), "worker")
    slowest = max(workers, key=lambda worker: worker.still_s)
    if slowest.still_s >= _STILL_S:
        head += f" (worker {slowest.number} still {words.duration(slowest.still_s)}, {_at(slowest)})"
    counts = Counter("idle" if _is_idle(worker) else _does(worker) for worker in workers).most_common()
    return f"{head}: " + ", ".join(f"{count} {does if count == 1 else _plural(does)}" for does, count in counts)


def _plural(does: str) -> str:
    first, space, rest = does.partition(" ")
    return _PLURALS.get(first, first) + space + rest


def _workers(workers: Sequence[WorkerShown], width: int) -> Iterator[str]:
    at = max(_LEAST_AT, min(_AT_WIDTH, width - _OTHER_COLUMNS))
    yield f"  {'worker':>6} {'pid':>7}  {'is at':<{at}} {'still':>7} {'orders':>6} {'done':>5}"
    yield from (_worker(worker, at) for worker in workers)


def _worker(worker: WorkerShown, width: int) -> str:
    at, pid = _at(worker)[:width], worker.pid or "-"
    still = words.duration(worker.still_s) if worker.still_s >= _STILL_S else "-"
    counts = f"{worker.ordered:>6} {worker.unmerged:>5}"
    return f"  {worker.number:>6} {pid:>7}  {at:<{width}} {still:>7} {counts}"


def _at(worker: WorkerShown) -> str:
    if worker.server:
        does = f", {words.seconds(worker.transit_s)} away" if worker.transit_s else f": {_does(worker)}"
        return plain(worker.server) + does
    if not _is_at_work(worker) or worker.index < 0:
        return "waits for an order" if _is_idle(worker) else _does(worker)
    return f"{_does(worker)} sample {worker.index}"


def _does(worker: WorkerShown) -> str:
    return plain(worker.stage if _is_at_work(worker) else worker.state)


def _is_idle(worker: WorkerShown) -> bool:
    return _is_at_work(worker) and worker.stage == "waits"


def _is_at_work(worker: WorkerShown) -> bool:
    return bool(worker.pid) and worker.state in ("serves", "starts")


def _told(text: str, width: int, most: int) -> list[str]:
    """At most so many lines."""
    lines = textwrap.wrap(plain(text), width - 4, max_lines=most, placeholder=" ...")
    return [f"  ! {line}" if number == 0 else f"    {line}" for number, line in enumerate(lines)]


def plain(text: Any) -> str:
    """``text`` on one line, without what a terminal would take for a command."""
    return "".join(char if char.isprintable() else " " for char in str(text))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
