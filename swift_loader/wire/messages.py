"""What is said between a consumer and a worker, and how it is written.

    consumer -> worker      setup (once), orders, caution (before an order), retire
    worker -> consumer      hello (once), parcel, void, failure, leaving, note (text for the user)

One message is one datagram. Those of every batch are fixed records; what is rare or of any shape is pickled behind.
Neither side knows here how datagrams travel.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_loader.batch.codec import encode
from swift_loader.batch.layout import BatchSpec
from swift_loader.errors import FailureReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from swift_loader.travel.heritage import Heritage
    from swift_loader.wire.facts import Facts

SETUP, ORDERS, RETIRE, HELLO, PARCEL, PARCELS, VOID, FAILURE, CAUTION, LEAVING, NOTE = range(1, 12)

_ORDER = struct.Struct("<QIQIQB")
_PARCEL = struct.Struct("<BQIIIQQQQQQqQQQQ")
_VOID = struct.Struct("<BQ")
_LENGTH = struct.Struct("<I")


class Order(NamedTuple):
    """Make this ticket in this slot."""

    seq: int
    """The place of the ticket in everything that this pool was ever asked for."""
    epoch: int
    step: int
    slot: int
    room: int
    """If the worker must make the slot itself: how large slots have been so far."""
    brings_slot: bool
    """The slot's descriptor comes along with this datagram."""


class Cost(NamedTuple):
    """What a batch cost its worker. Times are in nanoseconds."""

    fetch_ns: int = 0
    """The worker read its samples."""
    collate_ns: int = 0
    """The worker put them together."""
    encode_ns: int = 0
    """The worker wrote into the slot what the default collate did not already write there."""
    slot_wait_ns: int = 0
    """The worker waited for memory: it made a slot, which is neither fetching nor collating."""
    slowest_ns: int = 0
    """The batch's slowest sample took this long to fetch."""
    slowest_index: int = -1
    """And this is which it was; -1 where samples were not timed one by one."""
    order_wait_ns: int = 0
    """The worker had nothing to do: it waited for this order."""
    cpu_ns: int = 0
    """The worker used a core, since the parcel before that told of it."""
    delay_ns: int = 0
    """And for so long it could have run, and got no core."""
    transit_ns: int = 0
    """The order and the batch were on their way, where it was made elsewhere."""

    @property
    def made_ns(self) -> int:
        """The worker was at the batch."""
        return self.fetch_ns + self.collate_ns + self.encode_ns


FREE = Cost()
"""Nobody has looked."""


@dataclass(slots=True)
class Parcel:
    """The slot is full."""

    seq: int
    slot: int
    spec_id: int
    """Names the layout among those that this worker has sent."""
    rows: int
    nbytes: int
    cost: Cost = FREE
    attachment: Attachment | None = None
    spec: BatchSpec | None = None
    """The layout that ``spec_id`` named when the parcel came. Not sent."""


@dataclass(slots=True)
class Attachment:
    """What only some parcels carry."""

    spec: BatchSpec | None = None
    """The layout, when it is sent for the first time."""
    stream: bytes | None = None
    """The pickle of the batch's objects, if it has any and they are small."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Places in the slot of the buffers that belong to the pickle; the last is the pickle, if it is large."""
    new_slot: bool = False
    """The batch did not fit: the worker made a larger slot, whose descriptor comes along."""
    skipped: list[tuple[int, str]] = field(default_factory=list)
    """Samples that were left out, and why."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The worker has built its dataset."""

    pid: int
    facts: Facts
    libraries: Sequence[str] = ()
    """What it has loaded for that."""
    fetching: Sequence[tuple[str, str]] = ()
    """Who fetches for it, if it lies elsewhere; and what it is called there."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The ticket could not be made; with ``seq`` 0: the dataset could not be built."""

    seq: int
    report: FailureReport


