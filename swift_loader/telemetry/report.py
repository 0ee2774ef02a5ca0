"""An epoch as a page of at most 80 columns. Pure: figures in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swift_loader.telemetry.account import Account
from swift_loader.telemetry.summary import PERCENTILES, Spread, WorkerShare
from swift_loader.telemetry.verdict import verdict
from swift_loader.telemetry.words import counted, nbytes, number, percent, seconds

WIDTH = 80
#: More workers than this are told of by the least, the median and the most busy.
_MANY_WORKERS = 10
#: Where a batch spends its time, and the headings of these parts.
_PARTS = {
    "worker": (
        "wait for an order", "wait for a slot", "collect batch data", "collate batch data", "serialize batch data",
    ),
    "network": ("come over the network",),
    "between": ("wait to be merged",),
    "consumer": ("decode batch data", "transfer to device", "consumer waits for data", "consumer works"),
}  # fmt: skip
#: A space at which no line is broken.
_BOUND = "\N{NO-BREAK SPACE}"
_STORE_COUNTS = ("requests", "retries", "hedges", "refetches", "waits", "hits_kept", "hits_memory")
_CACHES = {"cache": "cache", "rotation": "rotation"}


def report(account: Account) -> str:
    """The page, without an end of line at its end."""
    head = [part for line in _head(account) for part in _wrapped(line)]
    lines = [*head, "", *_times(account), "", *_facts(account), "", *_wrapped(verdict(account))]
    return "\n".join(lines)


def _head(account: Account) -> list[str]:
    owner, summary = account.owner, account.summary
    threads = "" if owner.threads == 1 else f" of {owner.threads} threads"
    made_by = f"{counted(owner.workers, 'worker')}{threads}{_elsewhere(account)}" if owner.workers else "no workers"
    whose = f"consumer {owner.consumer} of {owner.consumer_count}"
    so_far = "" if account.is_whole else " so far"
    if account.is_whole and summary.batches < account.steps:
        so_far = f", {summary.batches:,} of its {counted(account.steps, 'batch')}"
    shares = {
        "waited for data": summary.starved_share,
        "landed it": summary.land_s / summary.seconds if summary.seconds > 0 else 0.0,
    }
    shares["worked"] = max(0.0, 1 - sum(shares.values()))
    rates = f"{number(summary.batches_per_s)} batches/s, {number(summary.samples_per_s)} samples/s"
    made = f"{counted(summary.batches, 'batch')} of {counted(summary.samples, 'sample')}"
    return [
        f"swift_loader: epoch {account.epoch}{so_far}, {whose}, {made_by}",
        f"{made} in {seconds(summary.seconds)}: {rates}",
        f"the {owner.starves} " + ", ".join(f"{what} {percent(share)}" for what, share in shares.items()),
    ]


def _elsewhere(account: Account) -> str:
    if not account.servers:
        return ""
    are_all = all(worker.number in account.servers for worker in account.summary.workers)
    return f"{'' if are_all else ', some'} at {counted(len(account.servers), 'server')}"


def _times(account: Account) -> list[str]:
    names = ["mean", *(f"p{percentile}" for percentile in PERCENTILES), "max"]
    lines = [f"{'where a batch spent its time':<36}" + "".join(f"{name:>8}" for name in names)]
    for part, tasks in _PARTS.items():
        if part == "network" and not account.servers:
            continue
        for task in tasks:
            heading = part if task == tasks[0] else ""
            spread = account.summary.spreads[task]
            lines.append(f"  {heading:<9} {task:<24}" + "".join(f"{text:>8}" for text in _cells(spread)))
    return lines


def _cells(spread: Spread) -> list[str]:
    return [seconds(took_s) for took_s in (spread.mean_s, *spread.percentiles_s, spread.max_s)]


def _facts(account: Account) -> list[str]:
    summary = account.summary
    facts = {"workers busy": _busy(summary.workers)} if account.owner.workers else {}
    facts |= {f"server {place}": _server(*one, account) for place, one in enumerate(account.of_servers)}
    slowest = [f"{index}{_BOUND}({seconds(took_s)})".replace(" ", _BOUND) for index, took_s in summary.slowest]
    if slowest:
        facts["slowest samples"] = ", ".join(slowest)
    facts["memory"] = _memory(account)
    facts |= {name: _reused(account.counted, prefix) for prefix, name in _CACHES.items()}
    facts["store"] = fetched(account.counted)
    lines: list[str] = []
    for name, text in facts.items():
        if text:
            lines += textwrap.wrap(text, WIDTH, initial_indent=f"{name:<17}", subsequent_indent=" " * 17)
    return [line.replace(_BOUND, " ") for line in lines]


def _busy(workers: Sequence[WorkerShare]) -> str:
    shares = [worker.busy_share for worker in workers]
    if not shares:
        return ""
    if len(shares) <= _MANY_WORKERS:
        return ", ".join(percent(share) for share in shares)
    ordered = sorted(shares)
    return (
        f"{percent(ordered[0])} at least, {percent(ordered[len(ordered) // 2])} median, {percent(ordered[-1])} at most"
    )


def _server(address: str, share: WorkerShare, account: Account) -> str:
    seconds_s = account.summary.seconds
    rate = share.nbytes / seconds_s if seconds_s > 0 else 0.0
    travelled = seconds(share.transit_s / max(1, share.batches))
    return f"{address}: {counted(share.batches, 'batch')}, {nbytes(rate)}/s, {travelled} on the way"


def _memory(account: Account) -> str:
    parts = []
    count = account.counted
    if "slot_bytes" in count:
        parts.append(f"{counted(account.slots, 'slot')} of {nbytes(count['slot_bytes'])} together")
    own = sorted(account.workers_nbytes)
    if own:
        each = nbytes(own[0]) if nbytes(own[0]) == nbytes(own[-1]) else f"{nbytes(own[0])} to {nbytes(own[-1])}"
        parts.append(f"{counted(len(own), 'worker')} with {each} of {'its' if len(own) == 1 else 'their'} own")
    return ", ".join(parts)


def _reused(count: Mapping[str, float], prefix: str) -> str:
    if f"{prefix}_hit_rate" not in count:
        return ""
    parts = [f"{percent(count[f'{prefix}_hit_rate'])} of samples reused"]
    parts += [f"{int(count[f'{prefix}_{key}']):,} {key}" for key in ("reused", "made") if f"{prefix}_{key}" in count]
    if f"{prefix}_nbytes" in count:
        parts.append(f"holds {nbytes(count[f'{prefix}_nbytes'])}")
    return ", ".join(parts)


def fetched(count: Mapping[str, float]) -> str:
    """What came from a store since the loader was started, for all ranks of this host; what this one wants of it."""
    if "store_requests" not in count:
        return ""
    said = {name: int(count[f"store_{name}"]) for name in _STORE_COUNTS}
    waited_s, rate = count.get("store_wait_s", 0.0), count.get("store_bytes_per_s", 0.0)
    wanted, given = count.get("store_wanted_bytes_per_s", 0.0), count.get("store_given_bytes_per_s", 0.0)
    mine = count.get("store_rank_nbytes", 0.0)
    parts = [
        f"{counted(said['requests'], 'request')} for {nbytes(count['store_nbytes'])}, {nbytes(rate)}/s",
        *([f"{nbytes(mine)} of it for this consumer"] if mine else []),
        *([f"batches want {nbytes(wanted)}/s"] if wanted else []),
        *([f"it gives {nbytes(given)}/s while it is asked"] if given else []),
        f"${count['store_dollars']:.4f}",
        *([f"{counted(said['hits_kept'], 'run')} from the cache"] if said["hits_kept"] else []),
        *([f"{counted(said['hits_memory'], 'run')} from memory"] if said["hits_memory"] else []),
        *([f"{nbytes(count['store_kept_nbytes'])} were kept here"] if count["store_kept_nbytes"] else []),
        *([f"{said['retries']:,} asked again"] if said["retries"] else []),
        *([f"{said['hedges']:,} asked twice at a time"] if said["hedges"] else []),
        *([f"{said['refetches']:,} damaged on their way"] if said["refetches"] else []),
        *([f"{counted(said['waits'], 'batch')} waited for it, {seconds(waited_s)} in all"] if said["waits"] else []),
    ]
    return ", ".join(parts)


class Standing(NamedTuple):
    """What one consumer tells the others of its newest epoch."""

    epoch: int
    batches: int
    samples_per_s: float
    starved_share: float
    busy_share: float
    """Of its time it worked."""
    workers_busy_share: float
    is_so_far: bool = False
    """The epoch goes on. Others are told only of epochs that have ended."""
    store_nbytes: float | None = None
    """What came from a store for it, since it was started; None where it reads from none."""


def rank_table(standings: Sequence[Standing | None]) -> str:
    """A line per consumer; None where one has not told of itself. Where none has, that is all that there is to say."""
    if not any(standings):
        return "No consumer has told of an epoch."
    columns = {"consumer": 8, "epoch": 6, "batches": 9, "samples/s": 10, "waited": 8, "worked": 8, "workers busy": 13}
    if any(one is not None and one.store_nbytes is not None for one in standings):
        columns["from store"] = 10
    lines = [
        " ".join(f"{name:>{width}}" for name, width in columns.items()),
        " ".join("-" * width for width in columns.values()),
    ]
    for consumer, one in enumerate(standings):
        if one is None:
            lines.append(f"{consumer:>8} missing")
            continue
        cells = [
            str(consumer), f"{one.epoch}{'*' * one.is_so_far}", f"{one.batches:,}", number(one.samples_per_s),
            percent(one.starved_share), percent(one.busy_share), percent(one.workers_busy_share),
            "-" if one.store_nbytes is None else nbytes(one.store_nbytes),
        ]  # fmt: skip
        lines.append(" ".join(f"{cell:>{width}}" for cell, width in zip(cells, columns.values(), strict=False)))
    return "\n".join([*lines, "", *_wrapped(_slowest_of(standings))])


def _slowest_of(standings: Sequence[Standing | None]) -> str:
    known = {consumer: one for consumer, one in enumerate(standings) if one is not None}
    worst = max(known, key=lambda consumer: known[consumer].starved_share)
    missing = [str(consumer) for consumer, one in enumerate(standings) if one is None]
    absent = f" Nothing was heard of {', '.join(missing)}." if missing else ""
    absent += " * so far: that epoch goes on." if any(one.is_so_far for one in known.values()) else ""
    share = percent(known[worst].starved_share)
    return f"Consumer {worst} waited most, {share} of its epoch: the slowest one sets the step for all.{absent}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)  # a command is a word
