"""What an epoch's figures mean: who waited for what, what to change, and what that will bring. Pure.

A sentence is said only where the figures carry it: what they do not tell is not guessed at.
"""

from __future__ import annotations

from swift_loader.telemetry.account import Account
from swift_loader.telemetry.prediction import Measured, Predicted, fewest, predict
from swift_loader.telemetry.summary import Summary
from swift_loader.telemetry.words import counted, nbytes, number, percent

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
#: Where the consumer will still wait for more than this, throughput is told of, and not the wait.
_MOSTLY = 0.5
#: Where workers wait for a store for more of their time than this, it is what limits.
_STORE_WAITS = 0.25
#: And a change is advised if it brings so many times as much.
_WORTH_MORE = 1.1
#: So many times as many workers as were measured: too far for a number.
_FAR = 4
#: Where a connection carries batches for more of the time than this, and workers behind it do not for that, it limits.
_CARRIES, _RESTS = 0.5, 0.25
#: What floating numbers become where pixels are sent as they were read.
_SMALLER = {
    "float64": "an eighth", "float32": "a quarter", "int32": "a quarter", "int64": "an eighth", "float16": "half",
    "bfloat16": "half", "int16": "half",
}  # fmt: skip
#: Of these numbers of threads one is named.
_THREADS = (2, 4, 8)

_DOING = {"collect batch data": "Fetching", "collate batch data": "Collating", "serialize batch data": "Encoding"}


def verdict(account: Account) -> str:
    """One to four sentences."""
    summary, measured = account.summary, account.measured
    who = f"The {account.owner.starves}"
    if summary.batches < _FEW_BATCHES:
        few = f"{counted(summary.batches, 'batch')} {'is' if summary.batches == 1 else 'are'} too few for a verdict"
        return f"{few}: it takes {_FEW_BATCHES}."
    waited = f"{who} waited {percent(summary.starved_share)} of the epoch"
    if summary.starved_share < NOISE:
        return f"{waited}: nothing starves. {'' if account.is_brief or account.servers else _saving(measured)}".rstrip()
    advice = "The epoch was too short to recommend anything." if account.is_brief else _advice(account)
    if account.servers and not account.is_brief:
        return f"{waited}. {_of_servers(account)}"
    return f"{waited}. {_largest_part(summary)} {advice}".strip()


def _of_servers(account: Account) -> str:
    """What limits those who make batches elsewhere: the network, their workers, or neither."""
    summary, shares = account.summary, [share for _, share in account.of_servers]
    busy = max((share.busy_share for share in shares), default=0.0)
    if account.busiest_network_share > _CARRIES and busy < 1 - _RESTS:
        smaller = _SMALLER.get(account.dtype)
        advice = "send fewer bytes, or add a server with a connection of its own."
        if smaller is not None:
            advice = f"send uint8, where the values allow it, and convert on the device: {smaller} of the bytes."
        return f"The network limits: {nbytes(summary.nbytes_per_s)}/s of {account.dtype or 'bytes'} came; {advice}"
    if busy > 1 - _RESTS:
        return (
            f"{_largest_part(summary)} The servers' workers are busy: more of them (worker_per_consumer of the loader "
            "that is served) help, or another server."
        )
    return _between(summary)


def _of_store(account: Account) -> str:
    """What limits those whose set lies in a store: how much it gives, or how late."""
    count = account.counted
    wanted, given = count.get("store_wanted_bytes_per_s", 0.0), count.get("store_given_bytes_per_s", 0.0)
    waited = f"Workers waited {percent(count['store_waited_share'])} of their time for the store"
    if given < wanted:
        return (
            f"{waited}: batches want {nbytes(wanted)}/s, and it gives {nbytes(given)}/s. More workers bring nothing; a "
            "quicker way to it, smaller samples, or cache= on a disk of this machine do."
        )
    return (
        f"{waited}, though it gives {nbytes(given)}/s and batches want {nbytes(wanted)}/s: it is late, not slow. Let "
        "more be fetched ahead: more memory=, or the order that the set's runs give."
    )


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


def _advice(account: Account) -> str:
    summary, measured = account.summary, account.measured
    if account.counted.get("store_waited_share", 0.0) > _STORE_WAITS:
        return _of_store(account)
    if summary.slotless_share > _SLOTLESS and account.is_memory_short:
        return (
            f"Workers waited {percent(summary.slotless_share)} of their time for memory: keep fewer batches, or raise "
            "memory_budget."
        )
    if measured.is_held_up_between:
        return _between(summary)
    return _other_workers(account)


