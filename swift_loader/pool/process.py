"""What a pool asks of whoever gives it workers. The engines, in the room above, answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from concurrent.futures import Future

    from swift_loader.wire.channel import Channel
    from swift_loader.wire.messages import Setup


class Process(Protocol):
    """One worker, as a process."""

    pid: int
    sentinel: int
    """A descriptor that is readable once the process is gone."""

    def exit_status(self) -> int | None:
        """The exit code, or minus the signal, of a process that is gone; None where nobody knows."""
        ...

    def kill(self) -> None:
        """Ends it at once; nothing happens if it is gone."""
        ...

    def cut(self) -> None:
        """Ends what it has started as well, and waits for nothing: for one that was killed and does not go."""
        ...

    def ask(self) -> None:
        """Has it write where its threads are; nothing happens if it is gone."""
        ...

    def is_stopped(self) -> bool:
        """Whether the system has stopped it: by a signal, or for a debugger."""
        ...

    def close(self) -> None:
        """Lets go of its descriptors. Closing the lifeline ends the process if it is still there."""
        ...


#: A worker, and what carries orders to it.
Started: TypeAlias = "tuple[Process, Channel]"


class WorkerAwaited(Exception):
    """There is no place for a worker yet: it is to be asked for again after so long. A note tells why, in words.

    Args:
        delay_s: So long.
        note: Empty where that was told.
        answer: As soon as this is done, if that is known.
    """

    def __init__(self, delay_s: float, note: str = "", answer: Future[Any] | None = None) -> None:
        super().__init__(note)
        self.delay_s, self.note, self.answer = delay_s, note, answer


class Engine(Protocol):
    """Where workers live."""

    @property
    def sends_payload(self) -> bool:
        """Whether workers are sent the recipe; else they inherit it."""
        ...

    def open(self) -> None:
        """Makes ready to start workers."""
        ...

    def launch(self, name: str, setup: Setup, fds: tuple[int, ...]) -> Started:
        """Starts a worker that knows its setup, with the control page, the file for its stacks, and what else there is.

        May be called from any thread, and may take long.

        Raises:
            WorkerAwaited: if it is to be asked again.
        """
        ...

    def will_need(self, libraries: Sequence[str]) -> None:
        """A worker has loaded these for its dataset: those that are started later had better be born with them."""
        ...

    def abandon(self) -> None:
        """Has whoever waits in here go on: all is about to end. Takes no lock."""
        ...

    def close(self) -> None:
        """Ends what the engine itself runs."""
        ...


class Site(NamedTuple):
    """Some of a pool's lines, and where the workers behind them live."""

    engine: Engine
    lines: int
    width: int = 1
    """So many workers stand behind each line: more than one where what the line leads to has workers of its own."""
    is_far: bool = False
    """They are on other machines, and make what those here do not come to."""
    servers: tuple[str, ...] = ()
    """What each of the lines leads to, where that is a server."""


def servers_at(sites: Sequence[Site]) -> dict[int, str]:
    """Which of a pool's lines lead to servers, and to which."""
    names = [name for site in sites for name in site.servers or [""] * site.lines]
    return {number: name for number, name in enumerate(names) if name}