@dataclass(frozen=True, slots=True)
class Caution:
    """Some samples kill their workers. Comes before the order that it is about."""

    seq: int
    """The order to be made sample by sample, by one thread, with nothing fetched ahead; 0: none is."""
    left_out: dict[int, FailureReport]
    """Samples that are left out of every batch from now on, and why."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The worker has grown too large and ends; what it still has to do is for others."""

    nbytes: int
    """The memory of its own that it has taken."""
    first_nbytes: int
    """And after its first batch."""
    why: str = ""
    """Where it leaves for another reason."""
    report: FailureReport | None = None
    """Where it leaves for good: the server that it stands for is not to be believed."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker is told first. With it come the control page and, unless it was forked with one, the payload."""

    worker: int
    worker_count: int
    max_batch_nbytes: int
    heritage: Heritage
    has_payload: bool
    servers: tuple[str, ...] = ()
    """Where what makes the batches of this line is found, for one that stands for a server: the nearest first."""


def write_orders(orders: Iterable[Order]) -> bytes:
    """One datagram for several orders."""
    return b"".join((bytes((ORDERS,)), *(_ORDER.pack(*order) for order in orders)))


def read_orders(datagram: bytes) -> list[Order]:
    """The orders of one datagram."""
    return [Order._make(fields) for fields in _ORDER.iter_unpack(memoryview(datagram)[1:])]


def write_parcel(parcel: Parcel) -> bytes:
    """One datagram for one parcel."""
    p = parcel
    head = _PARCEL.pack(PARCEL, p.seq, p.slot, p.spec_id, p.rows, p.nbytes, *p.cost)
    if p.attachment is None:
        return head
    # A layout names the samples' classes, which may be those of __main__: encode knows how such travel.
    plain = p.attachment.spec is None
    return head + (pickle.dumps(p.attachment, protocol=5) if plain else encode(p.attachment).stream)


def read_parcel(datagram: bytes | memoryview) -> Parcel:
    """The parcel of one datagram, or of its part of one."""
    _, seq, slot, spec_id, rows, nbytes, *cost = _PARCEL.unpack_from(datagram)
    parcel = Parcel(seq, slot, spec_id, rows, nbytes, Cost._make(cost))
    if len(datagram) > _PARCEL.size:
        parcel.attachment = pickle.loads(memoryview(datagram)[_PARCEL.size :])  # noqa: S301 - from our own worker
    return parcel


def join_parcels(parcels: Sequence[bytes]) -> bytes:
    """One datagram for several parcels, each behind its length."""
    return b"".join((bytes((PARCELS,)), *(part for one in parcels for part in (_LENGTH.pack(len(one)), one))))


def read_parcels(datagram: bytes) -> list[Parcel]:
    """The parcels of one datagram."""
    view, end = memoryview(datagram), 1
    found = []
    while end < len(view):
        begin = end + _LENGTH.size
        end = begin + _LENGTH.unpack_from(view, end)[0]
        if end > len(view):
            raise ValueError("a parcel is longer than its datagram")
        found.append(read_parcel(view[begin:end]))
    return found


def write_void(seq: int) -> bytes:
    """The order was taken back before or while it was made; its slot may be used again."""
    return _VOID.pack(VOID, seq)


def read_void(datagram: bytes) -> int:
    """The order that was taken back."""
    return int(_VOID.unpack(datagram)[1])


class Garbled(Exception):
    """Bytes that are no message: the dataset has written to a descriptor that was not its own."""


def read(datagram: bytes) -> Any:
    """What a worker says, whatever it is.

    Raises:
        Garbled: if it is no message.
    """
    try:
        return _READERS[datagram[0]](datagram)
    except (KeyError, IndexError, ValueError, EOFError, struct.error, pickle.UnpicklingError) as error:
        raise Garbled(f"{len(datagram)} bytes that begin with {datagram[:16]!r}") from error


def write_pickled(kind: int, value: Any) -> bytes:
    """A rare message."""
    return bytes((kind,)) + pickle.dumps(value, protocol=5)


def read_pickled(datagram: bytes) -> Any:
    """A rare message's content."""
    return pickle.loads(memoryview(datagram)[1:])  # noqa: S301 - over an anonymous socket, from our own processes


_READERS: dict[int, Callable[[bytes], Any]] = {
    PARCEL: read_parcel, PARCELS: read_parcels, VOID: read_void,
    **dict.fromkeys((HELLO, FAILURE, LEAVING, NOTE), read_pickled),
}  # fmt: skip