def _other_workers(account: Account) -> str:
    measured, room = account.measured, account.most_workers
    wanted = fewest(measured, NOISE, max(_MOST_WORKERS, measured.workers))
    best = wanted if room is None else min(wanted, room)
    expected = predict(measured, best, measured.threads)
    if wanted <= measured.workers or not _is_worth_it(measured, predict(measured, wanted, measured.threads)):
        return _no_more_workers(measured)
    threads = _threads(measured, expected)
    if best <= measured.workers or not _is_worth_it(measured, expected):
        return f"More workers would help, but the free memory has no room for them.{threads}"
    is_all = predict(measured, best + 1, measured.threads).limit == "cores"
    remark = f": then {_crowd(measured)}" if is_all else "."
    if best < wanted:
        remark = ": there is no memory for more."
    if expected.starved_share > _MOSTLY and best > _FAR * max(1, measured.workers):
        return _as_much_each(measured, best if is_all or best < wanted else None, remark) + threads
    fewer = measured.workers or "none"
    return f"With {counted(best, 'worker')} instead of {fewer} {_brings(measured, expected)}{remark}{threads}"


def _threads(measured: Measured, expected: Predicted) -> str:
    """Who waits for a disk or a server may do so in several threads, which take no memory of their own."""
    more = [count for count in _THREADS if count > measured.threads]
    if not more or min(measured.wait_s, measured.fetch_s) <= _MOSTLY * measured.work_s:
        return ""
    workers = max(1, measured.workers)
    rates = {count: predict(measured, workers, count).batches_per_s for count in more}
    best = next((count for count in more if rates[count] >= expected.batches_per_s), more[-1])
    return (
        f" Fetching mostly waits, so worker_threads={best} would help too, if the dataset bears threads: "
        "`swift-loader check` tells, and `swift-loader tune` finds the best of both."
    )


def _is_worth_it(measured: Measured, expected: Predicted) -> bool:
    """A consumer that takes hardly any time always waits: of such a one it counts how much more it gets."""
    if expected.starved_share > _MOSTLY:
        return expected.batches_per_s >= _WORTH_MORE * measured.batches_per_s
    return measured.starved_share - expected.starved_share >= _WORTH_IT


def _brings(measured: Measured, expected: Predicted) -> str:
    if expected.starved_share > _MOSTLY:
        return f"throughput should rise from {_rates(measured.batches_per_s, expected.batches_per_s)}"
    return f"the wait should fall to about {_about(expected.starved_share)}"


def _as_much_each(measured: Measured, most: int | None, remark: str) -> str:
    """Nothing limits but how many workers there are, as far as can be seen from here: no number is the right one."""
    up_to = "as far as cores and memory last" if most is None else f"up to about {most}"
    if measured.workers == 0:
        alone = predict(measured, 1, measured.threads).batches_per_s
        return f"Each worker should bring about {number(alone)} batches/s, {up_to}{remark}"
    twice = predict(measured, 2 * measured.workers, measured.threads).batches_per_s
    rise = _rates(measured.batches_per_s, twice)
    return f"Twice as many workers should bring about twice as much (from {rise}), and so on {up_to}{remark}"


def _rates(now: float, then: float) -> str:
    return f"{number(now)} to about {number(then)} batches/s"


def _between(summary: Summary) -> str:
    idle = f"Yet workers had nothing to do for {percent(summary.idle_share)} of theirs"
    median_s, _, slow_s = summary.spreads["collect batch data"].percentiles_s
    if slow_s > _STRAGGLES * median_s:
        return f"{idle}: slow samples hold up the others; in_order=False or a larger max_buffer_size lets them pass."
    return f"{idle}: the limit lies between workers and consumer; larger batches, or a larger data_queue_size, help."


def _no_more_workers(measured: Measured) -> str:
    whose = "More workers" if measured.workers else "Workers"
    limit = predict(measured, max(1, measured.workers) + 1, measured.threads).limit
    if limit == "cores":
        return f"{whose} would bring nothing: {_crowd(measured)}"
    return f"{whose} would bring little."


def _crowd(measured: Measured) -> str:
    cores = "only core" if measured.cores == 1 else f"{measured.cores:g} cores"
    if measured.cores_of_others > _CROWDED * measured.cores:
        return f"other processes hold {measured.cores_of_others:.1f} of the {cores}."
    busy = f"the {cores} is busy" if measured.cores == 1 else f"all of the {cores} are busy"
    return f"{busy}; cheaper samples or more cores would help."


def _about(share: float) -> str:
    return "1 %" if share < 0.01 else percent(share)
