"""How the workers of a pool are started, what each is given, and the thread that does it.

All start alike, the replacement in the last hour too: in the folder where the trainer was when its loader was started,
with the import path that it had then, wherever it has gone since. Whoever serves living workers never waits for a
start: that asks the fork server, which may be stopped, or build a shared dataset again; or it makes an interpreter, on
a machine that is out of memory. What has been started goes to the telecom thread that serves the line.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from swift_loader.errors import WorkerStartFailed
from swift_loader.host.limits import file_sizes_told
from swift_loader.orders.book import Book
from swift_loader.pool.line import Line
from swift_loader.pool.process import WorkerAwaited
from swift_loader.travel.heritage import Heritage
from swift_loader.wire.messages import Setup
from swift_loader.wire.page import Control
from swift_loader.wire.stacks import Stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from swift_loader.pool.calls import LineBell
    from swift_loader.pool.lights import Lights
    from swift_loader.pool.process import Site, Started
    from swift_loader.pool.supervisor import Supervisor
    from swift_loader.reuse.carousel import Ground
    from swift_loader.settings.loader import LoaderConfig

    #: Told, in the starter's thread, of a worker that was started, or after how long to ask for one again, if at all.
    Told: TypeAlias = Callable[[Line, Started | float | None], None]


class Launcher:
    """Starts workers, and keeps what they share with their consumer."""

    def __init__(
        self, config: LoaderConfig, sites: Sequence[Site], max_batch_nbytes: int, ground: Ground | None = None
    ) -> None:
        self._engines = list({id(site.engine): site.engine for site in sites}.values())
        self._sites = [site for site in sites for _ in range(site.lines)]
        """Of each line."""
        self._timeout_s = config.timeout_s
        with file_sizes_told():
            self._control = Control.create(len(self._sites))
        self._all_stacks: list[Stacks] = []
        self._ground = ground
        """Where samples in rotation are kept."""
        self._setup = Setup(
            worker=0,
            worker_count=len(self._sites),
            max_batch_nbytes=max_batch_nbytes,
            heritage=Heritage.of_trainer(),
            has_payload=False,
        )

    @property
    def line_count(self) -> int:
        """How many lines there are."""
        return len(self._sites)

    @property
    def slot_words(self) -> memoryview:
        """What each slot is ordered for."""
        return self._control.slot_words

    @property
    def control_fd(self) -> int:
        """The shared page."""
        return self._control.fd

    def line(self, number: int, name: str, bell: LineBell) -> Line:
        """A line to a worker that is still to be started."""
        cell = self._control.cell(number)
        site = self._sites[number]
        line = Line(name, cell, self._timeout_s, Book(number, cell, bell, site.width, is_far=site.is_far))
        line.inquiry.stacks = Stacks()
        self._all_stacks.append(line.inquiry.stacks)
        return line

    def open(self) -> None:
        """Makes ready to start workers.

        Raises:
            SwiftLoaderError: if the dataset cannot be sent to them, or is shared and cannot be built.
        """
        with file_sizes_told():
            for engine in self._engines:
                engine.open()

    def launch(self, line: Line) -> Started:
        """Starts a worker for ``line``, which is to be connected to it.

        Raises:
            WorkerStartFailed: if the system refuses one.
        """
        assert line.inquiry.stacks is not None
        engine = self._sites[line.number].engine
        setup = replace(self._setup, worker=line.number, has_payload=engine.sends_payload)
        ground = () if self._ground is None else (self._ground.index_fd, self._ground.data_fd)
        return engine.launch(line.name, setup, (self._control.fd, line.inquiry.stacks.fd, *ground))

    def will_need(self, libraries: Sequence[str]) -> None:
        """See `Engine`."""
        for engine in self._engines:
            engine.will_need(libraries)

    def abandon(self) -> None:
        """Whoever waits for a start waits no longer; takes no lock."""
        for engine in self._engines:
            engine.abandon()

    def close(self) -> None:
        """Lets go of all that; the workers are gone."""
        for engine in self._engines:
            engine.close()
        self._control.close()
        for stacks in self._all_stacks:
            stacks.close()
        if self._ground is not None:
            self._ground.close()


class Starter:
    """Starts workers one after the other."""

    def __init__(self, name: str, launcher: Launcher, supervisor: Supervisor, lights: Lights) -> None:
        self._launcher = launcher
        self._supervisor = supervisor
        self._lights = lights
        self._wanted: SimpleQueue[tuple[Line, Told] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        """Begun and waited for by the pool; counts as serving until it ends."""

    def want(self, line: Line, told: Told) -> None:
        """A worker for ``line`` is to be started, of which is told then. Called by the thread that serves the line."""
        self._wanted.put((line, told))

    def ring(self) -> None:
        """All is about to end. Called by whoever closes, in a signal handler too; takes no lock."""
        self._wanted.put(None)

    def _run(self) -> None:
        try:
            while not self._lights.closing:
                if (wanted := self._wanted.get()) is not None:
                    line, told = wanted
                    # If all ends just now, the thread that serves the line may have left: whoever puts the lights out
                    # looks once more for what was started, and sees it off.
                    told(line, self._launched(line))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the consumer must hear of it
            self._supervisor.broke(error)
        finally:
            self._lights.leaves()

    def _launched(self, line: Line) -> Started | float | None:
        """A worker, or after how long to ask again for one that the system refuses now."""
        try:
            return self._launcher.launch(line)
        except WorkerAwaited as wait:
            self._supervisor.awaited(wait.note)
            line.answer = wait.answer
            if wait.answer is not None:
                wait.answer.add_done_callback(lambda _: line.book.bell.ring())
            return wait.delay_s
        except WorkerStartFailed as error:
            return self._supervisor.refused(line, error)
