"""What a Chrome trace must be for Perfetto to show it as it is meant."""

from __future__ import annotations

import json
from collections import defaultdict
from decimal import Decimal
from typing import Any

#: What an event of each kind has to say.
FIELDS = {
    "X": {"name": str, "pid": int, "tid": int, "ts": Decimal, "dur": Decimal},
    "C": {"name": str, "pid": int, "tid": int, "ts": Decimal, "args": dict},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
    "s": {"name": str, "cat": str, "id": int, "pid": int, "tid": int, "ts": Decimal},
    "f": {"name": str, "cat": str, "id": int, "pid": int, "tid": int, "ts": Decimal, "bp": str},
}


def read(text: str) -> list[dict[str, Any]]:
    """The events, their times exactly as written."""
    trace = json.loads(text, parse_float=Decimal)
    assert trace["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = trace["traceEvents"]
    return events


def breaches(events: list[dict[str, Any]]) -> list[str]:
    """What is wrong with them."""
    found = [f"not as it should be: {event}" for event in events if not _is_well_formed(event)]
    if found:
        return found
    times = [event["ts"] for event in events if event["ph"] != "M"]
    if times != sorted(times):
        found.append("events are not in the order of time")
    return [*found, *_overlaps(events), *_unnamed(events), *_bad_arrows(events)]


def lane(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The slices of the lane of this name."""
    numbers = {event["tid"] for event in events if event["ph"] == "M" and event["args"].get("name") == name}
    return [event for event in events if event["ph"] == "X" and event["tid"] in numbers]


def _is_well_formed(event: dict[str, Any]) -> bool:
    fields = FIELDS.get(event.get("ph", ""))
    if fields is None or any(not isinstance(event.get(name), kind) for name, kind in fields.items()):
        return False
    if event["pid"] <= 0 or (event["tid"] <= 0):  # 0 is the idle task
        return False
    return event["ph"] != "X" or (event["dur"] > 0 and event["ts"] >= 0)


def _overlaps(events: list[dict[str, Any]]) -> list[str]:
    found, ends = [], defaultdict[Any, Decimal](Decimal)
    for event in events:
        if event["ph"] == "X":
            place = event["pid"], event["tid"]
            if event["ts"] < ends[place]:
                found.append(f"begins before the one before it has ended: {event}")
            ends[place] = event["ts"] + event["dur"]
    return found


def _unnamed(events: list[dict[str, Any]]) -> list[str]:
    named = {(event["name"], event["pid"], event["tid"]) for event in events if event["ph"] == "M"}
    lanes = {(event["pid"], event["tid"]) for event in events if event["ph"] != "M"}
    found = [f"lane {lane} has no name" for lane in lanes if ("thread_name", *lane) not in named]
    processes = {pid for name, pid, _ in named if name == "process_name"}
    return found + [f"process {pid} has no name" for pid, _ in lanes if pid not in processes]


def _bad_arrows(events: list[dict[str, Any]]) -> list[str]:
    begun = {event["id"]: event for event in events if event["ph"] == "s"}
    ended = {event["id"]: event for event in events if event["ph"] == "f"}
    count = sum(event["ph"] in "sf" for event in events)
    found = [] if count == len(begun) + len(ended) else ["two arrows have one number"]
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for arrow in [*begun.values(), *ended.values()]:
        inside = slices[arrow["pid"], arrow["tid"]]
        if not any(start <= arrow["ts"] < end for start, end in inside):
            found.append(f"an arrow hangs in the air: {arrow}")
    for number, end in ended.items():
        if number not in begun:
            found.append(f"an arrow that never began: {end}")
        elif begun[number]["ts"] > end["ts"]:
            found.append(f"an arrow that goes back in time: {end}")
    return found
