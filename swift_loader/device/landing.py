"""The thread that lands batches ahead of their use, and the queue between it and the consumer's thread.

    pool --take--> landing thread --begin--> queue of at most `ahead` --take, hand_out--> consumer's thread

Two rules keep the workers going. Before this thread waits for anything (a delivery, or room in the queue) it waits for
the copies that it began, so that no slot is kept from the workers for longer than its copy. And each wait is ended by
whoever changes what it waits for: the consumer by taking, the pool by delivering, either by closing.

An iteration that is left early makes void what was landed for it. Deliveries are numbered for the pool's whole life,
so one number says what is void. Knows nothing of streams, nor of what a delivery is.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from swift_loader.errors import LoaderClosed
from swift_loader.telemetry.ranges import profiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from swift_loader.device.stage import Cargo, StageAhead

    #: To be called with what the thread did, from when to when.
    Lane: TypeAlias = Callable[[tuple[str, int, int]], None]

D = TypeVar("D")

_JOIN_TIMEOUT_S = 5.0


class Deliveries(Protocol[D]):
    """Where deliveries come from, in the order in which they are to be handed out."""

    def take(self) -> D:
        """The next one, waited for; the stage is settled before each wait."""
        ...

    def number(self, delivery: D) -> int:
        """Which one it is of all that were ever ordered."""
        ...

    def unload(self, delivery: D) -> tuple[Cargo, Callable[[], None]] | None:
        """Its cargo, and what to call when all arrays of it were made; None if it brings none."""
        ...

    def leave(self) -> None:
        """Nothing more will be taken: whoever waits in `take` stops waiting. Takes no lock."""
        ...


@dataclass(slots=True)
class _Item(Generic[D]):
    """What the consumer takes."""

    delivery: D | None
    begun: Any = None
    error: BaseException | None = None
    """With a delivery: it could not be landed. Without: there was none to take."""


class Landing(Generic[D]):
    """Lands deliveries ahead."""

    def __init__(
        self,
        stage: StageAhead,
        deliveries: Deliveries[D],
        name: str,
        lane_of: Callable[[str], Lane | None] = lambda _name: None,
    ) -> None:
        self._stage = stage
        self._deliveries = deliveries
        self._queue: SimpleQueue[_Item[D]] = SimpleQueue()
        self._calls: SimpleQueue[None] = SimpleQueue()
        """Told to the thread: something has changed. May be told from a finalizer or a signal handler."""
        self._put_count = 0
        """Put by the thread."""
        self._taken_count = 0
        """Taken by the consumer."""
        self._is_waited_for = False
        """The consumer has found nothing, and waits."""
        self._has_failed = False
        """The pool had nothing but an error, which may be over when the consumer asks again; not asked before."""
        self._first = 0
        """Deliveries before this number are void."""
        self._broken: BaseException | None = None
        """What ended the thread, if that was an error: nothing more will come."""
        self._closing = False
        self._in_hand: _Item[D] | None = None
        self._lane_of = lane_of
        self._lane: Lane | None = None
        """Where the thread tells what it does, if somebody wants to know: asked as it begins."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins to land, unless it has begun. Called by the consumer's thread, before it takes anything."""
        if self._thread.ident is not None or self._closing:
            return
        atexit.register(self._end)  # a forgotten thread must not wake up in the device's code when the interpreter ends
        self._thread.start()

    # The consumer's side ----------------------------------------------------------------------------------------

    def take(self) -> D:
        """The next delivery, landed. Called by the consumer's thread alone, and followed by `hand_out`.

        What is void by then is passed over, which drops its copy; its slot goes home by the landing thread, as all do.

        Raises:
            SwiftLoaderError: if none can come any more.
        """
        while True:
            if self._closing:
                raise LoaderClosed("the loader was closed")
            item = self._next_item()
            self._taken_count += 1
            self._calls.put(None)
            if item.error is not None and item.delivery is None:
                raise item.error
            if item.delivery is not None and self._deliveries.number(item.delivery) >= self._first:
                self._in_hand = item
                return item.delivery

    def _next_item(self) -> _Item[D]:
        try:
            return self._queue.get_nowait()
        except Empty:
            if self._broken is not None:
                raise self._broken from None
        self._is_waited_for = True
        if self._has_failed:
            self._calls.put(None)
        try:
            return self._queue.get()
        finally:
            self._is_waited_for = False

    def hand_out(self, _delivery: D) -> Any:
        """The batch of the delivery that was taken last.

        Raises:
            Exception: whatever kept it from being landed.
        """
        item, self._in_hand = self._in_hand, None
        assert item is not None
        if item.error is not None:
            raise item.error
        return self._stage.hand_out(item.begun)

    def restart(self, first: int) -> None:
        """What is taken next is not before this number.

        Called by the consumer's thread once the pool has numbered what is valid. The landing thread may be landing a
        void one this moment: it is passed over by `take`.
        """
        self._first = first

    def abandon(self) -> None:
        """Has the thread end, without waiting for it; takes no lock. Called by anybody, a signal handler too."""
        self._closing = True
        self._deliveries.leave()
        self._calls.put(None)
        self._wake_consumer()

    def close(self) -> None:
        """Ends the thread, and drops what was landed; may be called twice.

        Called by the consumer's thread, or a signal handler in it, before it closes the pool.
        """
        self.abandon()
        self._end()
        with contextlib.suppress(Empty):
            while True:
                self._queue.get_nowait()
        self._in_hand = None
        self._wake_consumer()  # what was to wake it may just have been dropped

    def _wake_consumer(self) -> None:
        self._queue.put(_Item(None, error=LoaderClosed("the loader was closed while a batch was waited for")))

    def _end(self) -> None:
        if self._thread.is_alive():  # in a forked child it is not
            self.abandon()
            self._thread.join(_JOIN_TIMEOUT_S)

    # The thread's side ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._lane = self._lane_of(self._thread.name)
            while self._has_room():
                self._bring_one()
            self._stage.settle()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the consumer must hear of it
            self._broken = error
            self._put(_Item(None, error=error))
        finally:
            atexit.unregister(self._end)

    def _has_room(self) -> bool:
        """Waits until the queue has room; False if there is nothing more to do."""
        while True:
            while not self._calls.empty():
                self._calls.get_nowait()
            # What is told from here on is seen below or ends the wait.
            if self._closing:
                return False
            if self._put_count - self._taken_count < self._stage.ahead and self._may_ask:
                self._has_failed = False
                self._stage.let_go()
                return True
            if self._stage.is_copying:
                self._stage.settle()
            else:
                self._calls.get()

    @property
    def _may_ask(self) -> bool:
        return self._is_waited_for or not self._has_failed

    def _bring_one(self) -> None:
        try:
            delivery = self._deliveries.take()
        except BaseException as error:  # noqa: BLE001 - raised on the consumer's thread
            if self._put_count == self._taken_count or self._closing:
                self._is_waited_for, self._has_failed = False, True
                self._put(_Item(None, error=error))
            else:
                # Batches that wait here may hold what the pool lacks (objects that stay on the host do). An error that
                # has another cause comes again.
                self._calls.get()
            return
        unloaded = self._deliveries.unload(delivery)
        if unloaded is None:
            self._put(_Item(delivery))
            return
        begun = perf_counter_ns()
        with profiled("land ahead"):
            item = self._landed(delivery, *unloaded)
        if self._lane is not None:
            self._lane(("land ahead", begun, perf_counter_ns()))
        self._put(item)

    def _landed(self, delivery: D, cargo: Cargo, landed: Callable[[], None]) -> _Item[D]:
        try:
            is_void = self._deliveries.number(delivery) < self._first
            return _Item(delivery, None if is_void else self._stage.begin(cargo))
        except BaseException as error:  # noqa: BLE001 - raised on the consumer's thread, at its step
            return _Item(delivery, error=error)
        finally:
            landed()

    def _put(self, item: _Item[D]) -> None:
        self._put_count += 1
        self._queue.put(item)
