"""How the workers of a pool are started, and what each is given: the page, a file for its stacks, and its setup.

All start alike, the replacement in the last hour too: in the folder where the trainer was when its loader was started,
with the import path that it had then, wherever it has gone since.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from swift_loader.pool.control import Control
from swift_loader.pool.line import Line
from swift_loader.pool.script_settings import gathered
from swift_loader.pool.stacks import Stacks
from swift_loader.pool.worker import Setup

if TYPE_CHECKING:
    from swift_loader.config import LoaderConfig
    from swift_loader.pool.process import Engine, Started
    from swift_loader.reuse.carousel import Ground


class Launcher:
    """Starts workers, and keeps what they share with their consumer."""

    def __init__(
        self, config: LoaderConfig, engine: Engine, max_batch_nbytes: int, ground: Ground | None = None
    ) -> None:
        self._engine = engine
        self._timeout_s = config.timeout_s
        self._control = Control.create(config.worker_count)
        self._all_stacks: list[Stacks] = []
        self._ground = ground
        """Where samples in rotation are kept."""
        folder = _here()
        self._setup = Setup(
            worker=0,
            worker_count=config.worker_count,
            max_batch_nbytes=max_batch_nbytes,
            path=[str(Path(folder, entry)) for entry in sys.path],
            folder=folder,
            has_payload=engine.sends_payload,
            script=gathered() if engine.sends_payload else None,
        )

    @property
    def slot_words(self) -> memoryview:
        """What each slot is ordered for."""
        return self._control.slot_words

    @property
    def control_fd(self) -> int:
        """The shared page."""
        return self._control.fd

    def line(self, number: int, name: str) -> Line:
        """A line to a worker that is still to be started."""
        line = Line(number, name, self._control.cell(number), self._timeout_s)
        line.stacks = Stacks()
        self._all_stacks.append(line.stacks)
        return line

    def open(self) -> None:
        """Makes ready to start workers.

        Raises:
            SwiftLoaderError: if the dataset cannot be sent to them, or is shared and cannot be built.
        """
        self._engine.open()

    def launch(self, line: Line) -> Started:
        """Starts a worker for ``line``, which is to be connected to it.

        Raises:
            WorkerStartFailed: if the system refuses one.
        """
        assert line.stacks is not None
        setup = replace(self._setup, worker=line.number)
        ground = () if self._ground is None else (self._ground.index_fd, self._ground.data_fd)
        return self._engine.launch(line.name, setup, (self._control.fd, line.stacks.fd, *ground))

    def abandon(self) -> None:
        """Whoever waits for a start waits no longer; takes no lock."""
        self._engine.abandon()

    def close(self) -> None:
        """Lets go of all that; the workers are gone."""
        self._engine.close()
        self._control.close()
        for stacks in self._all_stacks:
            stacks.close()
        if self._ground is not None:
            self._ground.close()


def _here() -> str:
    """Where the trainer is; empty if that folder was removed under it: then workers stay where they are started."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""
