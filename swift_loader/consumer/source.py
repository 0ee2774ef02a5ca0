"""Where a consumer's deliveries come from: its workers, or its own thread. A runtime knows nothing more of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from swift_loader.errors import SwiftLoaderError
    from swift_loader.orders.tickets import Delivery, Failed
    from swift_loader.plan.plan import Plan
    from swift_loader.plan.position import Position
    from swift_loader.pool.view import View


class Source(Protocol):
    """One consumer's deliveries, in the order in which they are to be handed out.

    All is called by the consumer's thread, `take` by the landing thread where there is one; `abandon` and `close` by
    any thread, and by a signal handler in the middle of everything else.
    """

    @property
    def sample_count(self) -> int:
        """Of the dataset, once it is open."""
        ...

    @property
    def fetching(self) -> Collection[tuple[str, str]]:
        """Who fetches for datasets that lie elsewhere, as `fetching_of` tells; once it is open."""
        ...

    @property
    def view(self) -> View | None:
        """What it looks like from outside; None where there are no workers to look at."""
        ...

    def open(self) -> Plan:
        """Makes ready; called once, before all else but `abandon` and `close`.

        Raises:
            SwiftLoaderError: whatever keeps batches from being made.
        """
        ...

    def take(self, before_waiting: Callable[[], None]) -> Delivery:
        """The next delivery, waited for; calls what it is given before it waits.

        Raises:
            SwiftLoaderError: if none can come any more.
        """
        ...

    def restart(self, at: Position) -> int:
        """What is taken next is what follows from there; gives back the first number that is not void."""
        ...

    def error_of(self, failed: Failed) -> SwiftLoaderError:
        """What to raise for a ticket that could not be made."""
        ...

    def broke(self, error: BaseException) -> None:
        """Nothing more is to come: `take` raises this."""
        ...

    def worker_pids(self) -> list[int]:
        """Of the workers that live, or have just died."""
        ...

    def statistics(self) -> dict[str, float]:
        """What is worth counting."""
        ...

    def tell_notes(self) -> None:
        """Warns of what the user should know."""
        ...

    def abandon(self) -> None:
        """Has everything end without waiting for it; takes no lock. Whoever waits in `take` is told."""
        ...

    def close(self) -> None:
        """Ends everything; may be called twice."""
        ...
