"""Whatever the times are, the picture is one that Perfetto shows as it is meant."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.telemetry import BatchRecord, picture
from swift_loader.telemetry.picture import Moments, Supplied
from tests.slow import examples
from tests.trace_rules import breaches, lane, read

MS = 1_000_000


def record(step: int, worker: int = 0, epoch: int = 0, **times: int) -> BatchRecord:
    zeros = dict.fromkeys(BatchRecord._fields, 0)
    return BatchRecord(**{**zeros, "epoch": epoch, "step": step, "worker": worker, "slowest_index": 7, **times})


def names_and_ms(slices: list[dict]) -> list[tuple[str, float, float]]:
    return [(one["name"], float(one["ts"]) / 1000, float(one["dur"]) / 1000) for one in slices]


def test_each_lane_tells_what_was_done_in_it_and_when():
    batches = [
        (
            record(0, order_wait_ns=2 * MS, fetch_ns=5 * MS, collate_ns=2 * MS, encode_ns=1 * MS, busy_ns=3 * MS),
            Moments(came_ns=110 * MS, asked_ns=103 * MS, taken_ns=111 * MS, handed_ns=112 * MS),
        ),
        (
            record(1, fetch_ns=6 * MS, busy_ns=4 * MS),
            Moments(came_ns=118 * MS, asked_ns=116 * MS, taken_ns=119 * MS, handed_ns=121 * MS),
        ),
    ]
    threads = {"swift-telecom-c3w0": [("read parcels", 110 * MS, 111 * MS), ("send orders", 111 * MS, 111 * MS)]}
    events = read(picture.of(3, batches, threads))
    assert breaches(events) == []
    assert names_and_ms(lane(events, "swift-worker-c3w0")) == [
        ("wait for an order", 100, 2),
        ("collect batch data", 102, 5),
        ("collate batch data", 107, 2),
        ("serialize batch data", 109, 1),
        ("collect batch data", 112, 6),
    ]
    assert names_and_ms(lane(events, "consumer")) == [
        ("consumer works", 100, 3),
        ("consumer waits for data", 103, 8),
        ("transfer to device", 111, 1),
        ("consumer works", 112, 4),
        ("consumer waits for data", 116, 3),
        ("transfer to device", 119, 2),
    ]
    assert names_and_ms(lane(events, "swift-telecom-c3w0")) == [("read parcels", 110, 1)]
    assert {event["pid"] for event in events} == {4}
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == ["consumer 3"]
    assert sum(event["ph"] == "f" for event in events) == 2
    slowest = [one["args"].get("slowest sample") for one in lane(events, "swift-worker-c3w0")]
    assert slowest == [None, 7, None, None, 7]


def test_parcels_that_came_together_were_made_one_after_the_other():
    moments = Moments(came_ns=100 * MS, asked_ns=99 * MS, taken_ns=101 * MS, handed_ns=102 * MS)
    later = Moments(came_ns=100 * MS, asked_ns=102 * MS, taken_ns=103 * MS, handed_ns=104 * MS)
    events = read(picture.of(0, [(record(0, fetch_ns=4 * MS), moments), (record(1, fetch_ns=3 * MS), later)], {}))
    assert breaches(events) == []
    made = lane(events, "swift-worker-c0w0")
    assert [(one["args"]["step"], float(one["ts"]) / 1000) for one in made] == [(0, 93), (1, 97)]


def test_a_wait_for_a_slot_is_seen():
    if "slot_wait_ns" not in BatchRecord._fields:
        return
    moments = Moments(came_ns=100 * MS, asked_ns=99 * MS, taken_ns=101 * MS, handed_ns=102 * MS)
    events = read(picture.of(0, [(record(0, fetch_ns=4 * MS, slot_wait_ns=3 * MS), moments)], {}))
    waited, *_ = names_and_ms(lane(events, "swift-worker-c0w0"))
    assert waited == ("wait for a slot", 93, 3)


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[BatchRecord, Moments]]:
    """Batches with durations that need not fit the moments: clocks are read at different places."""
    some = st.integers(0, 10**7)
    now, batches = draw(st.integers(10**9, 10**16)), []
    for step in range(draw(st.integers(0, 12))):
        asked = now + draw(some)
        taken = asked + draw(some)
        now = taken + draw(some)
        times = {
            name: draw(some)
            for name in ("order_wait_ns", "fetch_ns", "collate_ns", "encode_ns", "busy_ns", "transit_ns")
        }
        came = draw(st.integers(asked - 10**7, taken))
        batches.append((record(step, draw(st.integers(0, 2)), **times), Moments(came, asked, taken, now)))
    return batches


spans = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 10**9), st.integers(0, 10**6)), max_size=8)


@settings(max_examples=examples(150), deadline=None)
@given(runs(), spans, st.integers(0, 300), st.sampled_from([{}, {1: "tcp://far:5557"}]))
def test_no_picture_breaks_the_rules(batches, told, consumer, servers):
    threads = {"thread": [(name, begun, begun + took) for name, begun, took in sorted(told, key=lambda one: one[1])]}
    events = read(picture.of(consumer, batches, threads, servers))
    assert breaches(events) == []
    handed = [event for event in events if event["name"] == "transfer to device"]
    assert len(handed) == sum(moments.handed_ns > moments.taken_ns for _, moments in batches)


def test_breaches_of_the_rules_would_be_seen():
    def slices(*times: tuple[str, str]) -> str:
        events = [
            {"ph": "M", "name": name, "pid": 1, "tid": 2, "args": {"name": "x"}}
            for name in ("process_name", "thread_name")
        ]
        text = [json.dumps(event) for event in events]
        text += [f'{{"ph": "X", "name": "a", "pid": 1, "tid": 2, "ts": {ts}, "dur": {dur}}}' for ts, dur in times]
        return '{"displayTimeUnit": "ms", "traceEvents": [' + ",".join(text) + "]}"

    assert breaches(read(slices(("1.0", "1.0"), ("2.0", "1.0")))) == []
    assert breaches(read(slices(("1.0", "1.001"), ("2.0", "1.0"))))
    assert breaches(read(slices(("1.0", "-1.0"))))
    assert breaches(read(slices(("3.0", "1.0"), ("1.0", "1.0"))))
    assert breaches(read(slices(("1.0", "1.0")).replace("thread_name", "other")))
    arrow = ', {"ph": "s", "cat": "c", "name": "n", "id": 1, "pid": 1, "tid": 2, "ts": 5.0}]'
    (told,) = breaches(read(arrow.join(slices(("1.0", "1.0")).rsplit("]", 1))))
    assert "hangs in the air" in told


def test_what_a_store_gives_is_drawn_as_curves():
    def by(at_s: float, nbytes: float, **more: float) -> Supplied:
        return Supplied(int(at_s * 1e9), {"store_nbytes": nbytes, **more})

    supplied = [by(1, 5e6), by(1.5, 9e6, store_rank_wait_s=1.0, store_hedges=2), by(1.5, 9e6), by(2.5, 9e6)]
    events = read(picture.of(0, [(record(0, busy_ns=MS), Moments(0, MS, MS, 2 * MS))], {}, supplied=supplied))
    assert breaches(events) == []
    curves = {(event["name"], float(event["ts"]) / 1e6): event["args"] for event in events if event["ph"] == "C"}
    assert curves["store gives, MB/s", 1.5] == {"now": 8}
    assert curves["workers that wait for the store", 1.5] == {"now": 2}
    assert curves["store troubles", 1.5]["asked twice at a time"] == 2
    assert curves["store gives, MB/s", 2.5] == {"now": 0}
