"""One connection of a server of loaders: what it asks for is made by its consumer's workshop, and sent as it comes.

    reader's thread   orders, cancellations  -> the workshop; and beats -> the client
    sender's thread   the workshop's answers -> the client

A desk keeps nothing that must survive: a client that comes back asks again. It ends with its connection.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from typing import TYPE_CHECKING

from swift_loader.errors import FailureReport, ProtocolError
from swift_loader.net import schema
from swift_loader.net.frames import BEAT, BYE, CANCEL, COPIED, LEAVING, ORDERS, TALK, VOID, WELCOME, WHOLE, write_head
from swift_loader.net.link import BEAT_S, SILENCE_S, LinkLost
from swift_loader.net.values import Unsayable
from swift_loader.orders.tickets import Failed, Full
from swift_loader.serving.larder import Answer, Ask, Patron
from swift_loader.serving.lending import Lending
from swift_loader.serving.saying import Parts, batch_frame, failure_frame, unsayable
from swift_loader.serving.voice import Voice
from swift_loader.serving.workshop import Workshop, Workshops
from swift_loader.worker.porter import ORDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from swift_loader.net.doorman import Guest
    from swift_loader.net.receiver import Frame
    from swift_loader.plan.plan import Plan

#: More than this is not asked for by a client that orders into buffers which it has.
_MOST_OPEN = 4096
#: What an order to a worker has room for.
_LAST_EPOCH = (1 << 32) - 1
#: For so long may a client take nothing of what is sent to it.
_PATIENCE_S = 30.0
_LOOK_S = 0.5
_JOIN_S = 5.0


class Desk:
    """Serves one connection, in threads of its own.

    Args:
        guest: Who has come.
        workshops: Where batches are made.
        plan: Which there are.
        welcome: The first word.
        may_stay: Whether its key is still good.
    """

    def __init__(
        self, guest: Guest, workshops: Workshops, plan: Plan, welcome: bytes, may_stay: Callable[[], bool]
    ) -> None:
        self._link, self._receiver = guest.link, guest.receiver
        self._receiver.limits = TALK
        self._consumer = guest.hello.consumer
        self._workshops = workshops
        self._workshop: Workshop | None = None
        self._plan = plan
        self._welcome = welcome
        self._may_stay = may_stay
        self._patron = Patron()
        self._lending = Lending(guest)
        self._voice = Voice(guest.link, _PATIENCE_S)
        self._over = threading.Event()
        self._sender = threading.Thread(target=self._give, name="swift-sender", daemon=True)
        self._reader = threading.Thread(target=self._serve, name="swift-reader", daemon=True)
        self._reader.start()

    @property
    def is_over(self) -> bool:
        """Whether its threads have ended."""
        return not self._reader.is_alive()

    def end(self) -> None:
        """Ends the connection, and waits for the threads."""
        self._over.set()
        self._link.cut()
        self._reader.join(_JOIN_S)

    def _serve(self) -> None:
        """The reader's thread, until the connection ends."""
        try:
            self._voice.say([write_head(WELCOME, len(self._welcome)) + self._welcome])
            while not self._over.is_set():
                self._link.wait(select.POLLIN, BEAT_S / 2)
                while (frame := self._receiver.read()) is not None:
                    self._handle(frame)
                self._look()
                self._voice.beat()
        except (LinkLost, ProtocolError):
            pass
        except Exception as error:  # noqa: BLE001 - a workshop that cannot be opened: the client is told why
            self._leave(error)
        finally:
            self._close()

    def _close(self) -> None:
        self._over.set()
        self._link.cut()
        self._lending.end()
        if self._workshop is not None:
            if self._sender.ident is not None:  # the system may have had no thread for it
                self._sender.join(_JOIN_S)  # its sending ends with the link, and its waiting each half second
            self._workshop.leave(self._patron)
            self._workshops.leave(self._workshop)
        self._link.close()

    def _handle(self, frame: Frame) -> None:
        if frame.kind == ORDERS:
            self._order(frame)
        elif frame.kind == CANCEL:
            if self._workshop is not None:
                self._workshop.cancel(self._patron, {seq for seq, _, _ in ORDER.iter_unpack(_whole(frame))})
        elif frame.kind == COPIED:
            self._lending.copied(frame.seq)
            self._voice.say([write_head(WHOLE, 0, frame.seq)])
        elif frame.kind == BYE:
            self._over.set()
        elif frame.kind != BEAT:
            raise ProtocolError(f"a frame of kind {frame.kind} from a loader")

    def _order(self, frame: Frame) -> None:
        now_ns, asks = time.perf_counter_ns(), []
        for seq, epoch, step in ORDER.iter_unpack(_whole(frame)):
            if epoch > _LAST_EPOCH or step >= self._plan.step_count(epoch, self._consumer):
                raise ProtocolError(f"batch {step} of epoch {epoch} was asked for, which there is not")
            asks.append(Ask(seq, (epoch, step), now_ns))
        if self._patron.open_count + len(asks) > _MOST_OPEN:
            raise ProtocolError(f"more than {_MOST_OPEN} batches were asked for at a time")
        if self._workshop is None:
            self._workshop = self._workshops.enter(self._consumer)
            self._sender.start()
        self._workshop.ask(self._patron, asks)

    def _look(self) -> None:
        if time.monotonic() - self._link.heard_s > SILENCE_S:
            raise LinkLost("nothing was heard of it")
        if not self._may_stay():
            raise LinkLost("its key was taken away")

    # ---- batches

    def _give(self) -> None:
        """The sender's thread."""
        assert self._workshop is not None
        try:
            while not self._over.is_set():
                answer = self._workshop.answer(self._patron, _LOOK_S)
                if answer is not None and not self._is_lent(answer):
                    self._voice.say(_frame_of(answer))
                del answer  # else its slot would be held until the next one comes
        except LinkLost:
            pass
        except Exception as error:  # noqa: BLE001 - nothing more will come: the client is told why
            self._leave(error)
        self._over.set()

    def _is_lent(self, answer: Answer) -> bool:
        """Lends a batch, if that is the better way and can be."""
        ask, delivery = answer
        if not isinstance(delivery, Full) or not self._lending.suits(delivery):
            return False
        assert self._workshop is not None
        fd = self._workshop.descriptor(delivery)
        if fd is None:
            return False
        try:
            said, objects = batch_frame(delivery, ask.seq, time.perf_counter_ns() - ask.asked_ns, is_lent=True)
            self._lending.lend(ask.seq, delivery, _PATIENCE_S)
            self._voice.say([said, objects], fd)
        except Unsayable:
            return False
        finally:
            os.close(fd)
        return True

    def _leave(self, error: Exception) -> None:
        report = FailureReport.of(error, "serve")
        said = schema.Failure(0, 0, report.stage, report.type_name, report.text, report.traceback, None, leaves=True)
        meta = schema.write(said)
        with contextlib.suppress(LinkLost):
            self._voice.say([write_head(LEAVING, len(meta)) + meta])


def _frame_of(answer: Answer) -> Parts:
    """An answer as it is sent."""
    ask, delivery = answer
    if delivery is None:
        return [write_head(VOID, 0, ask.seq)]
    if isinstance(delivery, Failed):
        return failure_frame(delivery.report, ask.seq, *ask.key)
    try:
        return batch_frame(delivery, ask.seq, time.perf_counter_ns() - ask.asked_ns)
    except Unsayable as error:
        return failure_frame(unsayable(error), ask.seq, *ask.key)


def _whole(frame: Frame) -> memoryview:
    if frame.meta.nbytes % ORDER.size:
        raise ProtocolError(f"orders in {frame.meta.nbytes} bytes")
    return frame.meta
