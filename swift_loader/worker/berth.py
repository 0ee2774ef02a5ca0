"""Where a batch is made: what its maker asks of the slot, or of whatever stands for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from swift_loader.errors import NoRoom

if TYPE_CHECKING:
    from swift_loader.worker.fetch import Wanted


class Memory(Protocol):
    """The part of a slot that a batch is written to."""

    memory: Any
    nbytes: int
    views: dict[Any, Any]


class Berth(Protocol):
    """The place where a batch is made."""

    def room(self, nbytes: int, keep: int = 0) -> Memory:
        """The slot, made larger if it has to be; its first ``keep`` bytes stay what they are."""
        ...

    wanted: Wanted
    following: int | None
    """The step of the same epoch that is probably made next."""
    careful: bool
    """Its samples are to be fetched one by one, since one of them has killed a worker."""
    slot_ns: int
    """So long it took to make a slot, where one had to be made."""


def refuse_too_large(nbytes: int, most: int) -> None:
    """Raises `NoRoom` for a batch that is larger than is allowed; a sample is never larger than its batch."""
    if nbytes > most:
        raise NoRoom.of(
            f"a batch of {nbytes:,} bytes is more than max_batch_nbytes allows, {most:,} (a DataLoader's "
            "max_minibatch_length): make batch_size smaller, or raise it, by default a quarter of memory_budget",
            nbytes,
            most,
        )
