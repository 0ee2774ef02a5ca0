"""What an epoch's figures mean: who waited for what, what to change, and what that will bring. Pure.

A sentence is said only where the figures carry it: what they do not tell is not guessed at.
"""

from __future__ import annotations

from swift_loader.telemetry.account import Account
from swift_loader.telemetry.prediction import Measured, Predicted, fewest, predict
from swift_loader.telemetry.summary import Summary

#: Waiting below this share of the time is noise.
NOISE = 0.03
_FEW_BATCHES = 10
#: A change is advised if it saves at least this share of the time.
_WORTH_IT = 0.02
#: Workers that wait for memory for more of their time than this are held up by it.
_SLOTLESS = 0.15
#: Others that take more of the cores than this are told of.
_CROWDED = 0.15
#: A batch that takes so many times the median to fetch is a straggler.
_STRAGGLES = 4
_MOST_WORKERS = 64

_DOING = {"collect batch data": "Fetching", "collate batch data": "Collating", "serialize batch data": "Encoding"}


def verdict(account: Account) -> str:
    """One to three sentences."""
    summary, measured = account.summary, account.measured
    who = f"The {account.owner.starves}"
    if summary.batches < _FEW_BATCHES:
        return f"{summary.batches} batches are too few for a verdict: it takes {_FEW_BATCHES}."
    waited = f"{who} waited {percent(summary.starved_share)} of the epoch"
    if summary.starved_share < NOISE:
        return f"{waited}: nothing starves. {_saving(measured)}".rstrip()
    return f"{waited}. {_largest_part(summary)} {_advice(summary, measured)}".strip()


def percent(share: float) -> str:
    """A share as it is told: "31 %", and "0.4 %" where it is small."""
    return f"{100 * share:.1f} %" if share < 0.01 else f"{100 * share:.0f} %"


def counted(count: int, name: str) -> str:
    """How many of what: "1 worker" or "2 workers"."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def _saving(measured: Measured) -> str:
    if measured.workers < 2:
        return ""
    enough = fewest(measured, NOISE, measured.workers)
    if enough == measured.workers:
        return f"All {measured.workers} workers are needed."
    starved = predict(measured, enough, measured.threads).starved_share
    return f"{counted(enough, 'worker')} instead of {measured.workers} should do, with {_about(starved)} of waiting."


def _largest_part(summary: Summary) -> str:
    whole_s = sum(worker.made_s + worker.order_wait_s + worker.slot_wait_s for worker in summary.workers)
    task = max(_DOING, key=lambda name: summary.spreads[name].total_s)
    share = summary.spreads[task].total_s / whole_s if whole_s > 0 else 0.0
    return f"{_DOING[task]} takes {percent(share)} of a worker's time."


def _advice(summary: Summary, measured: Measured) -> str:
    if summary.slotless_share > _SLOTLESS:
        return (
            f"Workers waited {percent(summary.slotless_share)} of their time for memory: keep fewer batches, or raise "
            "memory_budget."
        )
    if measured.is_held_up_between:
        return _between(summary)
    if measured.workers == 0:
        return _in_workers(measured)
    best = fewest(measured, NOISE, max(_MOST_WORKERS, measured.workers))
    expected = predict(measured, best, measured.threads)
    if best > measured.workers and summary.starved_share - expected.starved_share >= _WORTH_IT:
        is_all = predict(measured, best + 1, measured.threads).limit == "cores"
        remark = f": then {_crowd(measured)}" if is_all else "."
        return f"With {best} workers instead of {measured.workers} {_falls(expected)}{remark}"
    return _no_more_workers(measured)


def _between(summary: Summary) -> str:
    idle = f"Yet workers had nothing to do for {percent(summary.idle_share)} of theirs"
    median_s, _, slow_s = summary.spreads["collect batch data"].percentiles_s
    if slow_s > _STRAGGLES * median_s:
        return f"{idle}: slow samples hold up the others; in_order=False or a larger max_buffer_size lets them pass."
    return f"{idle}: the limit lies between workers and consumer; larger batches, or a larger data_queue_size, help."


def _in_workers(measured: Measured) -> str:
    best = fewest(measured, NOISE, _MOST_WORKERS)
    return f"With {counted(best, 'worker')} instead of none {_falls(predict(measured, best, 1))}."


def _no_more_workers(measured: Measured) -> str:
    limit = predict(measured, measured.workers + 1, measured.threads).limit
    if limit == "cores":
        return f"More workers would bring nothing: {_crowd(measured)}"
    return "More workers would bring little."


def _crowd(measured: Measured) -> str:
    cores = f"{measured.cores:g} core{'' if measured.cores == 1 else 's'}"
    if measured.cores_of_others > _CROWDED * measured.cores:
        return f"other processes held {measured.cores_of_others:.1f} of the {cores}."
    return f"all of the {cores} are busy; cheaper samples or more cores would help."


def _falls(expected: Predicted) -> str:
    return f"the wait should fall to about {_about(expected.starved_share)}"


def _about(share: float) -> str:
    return "1 %" if share < 0.01 else percent(share)
