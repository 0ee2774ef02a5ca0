"""A Chrome trace of batches, as Perfetto shows it: a process for each consumer, and in it a lane for

    consumer                  works | waits for data | transfer to device ...
    swift-landing-c0          lands ...
    swift-telecom-c0w0        reads parcels | sends orders ...
    swift-worker-c0w0         waits for an order | waits for a slot | collect | collate | serialize ...
    server tcp://a:5557       come over the network ...

and above them, where a store is read from, curves of what it gives and of who waits for it;
with an arrow from the worker's end of each batch to the consumer's. In a lane one thing follows the other: nothing
overlaps, and what took no time is left out. Pure: times come in, text goes out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from swift_loader.telemetry.record import BatchRecord

#: What a thread did, from when to when.
Span: TypeAlias = tuple[str, int, int]

_CONSUMER_LANE, _THREAD_LANES, _WORKER_LANES = 1, 2, 5_000
#: Lanes of different processes have different numbers, and none has the number 0, which means the idle task.
_LANES_PER_PROCESS = 10_000
_ARROWS_PER_PROCESS = 10_000_000


class Moments(NamedTuple):
    """When things happened to one batch, on the monotonic clock that all processes of a host share."""

    came_ns: int
    """Its parcel reached the consumer's process."""
    asked_ns: int
    """The consumer asked for a batch."""
    taken_ns: int
    """It got the parcel."""
    handed_ns: int
    """It got the batch."""


Batch: TypeAlias = tuple[BatchRecord, Moments]


class Supplied(NamedTuple):
    """What a store had given by then."""

    at_ns: int
    figures: Mapping[str, float]
    """By the names of `statistics()`: sums since the start."""


#: Curves: what a second brings of a figure, in which unit.
_RATES = {
    "store gives, MB/s": ("store_nbytes", 1e-6),
    "store requests/s": ("store_requests", 1.0),
    "batches take, MB/s": ("store_rank_wanted_nbytes", 1e-6),
    "workers that wait for the store": ("store_rank_wait_s", 1.0),
}
#: And what has come together so far.
_SUMS = {
    "asked again": "store_retries",
    "asked twice at a time": "store_hedges",
    "damaged on the way": "store_refetches",
}


class _Event(NamedTuple):
    at_ns: int
    rank: int
    """Arrows come after the slices that they begin or end in."""
    text: str


def of(
    consumer: int,
    batches: Sequence[Batch],
    threads: Mapping[str, Iterable[Span]],
    servers: Mapping[int, str] = MappingProxyType({}),
    supplied: Sequence[Supplied] = (),
) -> str:
    """The whole file. ``servers``: which workers are servers, and where; ``supplied``: what a store gave by when."""
    painter = _Painter(consumer, servers)
    events: list[_Event] = []
    for number, name in enumerate(sorted(threads, key=lambda name: (len(name), name))):
        events += painter.thread(_THREAD_LANES + number, name, threads[name])
    events += painter.workers(batches)
    events += painter.consumer(batches)
    events += painter.store(supplied)
    lines = [*painter.names(), *(event.text for event in sorted(events))]
    return '{"displayTimeUnit": "ms", "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"


