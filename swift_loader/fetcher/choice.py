"""What is fetched together, and what is worth a request of its own. Pure."""

from __future__ import annotations

from typing import NamedTuple

from swift_loader.shards.upcoming import FREE, Terms

#: No more than so many times what is wanted is fetched, so that there are fewer requests.
MOST_TIMES = 2
#: A stretch that comes sooner than this is waited for.
SOON_S = 0.15
#: Requests of their own must be there so many times as soon: they cost the store more than the same bytes of runs.
TIMES_SOONER = 4.0


class Range(NamedTuple):
    """Bytes of a shard."""

    shard: int
    begin: int
    end: int


def coalesced(wanted: list[Range], gap: int = FREE.gap_nbytes) -> list[Range]:
    """Ranges that are fetched in one request each, in order.

    Example:
        >>> coalesced([Range(0, 0, 10), Range(0, 15, 30), Range(0, 900, 910)], gap=20)
        [Range(shard=0, begin=0, end=30), Range(shard=0, begin=900, end=910)]
    """
    together: list[Range] = []
    needed = 0
    for one in sorted(wanted):
        last = together[-1] if together else None
        if last is not None and last.shard == one.shard:
            end = max(last.end, one.end)
            more = one.end - max(one.begin, last.end)
            is_near = one.begin - last.end <= gap and end - last.begin <= MOST_TIMES * (needed + max(0, more))
            if one.begin <= last.end or is_near:
                together[-1] = Range(one.shard, last.begin, end)
                needed += max(0, more)
                continue
        together.append(one)
        needed = one.end - one.begin
    return together


def is_worth_a_range(
    due_s: float | None, nbytes: int, twice_nbytes: int, all_nbytes: int, ranges_s: float = 0.0, terms: Terms = FREE
) -> bool:
    """Whether bytes that will come with others are fetched alone, so that nobody waits for all of those.

    Args:
        due_s: When they will come; None where that is not known.
        nbytes: How many.
        twice_nbytes: What has been fetched twice so far.
        all_nbytes: What has been fetched.
        ranges_s: How long such requests took, of late.
        terms: What may be fetched twice.
    """
    if due_s is not None and due_s <= max(SOON_S, TIMES_SOONER * ranges_s):
        return False
    return twice_nbytes + nbytes <= terms.spare_nbytes + terms.spare_share * all_nbytes
