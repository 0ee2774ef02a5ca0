"""What is noted of one batch. Knows nothing of where it goes."""

from __future__ import annotations

from typing import NamedTuple


class BatchRecord(NamedTuple):
    """One batch: which it was, what it cost, and who waited for whom. Times are in nanoseconds.

    A tuple with names rather than a frozen dataclass, since one is made for every batch: it costs a third, and many of
    them turn into columns without a loop.
    """

    epoch: int
    step: int
    worker: int
    rows: int
    nbytes: int
    # What it cost its worker: the fields of `Cost`, in its order.
    fetch_ns: int
    """The worker read its samples."""
    collate_ns: int
    """The worker put them together."""
    encode_ns: int
    """The worker wrote into the slot what the default collate did not already write there."""
    slot_wait_ns: int
    """The worker waited for memory: no slot was free, or one had to be made. Not part of ``order_wait_ns``."""
    slowest_ns: int
    """The batch's slowest sample took this long to fetch."""
    slowest_index: int
    """And this is which it was; -1 where samples were not timed one by one."""
    order_wait_ns: int
    """The worker had nothing to do: it waited for this order."""
    cpu_ns: int
    """The worker used a core. Quick batches are looked at several together: the last of them has it all."""
    delay_ns: int
    """In that time it could have run and was given no core. Noted as ``cpu_ns`` is."""
    transit_ns: int
    """The order and the batch were on the network, where a server makes batches; else 0."""
    # What became of it.
    merge_ns: int
    """The finished batch waited for its turn."""
    land_ns: int
    """The consumer's thread decoded the batch and moved it, or took it from the thread that does so ahead."""
    wait_ns: int
    """The consumer starved: it asked, and the batch was not there."""
    busy_ns: int
    """The consumer did something else, between the batch before and asking for this one."""
    decode_ns: int = 0
    """Tensors and objects were made of what lies in the slot."""
    transfer_ns: int = 0
    """The way to the device: by the device's own clock where it has one, else what it took the host."""