class _Painter:
    """The lanes of one consumer."""

    def __init__(self, consumer: int, servers: Mapping[int, str]) -> None:
        self._consumer = consumer
        self._servers = servers
        self._process = consumer + 1
        self._lanes: dict[int, str] = {_CONSUMER_LANE: "consumer"}
        self._arrows: dict[tuple[int, int], int] = {}
        """Batches whose arrow has begun, and its number."""

    def names(self) -> Iterator[str]:
        """What the process and its lanes are called, and in which order they are shown."""
        yield self._told("process_name", 0, f'"name": "consumer {self._consumer}"')
        for lane, name in sorted(self._lanes.items()):
            yield self._told("thread_name", lane, f'"name": "{name}"')
            yield self._told("thread_sort_index", lane, f'"sort_index": {lane}')

    def thread(self, lane: int, name: str, spans: Iterable[Span]) -> Iterator[_Event]:
        """What a thread of the consumer did."""
        self._lanes[lane] = name
        free_ns = 0
        for what, begun_ns, ended_ns in spans:
            if ended_ns > (begun := max(begun_ns, free_ns)):
                yield self._slice(lane, what, begun, ended_ns, "")
                free_ns = ended_ns

    def workers(self, batches: Sequence[Batch]) -> Iterator[_Event]:
        """What each worker did: made of how long each part took, and of when the parcel was there.

        When a part began is not measured. From the last batch back, each is put as late as it can have been: it had
        come by ``came_ns``, and was made before the next one was begun.
        """
        of_worker: dict[int, list[Batch]] = defaultdict(list)
        for batch in batches:
            of_worker[batch[0].worker].append(batch)
        for worker, made in sorted(of_worker.items()):
            self._lanes[_WORKER_LANES + worker] = f"swift-worker-c{self._consumer}w{worker}"
            server = self._servers.get(worker)
            if server is not None:
                self._lanes[_WORKER_LANES + worker] = f"server {server}"
            made.sort(key=lambda batch: (batch[1].came_ns, batch[0].epoch, batch[0].step))
            next_ns = made[-1][1].came_ns
            for record, moments in reversed(made):
                ended_ns = min(moments.came_ns, next_ns)
                next_ns = yield from (self._made if server is None else self._travelled)(record, ended_ns)

    def _made(self, record: BatchRecord, ended_ns: int) -> Generator[_Event, None, int]:
        lane, which = _WORKER_LANES + record.worker, f', "args": {_which(record)}'
        slowest = f', "args": {_which(record, f", {chr(34)}slowest sample{chr(34)}: {record.slowest_index}")}'
        parts = (
            ("serialize batch data", record.encode_ns, which),
            ("collate batch data", record.collate_ns, which),
            ("collect batch data", record.fetch_ns, slowest),
            ("wait for a slot", record.slot_wait_ns, which),
            ("wait for an order", record.order_wait_ns, which),
        )
        for what, nanoseconds, args in parts:
            if nanoseconds > 0:
                ended_ns -= nanoseconds
                yield self._slice(lane, what, ended_ns, ended_ns + nanoseconds, args)
                yield from self._arrow_from(record, lane, ended_ns)
        return ended_ns

    def _travelled(self, record: BatchRecord, ended_ns: int) -> Generator[_Event, None, int]:
        """A server's workers make several at a time, which no lane has room for: it has the way here."""
        lane, begun_ns = _WORKER_LANES + record.worker, ended_ns - max(1, record.transit_ns)
        made_ms = (record.fetch_ns + record.collate_ns + record.encode_ns) / 1e6
        more = f', "made in ms": {made_ms:.3f}, "bytes": {record.nbytes}'
        yield self._slice(lane, "come over the network", begun_ns, ended_ns, f', "args": {_which(record, more)}')
        yield from self._arrow_from(record, lane, begun_ns)
        return begun_ns

    def _arrow_from(self, record: BatchRecord, lane: int, at_ns: int) -> Iterator[_Event]:
        """Of each batch one begins: where it was made last."""
        if (record.epoch, record.step) not in self._arrows:
            number = self._process * _ARROWS_PER_PROCESS + len(self._arrows)
            self._arrows[record.epoch, record.step] = number
            yield self._arrow("s", lane, at_ns, number)

    def consumer(self, batches: Iterable[Batch]) -> Iterator[_Event]:
        """What the consumer's thread did."""
        free_ns = 0
        for record, moments in batches:
            args = f', "args": {_which(record)}'
            parts = (
                ("consumer works", moments.asked_ns - record.busy_ns, moments.asked_ns),
                ("consumer waits for data", moments.asked_ns, moments.taken_ns),
                ("transfer to device", moments.taken_ns, moments.handed_ns),
            )
            for what, begun_ns, ended_ns in parts:
                if ended_ns > (begun := max(begun_ns, free_ns)):
                    yield self._slice(_CONSUMER_LANE, what, begun, ended_ns, args)
                    free_ns = ended_ns
            number = self._arrows.get((record.epoch, record.step))
            if number is not None and free_ns == moments.handed_ns > moments.taken_ns:
                yield self._arrow("f", _CONSUMER_LANE, moments.taken_ns, number)

    def store(self, supplied: Sequence[Supplied]) -> Iterator[_Event]:
        """Curves of what a store gives."""
        for (before_ns, before), (at_ns, now) in pairwise(supplied):
            passed_s = (at_ns - before_ns) / 1e9
            if passed_s <= 0:
                continue
            for what, (name, unit) in _RATES.items():
                grown = now.get(name, 0.0) - before.get(name, 0.0)
                yield self._counter(what, at_ns, {"now": max(0.0, grown) * unit / passed_s})
            yield self._counter("store troubles", at_ns, {what: now.get(name, 0.0) for what, name in _SUMS.items()})

    def _counter(self, what: str, at_ns: int, values: Mapping[str, float]) -> _Event:
        args = ", ".join(f'"{name}": {value:.6g}' for name, value in values.items())
        place = self._place(_CONSUMER_LANE)
        return _Event(at_ns, 0, f'{{"ph": "C", "name": "{what}", {place}, "ts": {_micros(at_ns)}, "args": {{{args}}}}}')

    def _slice(self, lane: int, what: str, begun_ns: int, ended_ns: int, args: str) -> _Event:
        text = (
            f'{{"ph": "X", "name": "{what}", {self._place(lane)}, "ts": {_micros(begun_ns)}, '
            f'"dur": {_micros(ended_ns - begun_ns)}{args}}}'
        )
        return _Event(begun_ns, 0, text)

    def _arrow(self, kind: str, lane: int, at_ns: int, number: int) -> _Event:
        end = ', "bp": "e"' if kind == "f" else ""
        text = (
            f'{{"ph": "{kind}", "cat": "batch", "name": "batch", "id": {number}, {self._place(lane)}, '
            f'"ts": {_micros(at_ns)}{end}}}'
        )
        return _Event(at_ns, 1, text)

    def _told(self, what: str, lane: int, args: str) -> str:
        return f'{{"ph": "M", "name": "{what}", {self._place(lane)}, "args": {{{args}}}}}'

    def _place(self, lane: int) -> str:
        return f'"pid": {self._process}, "tid": {self._process * _LANES_PER_PROCESS + lane}'


def _which(record: BatchRecord, more: str = "") -> str:
    return f'{{"epoch": {record.epoch}, "step": {record.step}{more}}}'


def _micros(nanoseconds: int) -> str:
    """Exactly, which no float would be after some days."""
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"
