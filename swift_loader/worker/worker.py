"""The life of a child process: arrive, build the dataset, make what is ordered, leave.

    setup ->  build the dataset  -> hello (or failure)
    orders -> make, one by one   -> parcel, void or failure each
    retire, the end of the channel, or too much memory taken -> leave

The worker may die between any two of these lines: all it holds is one slot's memory and its end of the channel, and
both are the kernel's to close. Never imports the trainer's side, nor torch by itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol

from swift_loader.batch.layout import BatchSpec
from swift_loader.errors import FailureReport
from swift_loader.host.memory import with_memory_told
from swift_loader.plan.ahead import Ahead
from swift_loader.travel.payload import unpack
from swift_loader.wire import messages
from swift_loader.wire.channel import SocketChannel
from swift_loader.wire.messages import Attachment, Caution, Failure, Hello, Order, Parcel, Setup
from swift_loader.wire.page import BUILDS, SENDS, WAITS, Control
from swift_loader.wire.recipe import Recipe
from swift_loader.wire.remote_samples import RemoteSamples
from swift_loader.wire.stacks import write_stacks_to
from swift_loader.worker import faultpoints, guard
from swift_loader.worker.fetching import fetching_of
from swift_loader.worker.gauges import NEVER, Clocks, Scale
from swift_loader.worker.info import SetEpoch, WorkerInfo, set_worker_info
from swift_loader.worker.libraries import libraries_since
from swift_loader.worker.made import Made
from swift_loader.worker.maker import BatchMaker
from swift_loader.worker.outbox import Outbox
from swift_loader.worker.reuse import carousel_at, kept, repeated
from swift_loader.worker.slots import SlotBerth, Slots
from swift_loader.worker.unmade import MakeFailed, TakenBack

#: A worker tells its consumer about this many layouts before it uses their numbers again.
_SPEC_IDS = 64
#: Of a sample that was left out, this much of the reason is told.
_REASON_LENGTH = 300


def run(channel_fd: int, lifeline_fd: int, name: str, recipe: Recipe | None) -> None:
    """The whole life of a worker. ``recipe`` is what it was forked with, if it was."""
    guard.arm(lifeline_fd, name)
    faultpoints.arm()
    channel = SocketChannel(socket.socket(fileno=channel_fd), blocking=True)
    # A child that the dataset forks may come back here, by a return or an error. It must not speak for this worker: it
    # has no channel, and touching what is shared with the trainer ends it.
    os.register_at_fork(after_in_child=channel.close)
    scale = Scale()
    with contextlib.suppress(OSError):  # the consumer has gone: nobody is left to tell
        worker = _arrive(channel, recipe, scale)
        if worker is not None:
            worker.loop(scale)
            worker.close()
    scale.close()
    channel.close()
    guard.flush_streams()


def _arrive(channel: SocketChannel, recipe: Recipe | None, scale: Scale) -> Life | None:
    received = channel.receive()
    if received is None or not received[0]:
        return None
    setup: Setup = messages.read_pickled(received[0])
    setup.heritage.take_over(is_copy=not setup.has_payload)
    known = len(sys.modules)
    faultpoints.arm()
    control_fd, stacks_fd, *others = received[1]
    write_stacks_to(stacks_fd)
    control = Control(control_fd, setup.worker_count)
    control.hide_from_children()
    cell = control.cell(setup.worker)
    cell.enter(BUILDS)
    try:
        if setup.has_payload:
            recipe = unpack(others.pop())
        assert recipe is not None
        config = recipe.config
        per_sample = config.random_per == "sample" or config.worker_threads > 1
        info = WorkerInfo(
            recipe.consumer, setup.worker, recipe.seed, per_sample=per_sample, shares=config.worker_threads > 1
        )
        set_worker_info(info)
        is_as_others = _initialised(config.worker_init, info)
        dataset = recipe.build()
        facts = recipe.facts_of(dataset)
        if isinstance(dataset, RemoteSamples):
            return _porter(channel, control, setup, recipe, dataset)
        ahead = Ahead(recipe.plan(facts), recipe.consumer, config.batch_size)

        def tell(text: str) -> None:
            _note(channel, text)

        info.generators.find(dataset=dataset, collate_fn=config.collate_fn, batch_encoder=config.batch_encoder)
        dataset = kept(recipe, dataset, facts.sample_count, info, cell, tell)
        carousel = carousel_at(others, recipe, tell)
        maker = BatchMaker(recipe, repeated(recipe, dataset, ahead, carousel, info, cell), ahead, info, cell)
    except SystemExit:  # a death, and told as one
        raise
    except BaseException as error:  # noqa: BLE001 - user code: whatever it raised is told to the consumer
        report = FailureReport.of(error, "build the dataset")
        channel.send(messages.write_pickled(messages.FAILURE, Failure(0, report)))
        return None
    libraries = libraries_since(known) if is_as_others else []
    scale.limit(config.max_worker_nbytes)
    channel.send(messages.write_pickled(messages.HELLO, Hello(os.getpid(), facts, libraries, fetching_of(dataset))))
    return Worker(channel, control, setup, maker, info.turner(dataset))


def _porter(
    channel: SocketChannel, control: Control, setup: Setup, recipe: Recipe, samples: RemoteSamples
) -> Life | None:
    """What stands for a server: it has all batches made there."""
    from swift_loader.worker.porter import Porter  # noqa: PLC0415 - only loaders of servers need it

    porter = Porter(channel, control, setup, recipe, samples)
    return porter if porter.arrives() else None


def _initialised(worker_init: Callable[[WorkerInfo], object] | None, info: WorkerInfo) -> bool:
    """Whether libraries find what they find in others: not where the user's function has changed the environment."""
    before = dict(os.environ)
    if worker_init is not None:
        worker_init(info)
    return os.environ == before


