"""What stands for a server on a line: it takes orders as a worker does, and has the batches made there.

    orders    -> asked for at the server, by epoch and step
    a batch   -> received straight into its slot -> parcel

A process of its own, so that nothing that comes from a network is read in the trainer. It keeps nothing: when the
connection is lost it says so and ends; its orders go to others, and the process that takes its place connects anew.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections import deque

from swift_loader.batch.layout import aligned
from swift_loader.errors import FailureReport, ProtocolError
from swift_loader.net import schema
from swift_loader.net.address import Address, parse
from swift_loader.net.batches import Makes, checked_objects
from swift_loader.net.frames import (
    BEAT,
    CANCEL,
    COPIED,
    FAILED,
    LEAVING,
    LENT,
    NOTE,
    ORDERS,
    PARCEL,
    VOID,
    WHOLE,
    Head,
    Limits,
)  # fmt: skip
from swift_loader.net.link import BEAT_S, SILENCE_S, Link, LinkLost
from swift_loader.net.receiver import Frame, Receiver
from swift_loader.net.values import read
from swift_loader.wire import messages
from swift_loader.wire.channel import SocketChannel
from swift_loader.wire.facts import Facts
from swift_loader.wire.messages import Attachment, Cost, Failure, Hello, Leaving, Order, Parcel, Setup
from swift_loader.wire.page import BUILDS, FETCHES, WAITS, Control
from swift_loader.wire.recipe import Recipe
from swift_loader.wire.remote_samples import RemoteSamples
from swift_loader.worker import carried
from swift_loader.worker.approach import Approach
from swift_loader.worker.behind import Behind
from swift_loader.worker.gauges import Scale
from swift_loader.worker.lent import Lent
from swift_loader.worker.made import Made
from swift_loader.worker.slots import SlotBerth, Slots

ORDER = struct.Struct("<QQQ")
"""One order on the wire: its number, the epoch, the step."""
_META_NBYTES = 4 << 20


class Porter:
    """Stands for one server."""

    def __init__(
        self, channel: SocketChannel, control: Control, setup: Setup, recipe: Recipe, samples: RemoteSamples
    ) -> None:
        self._channel = channel
        self._control = control
        self._cell = control.cell(setup.worker)
        self._recipe = recipe
        self._samples = samples.at(setup.servers)
        self._address: Address = parse(self._samples.server_of(setup.worker))
        self._facts: Facts | None = None
        """What a server of this job has said of the dataset."""
        self._slots = Slots(setup.max_batch_nbytes)
        self._limits = Limits(_META_NBYTES, setup.max_batch_nbytes)
        self._open: dict[int, tuple[Order, SlotBerth, int]] = {}
        """Orders that the server has not answered, and when they were sent."""
        self._cancelled: set[int] = set()
        self._said: deque[schema.Parcel] = deque(maxlen=1)
        """What was said of the batch whose bytes come now."""
        self._lent = Lent()
        self._said_s = 0.0
        self._progress = 0
        self._makes = Makes(recipe.config.batch_size)
        self._link: Link | None = None
        self._receiver: Receiver | None = None

    def arrives(self) -> bool:
        """Connects, for as long as it takes; whether it did. If it never will, the consumer is told why."""
        try:
            self._receiver = self._connected()
        except LinkLost as lost:
            self._leaves(f"{self._address}: {lost}; it is looked for anew")
            return False
        except Exception as error:  # noqa: BLE001 - told to the consumer, whatever it is
            report = FailureReport.of(error, "connect")
            self._channel.send(messages.write_pickled(messages.FAILURE, Failure(0, report)))
            return False
        facts = self._facts or self._recipe.facts_of(self._samples)
        self._channel.send(messages.write_pickled(messages.HELLO, Hello(os.getpid(), facts)))
        return True

    def loop(self, _scale: Scale) -> None:
        """Until it is to leave, or the connection is lost."""
        try:
            while self._turn():
                pass
        except LinkLost as lost:
            self._leaves(f"{self._address}: {lost}; batches that it was asked for are made again")
        except ProtocolError as error:
            told = ProtocolError(f"what came from {self._address} is not what a server says: {error}")
            told.peer = str(self._address)
            self._leaves(str(told), FailureReport.of(told, "receive a batch"))

    def _leaves(self, why: str, report: FailureReport | None = None) -> None:
        self._channel.send(messages.write_pickled(messages.LEAVING, Leaving(0, 0, why, report)))

    def close(self) -> None:
        """Lets go of the connection."""
        if self._link is not None:
            self._link.close()

    # ---- connecting

    def _connected(self) -> Receiver:
        if self._samples.job_key:
            consumer = self._recipe.consumer
            found = carried.reached(self._samples, consumer, self._limits, self._place, self._may_connect)
            self._link, receiver, self._facts = found
            self._said_s = time.monotonic()
            return receiver
        approach = Approach(self._samples, self._address, self._recipe.consumer, self._limits, self._tell)
        self._link, receiver = approach.connected(self._place, self._may_connect)
        self._said_s = time.monotonic()
        return receiver

    def _may_connect(self) -> bool:
        self._progresses(BUILDS)
        return not self._channel.has_message()  # before it has greeted, only that it is to leave can come

    def _tell(self, text: str) -> None:
        self._channel.send(messages.write_pickled(messages.NOTE, text))

    # ---- serving

    def _turn(self) -> bool:
        """Waits until something happens, and sees to it; False when it is to leave."""
        assert self._link is not None
        assert self._receiver is not None
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._link, select.POLLIN)
        poll.poll(BEAT_S * 500)
        while self._channel.has_message():
            if not self._receive():
                return False
        while (frame := self._receiver.read()) is not None:
            self._handle(frame)
            if self._channel.has_message() and not self._receive():
                return False
        now = time.monotonic()
        if now - self._link.heard_s > SILENCE_S:
            raise LinkLost(f"nothing was heard for {SILENCE_S:g} s")
        self._cancel()
        if now - self._said_s > BEAT_S:
            self._say(BEAT)
        return True

    def _receive(self) -> bool:
        received = self._channel.receive()
        assert received is not None  # this end blocks
        datagram, fds = received
        if not datagram or datagram[0] == messages.RETIRE:
            return False
        if datagram[0] != messages.ORDERS:  # what is left out, the server decides
            return True
        upcoming, asked, now_ns = iter(fds), [], time.perf_counter_ns()
        for order in messages.read_orders(datagram):
            if order.brings_slot:
                self._slots.adopt(order.slot, next(upcoming))
            berth = SlotBerth(self._slots, order, self._control.word(order.slot), careful=False, following=None)
            self._open[order.seq] = (order, berth, now_ns)
            asked.append(ORDER.pack(order.seq, order.epoch, order.step))
        self._say(ORDERS, b"".join(asked))
        self._progresses(FETCHES)
        return True

    def _cancel(self) -> None:
        """The consumer has taken orders back: so does this."""
        unwanted = {seq for seq, (_, berth, _) in self._open.items() if not berth.wanted} - self._cancelled
        if unwanted:
            self._cancelled |= unwanted
            self._say(CANCEL, b"".join(ORDER.pack(seq, 0, 0) for seq in unwanted))

    def _say(self, kind: int, meta: bytes = b"") -> None:
        assert self._link is not None
        self._link.say(kind, meta)
        self._said_s = time.monotonic()

    def _progresses(self, stage: int) -> None:
        """A server that says something makes progress: it looks after its own workers."""
        self._progress += 1
        self._cell.enter(stage if self._open or stage == BUILDS else WAITS, self._progress)

    def _handle(self, frame: Frame) -> None:
        self._progresses(FETCHES)
        if frame.kind == PARCEL:
            self._deliver(frame, None if self._samples.job_key else self._said.pop())
        elif frame.kind == LENT:
            self._copy(frame)
        elif frame.kind == WHOLE and frame.seq in self._lent.copied:
            self._deliver(*self._lent.copied.pop(frame.seq))
        elif frame.kind == VOID:
            self._answered(frame.seq)
            self._channel.send(messages.write_void(frame.seq))
        elif frame.kind == FAILED:
            self._answered(frame.seq)
            self._fail(frame)
        elif frame.kind == NOTE:
            text = bytes(frame.meta)[:1000].decode(errors="replace")
            shown = "".join(one if one.isprintable() else " " for one in text)
            self._tell(f"{self._address}: {shown}")
        elif frame.kind == LEAVING:
            self._end(frame)
        elif frame.kind != BEAT:
            raise ProtocolError(f"it sent a frame of kind {frame.kind}")

    def _end(self, frame: Frame) -> None:
        """The server can make nothing more."""
        if self._samples.job_key:
            self._channel.send(bytes(frame.meta))
            return
        said = schema.read(schema.Failure, frame.meta)
        raise ProtocolError(f"it can make no batches: {said.type_name}: {said.text}")

    def _answered(self, seq: int) -> tuple[Order, SlotBerth, int]:
        answered = self._open.pop(seq, None)
        if answered is None:
            raise ProtocolError(f"it answered order {seq}, which it does not have")
        self._cancelled.discard(seq)
        return answered

    def _fail(self, frame: Frame) -> None:
        """One batch cannot be made."""
        if self._samples.job_key:
            self._channel.send(bytes(frame.meta))
            return
        said = schema.read(schema.Failure, frame.meta)
        report = FailureReport(said.stage, said.type_name, said.text, said.traceback, said.index)
        self._channel.send(messages.write_pickled(messages.FAILURE, Failure(frame.seq, report)))

    # ---- one batch

    def _place(self, head: Head, meta: memoryview) -> memoryview:
        """Where the bytes of a batch go: its slot."""
        if head.kind not in (PARCEL, LENT):
            return memoryview(bytearray(head.bulk_nbytes))
        order, berth, _ = self._open.get(head.seq, (None, None, 0))
        if order is None or berth is None:
            raise ProtocolError("it sent a batch that nobody has ordered")
        if self._samples.job_key:
            carried.check(order, meta)
            if head.kind == LENT:
                return memoryview(bytearray(head.bulk_nbytes))
            return berth.room(head.bulk_nbytes).memory.data[: head.bulk_nbytes]
        said = schema.read(schema.Parcel, meta)
        columns_nbytes = aligned(said.spec.nbytes) if said.objects_nbytes else said.spec.nbytes
        begin, end = columns_nbytes if head.kind == LENT else 0, columns_nbytes + said.objects_nbytes
        is_asked = (said.epoch, said.step) == (order.epoch, order.step)
        if not is_asked or head.bulk_nbytes != end - begin or said.rows > self._recipe.config.batch_size:
            raise ProtocolError(
                f"it sent batch {said.step} of epoch {said.epoch} with {said.rows} rows in "
                f"{head.bulk_nbytes:,} bytes, where batch {order.step} of epoch {order.epoch} was ordered"
            )
        self._said.append(said)
        room: memoryview = berth.room(end).memory.data
        return room[begin:end]

    def _copy(self, frame: Frame) -> None:
        """Out of the server's memory, which is that of the right batch if the server says so afterwards."""
        assert self._link is not None
        if not self._link.files:
            raise ProtocolError("it lent a batch without the memory that it lies in")
        (_, berth, _), said = self._open[frame.seq], None if self._samples.job_key else self._said.pop()
        nbytes = carried.nbytes_of(frame.meta) if said is None else said.spec.nbytes
        self._lent.copy(self._link.files.popleft(), berth.room(nbytes).memory.data[:nbytes])
        self._lent.copied[frame.seq] = (frame, said)
        self._link.say(COPIED, seq=frame.seq)

    def _deliver(self, frame: Frame, said: schema.Parcel | None) -> None:
        order, berth, sent_ns = self._answered(frame.seq)
        taken_ns = time.perf_counter_ns() - sent_ns
        if not berth.wanted:
            berth.forget()
            self._channel.send(messages.write_void(order.seq))
            return
        if said is None:
            self._send(carried.parcel_of(frame, order, taken_ns, has_made=berth.made is not None), berth)
            return
        spec_id, spec, is_new = self._makes.known(said.spec)
        made = Made(spec, said.rows, spec.nbytes, None, [], [])
        if spec.object_count:
            behind = frame.bulk[frame.bulk.nbytes - said.objects_nbytes :]
            objects = checked_objects(read(bytes(behind)), spec, said.rows)
            made.lay(objects, berth, Behind(None))
        transit_ns = max(0, taken_ns - said.held_ns)
        parcel = Parcel(order.seq, order.slot, spec_id, made.rows, made.nbytes, Cost._make((*said.cost, transit_ns)))
        if is_new or made.stream is not None or made.spans or berth.made is not None or said.skipped:
            new_spec = spec if is_new else None
            parcel.attachment = Attachment(new_spec, made.stream, made.spans, berth.made is not None, said.skipped)
        self._send(parcel, berth)

    def _send(self, parcel: Parcel, berth: SlotBerth) -> None:
        datagram = messages.write_parcel(parcel)
        if berth.made is None:
            self._channel.send(datagram)
        else:
            self._channel.send(datagram, [berth.made.fd])
            berth.made.close()
