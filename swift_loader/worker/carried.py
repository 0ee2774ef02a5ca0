"""What a server of the trainer's own job says: there it was a worker's word, and here it becomes one again.

Such a server was started by this job, with its code and its key. So layouts and objects are what they are between a
trainer and its workers, pickles of whatever there is; and none of them is opened before it is in the trainer.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from swift_loader.errors import ProtocolError
from swift_loader.host.memfile import memory_file
from swift_loader.net import schema
from swift_loader.net.address import parse
from swift_loader.net.dial import dial
from swift_loader.net.frames import Limits
from swift_loader.net.greeting import Attempts, Refusal, greeted
from swift_loader.net.keys import Key, read_key
from swift_loader.net.link import Link, LinkLost
from swift_loader.net.receiver import Place, Receiver
from swift_loader.plan.runs import Runs
from swift_loader.wire.facts import Facts
from swift_loader.wire.messages import Attachment, Cost, Order, Parcel

if TYPE_CHECKING:
    from collections.abc import Callable

    from swift_loader.net.receiver import Frame
    from swift_loader.wire.remote_samples import RemoteSamples

_FIRST_PAUSE_S = 0.03


class Packed:
    """A layout that is opened where it arrives."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        return pickle.loads, (self._stream,)


def reached(
    samples: RemoteSamples, consumer: int, limits: Limits, place: Place, goes_on: Callable[[], bool]
) -> tuple[Link, Receiver, Facts]:
    """A connection to the server, at the nearest place where it answers; and what it has learnt of the dataset.

    Raises:
        LinkLost: if it may be elsewhere by now, which only the trainer can know.
    """
    key = read_key(key_file(samples.job_key))
    attempts = Attempts(_FIRST_PAUSE_S)
    while goes_on():
        try:
            link = _dialled(samples.servers, key)
            hello = schema.hello(
                "loader", consumer=consumer, loader=samples.loader, most_nbytes=limits.bulk_nbytes,
                takes_files=link.takes_files,
            )  # fmt: skip
            return _welcomed(link, hello, limits, place)
        except (LinkLost, Refusal) as error:
            if attempts.waited_s > samples.wait_s:
                raise LinkLost(str(error)) from error
        attempts.pause()
    raise LinkLost("it was not waited for any longer")


def _dialled(servers: Sequence[str], key: Key) -> Link:
    for text in servers[:-1]:
        with contextlib.suppress(LinkLost):
            return _link_to(text, key)
    return _link_to(servers[-1], key)


def _link_to(text: str, key: Key) -> Link:
    address = parse(text)
    link = dial(address, key)
    link.takes_files = bool(address.path)
    return link


def _welcomed(link: Link, hello: bytes, limits: Limits, place: Place) -> tuple[Link, Receiver, Facts]:
    try:
        receiver, welcome = greeted(link, hello, limits, place)
        said = schema.read(schema.Counted, welcome.facts)
    except BaseException:
        link.close()
        raise
    return link, receiver, Facts(said.sample_count, None if said.runs is None else Runs(said.runs, said.groups))


def check(order: Order, meta: memoryview) -> None:
    """Raises `ProtocolError` if that is another batch."""
    said = schema.read(schema.Carried, meta)
    if (said.epoch, said.step) != (order.epoch, order.step):
        raise ProtocolError(f"batch {said.step} of epoch {said.epoch} came, where {order} was given")


def nbytes_of(meta: memoryview) -> int:
    """How many bytes a batch has that is lent."""
    return schema.read(schema.Carried, meta).nbytes


def parcel_of(frame: Frame, order: Order, taken_ns: int, *, has_made: bool) -> Parcel:
    """The batch whose bytes lie in its slot.

    Args:
        frame: What was said of it.
        order: What was asked for,
        taken_ns: so long ago.
        has_made: The slot had to be made for it.
    """
    said = schema.read(schema.Carried, frame.meta)
    cost = Cost._make((*said.cost, max(0, taken_ns - said.held_ns)))
    parcel = Parcel(order.seq, order.slot, said.layout, said.rows, said.nbytes, cost)
    if said.packed or said.stream is not None or said.spans or has_made or said.skipped:
        layout: Any = Packed(said.packed) if said.packed else None
        parcel.attachment = Attachment(layout, said.stream, list(said.spans), has_made, list(said.skipped))
    return parcel


def key_file(key: str) -> str:
    """The path of a file in memory that holds a key, for as long as this process lives: TLS takes them from files."""
    fd = memory_file("swift-key")
    with open(fd, "wb", closefd=False) as file:
        file.write(key.encode("ascii"))
    return f"/proc/self/fd/{fd}"
