"""In a forked child: makes the batches that one connection asks for, with a pool of workers of its own.

    reader's thread   orders, cancellations  -> the pool
    beats' thread     that there is somebody -> the client
    sender's thread   the pool's deliveries  -> the client, in the order of its orders

The child keeps nothing that must survive: a client that comes back asks again. It ends with its connection.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from swift_loader.engines.choose import sites_for
from swift_loader.errors import FailureReport, LoaderClosed, ProtocolError
from swift_loader.net import schema
from swift_loader.net.frames import BEAT, BYE, CANCEL, LEAVING, ORDERS, TALK, VOID, WELCOME, write_head
from swift_loader.net.link import BEAT_S, SILENCE_S, LinkLost
from swift_loader.net.values import Unsayable
from swift_loader.orders.tickets import Failed
from swift_loader.pool.budget import budget_of
from swift_loader.pool.pool import Pool
from swift_loader.serving.saying import Parts, batch_frame, failure_frame, unsayable
from swift_loader.worker.porter import ORDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from swift_loader.net.doorman import Guest
    from swift_loader.net.receiver import Frame
    from swift_loader.plan.plan import Plan
    from swift_loader.pool.view import Lane
    from swift_loader.wire.recipe import Recipe

#: More than this is not asked for by a client that orders into buffers which it has.
_MOST_OPEN = 4096
#: For so long may a client take nothing of what is sent to it.
_PATIENCE_S = 30.0


class Desk:
    """Serves one connection.

    Args:
        guest: Who has come.
        recipe: How batches are made, for that consumer.
        plan: Which there are.
        welcome: The first word.
        may_stay: Whether its key is still good.
    """

    def __init__(self, guest: Guest, recipe: Recipe, plan: Plan, welcome: bytes, may_stay: Callable[[], bool]) -> None:
        self._link, self._receiver = guest.link, guest.receiver
        self._receiver.limits = TALK
        self._recipe = recipe
        self._plan = plan
        self._may_stay = may_stay
        self._asked: deque[tuple[int, int, int, int]] = deque()
        """What the pool was asked for and has not given, in its order, and when that was."""
        self._cancelled: set[int] = set()
        self._pool: Pool | None = None
        self._sending = threading.Lock()
        self._over = threading.Event()
        self._send([write_head(WELCOME, len(welcome)) + welcome])
        threading.Thread(target=self._beat, name="swift-beats", daemon=True).start()

    def serve(self) -> None:
        """Until the connection ends."""
        try:
            while not self._over.is_set():
                self._link.wait(select.POLLIN, BEAT_S / 2)
                while (frame := self._receiver.read()) is not None:
                    self._handle(frame)
                self._look()
        except (LinkLost, ProtocolError):
            pass
        finally:
            self._over.set()
            self._link.close()
            if self._pool is not None:
                self._pool.close()

    def _handle(self, frame: Frame) -> None:
        if frame.kind == ORDERS:
            self._order(frame)
        elif frame.kind == CANCEL:
            self._cancelled |= {seq for seq, _, _ in ORDER.iter_unpack(_whole(frame))}
        elif frame.kind == BYE:
            self._over.set()
        elif frame.kind != BEAT:
            raise ProtocolError(f"a frame of kind {frame.kind} from a loader")

    def _order(self, frame: Frame) -> None:
        if self._pool is None:
            self._open()
        assert self._pool is not None
        now_ns = time.perf_counter_ns()
        for seq, epoch, step in ORDER.iter_unpack(_whole(frame)):
            if len(self._asked) >= _MOST_OPEN or step >= self._plan.step_count(epoch, self._recipe.consumer):
                raise ProtocolError(f"batch {step} of epoch {epoch} was asked for, which there is not")
            self._asked.append((seq, epoch, step, now_ns))
            self._pool.ask(epoch, step)

    def _look(self) -> None:
        if time.monotonic() - self._link.heard_s > SILENCE_S:
            raise LinkLost("nothing was heard of it")
        if not self._may_stay():
            raise LinkLost("its key was taken away")

    def _beat(self) -> None:
        """A thread of its own: the reader waits while the pool opens, and the sender for batches."""
        while not self._over.wait(BEAT_S):
            if not self._sending.acquire(blocking=False):  # it hears from us anyway
                continue
            try:
                if self._link.wait(select.POLLOUT, 0.0):
                    self._link.say(BEAT)
            except LinkLost:
                return
            finally:
                self._sending.release()

    def _send(self, parts: Parts) -> None:
        with self._sending:
            self._link.send(parts, _PATIENCE_S)

    # ---- batches

    def _open(self) -> None:
        config = self._recipe.config
        self._pool = Pool(
            self._recipe, sites_for(self._recipe), budget_of(config.memory_budget, config.consumer_count), _Nobody()
        )
        self._pool.begin_asked()
        try:
            self._pool.open()
        except Exception as error:
            self._leave(error)
            raise LinkLost("no batches can be made") from error
        threading.Thread(target=self._give, name="swift-sender", daemon=True).start()

    def _give(self) -> None:
        """The sender's thread."""
        assert self._pool is not None
        try:
            while not self._over.is_set():
                self._give_one(self._pool)
        except (LinkLost, LoaderClosed):
            pass
        except Exception as error:  # noqa: BLE001 - nothing more will come: the client is told why
            self._leave(error)
        self._over.set()

    def _give_one(self, pool: Pool) -> None:
        delivery = pool.take(_nothing)
        seq, epoch, step, asked_ns = self._asked.popleft()
        if seq in self._cancelled:
            self._cancelled.discard(seq)
            parts: Parts = [write_head(VOID, 0, seq)]
        elif isinstance(delivery, Failed):
            parts = failure_frame(delivery.report, seq, epoch, step)
        else:
            try:
                parts = batch_frame(delivery, seq, time.perf_counter_ns() - asked_ns)
            except Unsayable as error:
                parts = failure_frame(unsayable(error), seq, epoch, step)
        self._send(parts)
        if not isinstance(delivery, Failed) and delivery.hold is not None:
            delivery.hold.landed()

    def _leave(self, error: Exception) -> None:
        report = FailureReport.of(error, "serve")
        said = schema.Failure(0, 0, report.stage, report.type_name, report.text, report.traceback, None, leaves=True)
        meta = schema.write(said)
        with contextlib.suppress(LinkLost):
            self._send([write_head(LEAVING, len(meta)) + meta])


class _Nobody:
    """Looks on."""

    def heard(self, worker: int, what: str) -> None:
        """See `Onlooker`."""

    def lost(self, worker: int, what: str) -> None:
        """See `Onlooker`."""

    def ticked(self) -> None:
        """See `Onlooker`."""

    def lane_of(self, _thread: str) -> Lane | None:
        """See `Onlooker`."""
        return None


def _whole(frame: Frame) -> memoryview:
    if frame.meta.nbytes % ORDER.size:
        raise ProtocolError(f"orders in {frame.meta.nbytes} bytes")
    return frame.meta


def _nothing() -> None:
    pass