def _note(channel: SocketChannel, text: str) -> None:
    with contextlib.suppress(OSError):  # the consumer has gone
        channel.send(messages.write_pickled(messages.NOTE, text))


class Life(Protocol):
    """What a child does once it has arrived."""

    def loop(self, scale: Scale) -> None:
        """Until it is to leave."""
        ...

    def close(self) -> None:
        """Lets go of what it has."""
        ...


class Worker:
    """Makes what is ordered."""

    def __init__(
        self, channel: SocketChannel, control: Control, setup: Setup, maker: BatchMaker, set_epoch: SetEpoch | None
    ) -> None:
        self._channel = channel
        self._outbox = Outbox(channel)
        self._control = control
        self._cell = control.cell(setup.worker)
        self._maker = maker
        self._clocks = Clocks() if maker.measures else None
        self._looks_ahead = maker.looks_ahead
        self._careful: set[int] = set()
        """Orders to be made sample by sample."""
        self._set_epoch = set_epoch
        self._epoch: int | None = None
        self._slots = Slots(setup.max_batch_nbytes)
        self._orders: deque[Order] = deque()
        self._spec_ids: dict[int, tuple[int, BatchSpec]] = {}
        self._spec_count = 0

    def close(self) -> None:
        """Ends the fetching threads."""
        self._maker.close()
        if self._clocks is not None:
            self._clocks.close()

    def loop(self, scale: Scale) -> None:
        """Until the consumer retires this worker or goes, or the worker has grown too large."""
        while True:
            looks = self._clocks is not None or scale.due_ns != NEVER
            begun = perf_counter_ns() if looks else 0
            while not self._orders:
                # Nothing waits while this worker does: the consumer may be out of slots, and those of parcels that it
                # has not heard of come home only once it has.
                if not (self._outbox.is_waiting and self._channel.has_message()):
                    self._outbox.flush()
                self._cell.enter(WAITS)
                if not self._receive():
                    return
            order_wait_ns = perf_counter_ns() - begun if looks else 0
            if self._looks_ahead and self._channel.has_message() and not self._receive():
                return
            self._make(self._orders.popleft(), order_wait_ns)
            if begun > scale.due_ns and (leaving := scale.weigh()) is not None:
                self._outbox.send(messages.write_pickled(messages.LEAVING, leaving))
                return

    def _receive(self) -> bool:
        received = self._channel.receive()
        assert received is not None  # this end blocks
        datagram, fds = received
        if not datagram or datagram[0] == messages.RETIRE:
            return False
        if datagram[0] == messages.CAUTION:
            self._heed(messages.read_pickled(datagram))
            return True
        upcoming = iter(fds)
        for order in messages.read_orders(datagram):
            if order.brings_slot:
                self._slots.adopt(order.slot, next(upcoming))
            self._orders.append(order)
        return True

    def _heed(self, caution: Caution) -> None:
        self._maker.leave_out(caution.left_out)
        if caution.seq:
            self._careful.add(caution.seq)

    def _step_after(self, order: Order) -> int | None:
        after = self._orders[0] if self._orders else None
        is_near = after is not None and after.epoch == order.epoch and after.seq not in self._careful
        return after.step if after is not None and is_near else None

    def _berth_for(self, order: Order) -> SlotBerth:
        careful = order.seq in self._careful
        following = self._step_after(order) if self._looks_ahead and not careful else None
        word = self._control.word(order.slot)
        return SlotBerth(self._slots, order, word, careful=careful, following=following)

    def _make(self, order: Order, order_wait_ns: int) -> None:
        berth = self._berth_for(order)
        try:
            # Taken back while it lay in the channel. It may be at any later moment too, which the fetcher sees before
            # the next sample; what is done by then is sent, and the consumer throws it away.
            if not berth.wanted:
                raise TakenBack
            if order.epoch != self._epoch:
                self._turn_to_epoch(order.epoch)
            # Killed from here on: the consumer sees the channel end, and has the order, and those behind it, made by
            # others. In `_send` it is all or nothing: a datagram has left whole, or not at all.
            made = self._maker.make(order.seq, order.epoch, order.step, berth)
            self._cell.enter(SENDS, order.seq)
            self._send(order, made, order_wait_ns, berth)
        except TakenBack:
            berth.forget()
            self._outbox.send(messages.write_void(order.seq))
        except MakeFailed as failed:
            berth.forget()
            self._fail(order.seq, failed.report)
        except SystemExit:  # a death, and told as one
            raise
        except BaseException as error:  # noqa: BLE001 - the order must be answered, whatever happened
            berth.forget()
            self._fail(order.seq, FailureReport.of(error, "make the batch"))

    def _turn_to_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        if self._set_epoch is not None:
            self._outbox.flush()
            self._set_epoch(epoch)

    def _fail(self, seq: int, report: FailureReport) -> None:
        self._outbox.send(messages.write_pickled(messages.FAILURE, Failure(seq, with_memory_told(report))))

    def _send(self, order: Order, made: Made, order_wait_ns: int, berth: SlotBerth) -> None:
        spec_id, is_new = self._spec_id(made.spec)
        cost = made.cost
        if self._clocks is not None:
            cpu_ns, delay_ns = self._clocks.since(cost.made_ns)
            cost = cost._replace(order_wait_ns=order_wait_ns, cpu_ns=cpu_ns, delay_ns=delay_ns)
        parcel = Parcel(order.seq, order.slot, spec_id, made.rows, made.nbytes, cost)
        if is_new or made.stream is not None or made.spans or berth.made is not None or made.skipped:
            skipped = [(index, report.describe()[:_REASON_LENGTH]) for index, report in made.skipped]
            new_spec = made.spec if is_new else None
            parcel.attachment = Attachment(new_spec, made.stream, made.spans, berth.made is not None, skipped)
        datagram = messages.write_parcel(parcel)
        # What threads fetch ahead says nothing of how long the next batch will take.
        may_wait = not (is_new or berth.made or self._looks_ahead) and self._outbox.may_wait(cost.made_ns)
        if may_wait and (self._orders or self._channel.has_message()):
            self._outbox.send_soon(datagram, cost.made_ns)
        elif berth.made is None:
            self._outbox.send(datagram)
        else:
            self._outbox.send(datagram, [berth.made.fd])
            berth.made.close()  # the consumer has it now, and here the mapping is enough

    def _spec_id(self, spec: BatchSpec) -> tuple[int, bool]:
        known = self._spec_ids.get(spec.key)
        if known is not None and known[1] is spec:
            return known[0], False
        spec_id = self._spec_count % _SPEC_IDS
        self._spec_count += 1
        if self._spec_count > _SPEC_IDS:
            self._spec_ids = {key: value for key, value in self._spec_ids.items() if value[0] != spec_id}
        self._spec_ids[spec.key] = (spec_id, spec)
        return spec_id, True
