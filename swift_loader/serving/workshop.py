"""One consumer's workers at a server, and all who ask for their batches.

a thread of its own    the pool's deliveries -> the larder
desks' threads         orders -> the larder -> the pool; the larder's answers -> clients
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from swift_loader.engines.choose import sites_for
from swift_loader.errors import LoaderClosed, SwiftLoaderError
from swift_loader.pool.budget import budget_of, slots_allowed
from swift_loader.pool.pool import Pool
from swift_loader.pool.view import Nobody
from swift_loader.serving.larder import Answer, Ask, Larder, Patron

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from swift_loader.orders.tickets import Full
    from swift_loader.wire.recipe import Recipe

#: A workshop that nobody has used for so long is closed: its workers end, and their memory is free.
_DESERTED_S = 5.0
_CLOSE_S = 10.0


class Workshop:
    """Of one consumer.

    Args:
        recipe: How its batches are made.
    """

    def __init__(self, recipe: Recipe) -> None:
        config = recipe.config
        budget = budget_of(config.memory_budget, config.consumer_count)
        self._pool = Pool(recipe, sites_for(recipe), budget, Nobody())
        self._pool.begin_asked()
        self._larder = Larder(config.worker_count, budget, slots_allowed(config.worker_count))
        self._lock = threading.Lock()
        self._came = threading.Condition(self._lock)
        self.error: Exception | None = None
        """Why nothing is made any more."""
        self.users = 0
        """How many connections there are; and since when there are none. Both are the directory's."""
        self.left_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"swift-workshop-c{recipe.consumer}", daemon=True)
        self._thread.start()

    def ask(self, patron: Patron, asks: Sequence[Ask]) -> None:
        """Some batches are wanted by a connection."""
        with self._lock:
            for ask in asks:
                self._larder.asks(patron, ask)
            self._see_to()

    def cancel(self, patron: Patron, seqs: set[int]) -> None:
        """Some are not wanted any more."""
        with self._lock:
            self._larder.cancels(patron, seqs)
            self._see_to()

    def answer(self, patron: Patron, timeout_s: float) -> Answer | None:
        """What a connection is answered next; None if that did not come in time.

        Raises:
            SwiftLoaderError: if none will come.
        """
        with self._lock:
            if not patron.outbox and self.error is None:
                self._came.wait(timeout_s)
            answer = self._larder.answered(patron)
            if answer is None and self.error is not None:
                raise self.error
            self._see_to()
            return answer

    def descriptor(self, delivery: Full) -> int | None:
        """One of its own of the memory that a batch lies in, if it can be had."""
        room = None if delivery.hold is None else delivery.hold.room
        with self._lock:  # with an error, or at the end, the pool closes what numbers there are, and others get them
            if room is None or self.error is not None:
                return None
            with contextlib.suppress(OSError):  # there is none left
                return os.dup(room.fd)
        return None

    def leave(self, patron: Patron) -> None:
        """A connection is over."""
        with self._lock:
            self._larder.goes(patron)
            self._see_to()

    def counted(self) -> tuple[int, int]:
        """How many batches were made, and how many were sent."""
        with self._lock:
            return self._larder.made_count, self._larder.answered_count

    def end(self) -> None:
        """Ends the workers."""
        with self._lock:
            self.error = self.error or LoaderClosed("the server closes")
        self._pool.abandon()
        self._thread.join(_CLOSE_S)

    def _see_to(self) -> None:
        """Under the lock: answers that are there now go out, and workers get what they can take."""
        wanted = self._larder.to_make()
        for epoch, step in wanted:
            self._pool.ask(epoch, step)
        self._came.notify_all()

    def _run(self) -> None:
        """The workshop's thread."""
        try:
            self._pool.open()
            while True:
                delivery = self._pool.take(_nothing)
                with self._lock:
                    self._larder.came(delivery)
                    self._see_to()
                del delivery  # else its slot would be held until the next one comes
        except Exception as error:  # noqa: BLE001 - whatever it is: who asks is told
            with self._lock:
                self.error = error
                self._came.notify_all()
        finally:
            with contextlib.suppress(SwiftLoaderError):
                self._pool.close()


class Workshops:
    """Those of a server: one for each consumer that somebody asks for.

    Args:
        recipe_for: How batches are made for each.
    """

    def __init__(self, recipe_for: Callable[[int], Recipe]) -> None:
        self._recipe_for = recipe_for
        self._open: dict[int, Workshop] = {}
        self._lock = threading.Lock()

    def enter(self, consumer: int) -> Workshop:
        """That of a consumer, for somebody who will `leave`."""
        with self._lock:
            found = self._open.get(consumer)
            if found is None or found.error is not None:
                found = self._open[consumer] = Workshop(self._recipe_for(consumer))
            found.users += 1
            return found

    def leave(self, workshop: Workshop) -> None:
        """It is not used by somebody any more."""
        with self._lock:
            workshop.users -= 1
            workshop.left_s = time.monotonic()

    def close_deserted(self) -> None:
        """Ends those that nobody has used for a while."""
        now = time.monotonic()
        with self._lock:
            over = [at for at, one in self._open.items() if not one.users and now - one.left_s > _DESERTED_S]
            deserted = [self._open.pop(at) for at in over]
        for workshop in deserted:
            threading.Thread(target=workshop.end, name="swift-end", daemon=True).start()

    def close(self) -> None:
        """Ends all."""
        with self._lock:
            workshops = list(self._open.values())
            self._open.clear()
        for workshop in workshops:
            workshop.end()


def _nothing() -> None:
    pass
