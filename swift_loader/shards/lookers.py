"""Processes that look at shards, several at once: each is asked for one shard after the other, through its pipes.

They are interpreters of their own, started anew: what the asking process has open or running is none of theirs. They
end when their pipe does, so nothing is left of them if that process is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any, Self

from swift_loader.errors import ConfigError, NoRoom, ShardError, SwiftLoaderError, WorkerDied
from swift_loader.shards.beside import Asked, Beside
from swift_loader.shards.catalog import Shard
from swift_loader.shards.folder import Folder
from swift_loader.shards.layouts import Layout
from swift_loader.shards.rows import RawRows
from swift_loader.shards.store import store_at

if TYPE_CHECKING:
    from types import TracebackType

_ROOT = Path(__file__).parents[2]
_END_S = 5.0


class Lookers:
    """Some processes, for a time."""

    def __init__(self, place: Beside, count: int) -> None:
        self._free: SimpleQueue[_Looker] = SimpleQueue()
        self._all: list[_Looker] = []
        for _ in range(count):
            self._all.append(_Looker(place))
            self._free.put(self._all[-1])
        self._threads = ThreadPoolExecutor(count, "swift-looker")

    def lines(self, shards: Sequence[Asked]) -> Iterator[Shard]:
        """The line of each shard, in their order."""
        return self._threads.map(self._line, shards)

    def _line(self, shard: Asked) -> Shard:
        looker = self._free.get_nowait()  # there are as many threads
        try:
            return looker.ask(shard)
        finally:
            self._free.put(looker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for looker in self._all:
            looker.end(at_once=kind is not None)
        self._threads.shutdown(cancel_futures=True)


class _Looker:
    """One process."""

    def __init__(self, place: Beside) -> None:
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "swift_loader.shards.lookers"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
            process_group=0,  # a Ctrl-C at the terminal is not for it: whoever asks is interrupted, and ends this
        )  # fmt: skip
        layout = None if place.layout is None else place.layout.told()
        self._said = json.dumps([place.shards.where, place.tables.where, layout]) + "\n"

    def ask(self, shard: Asked) -> Shard:
        said, heard = self._process.stdin, self._process.stdout
        assert said is not None
        assert heard is not None
        try:
            print(self._said + json.dumps(shard), file=said, flush=True)
            answer = heard.readline()
        except OSError:
            answer = ""
        if not answer:
            raise WorkerDied(f"a process that was looking at {shard.name} has ended")
        self._said = ""
        told = json.loads(answer)
        if "error" in told:
            raise _error(told)
        return Shard(**told["shard"] | {"payload_digest": bytes.fromhex(told["shard"]["payload_digest"])})

    def end(self, *, at_once: bool) -> None:
        if at_once:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended by itself
                pipe.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_S)


def _told(error: SwiftLoaderError | OSError) -> dict[str, Any]:
    if isinstance(error, OSError):
        return {"error": "OSError", "text": [error.errno, error.strerror, error.filename]}
    told: dict[str, Any] = {"error": type(error).__name__, "text": error.args[0]}
    if isinstance(error, ShardError):
        told |= {"set": error.set, "shard": error.shard, "offset": error.offset, "key": error.key}
        told |= {"expected": _said(error.expected), "found": _said(error.found)}
    return told


def _said(value: object) -> str | None:
    return None if value is None else str(value)


def _error(told: dict[str, Any]) -> Exception:
    if told["error"] == "OSError":
        return OSError(*told["text"])
    if told["error"] != "ShardError":
        return {"NoRoom": NoRoom}.get(told["error"], ConfigError)(told["text"])
    error = ShardError.at(told["text"], told["offset"], told["expected"], told["found"])
    return error.within(told["shard"], told["set"], told["key"])


def _look(asked: IO[str], answers: IO[str]) -> None:
    """The life of such a process."""
    shards, tables, layout = json.loads(asked.readline())
    place = Beside(Folder(shards), store_at(tables), _layout_of(layout))
    for line in asked:
        try:
            shard = place.found_or_made(Asked(*json.loads(line)))
            answer = {"shard": asdict(shard) | {"payload_digest": shard.payload_digest.hex()}}
        except (SwiftLoaderError, OSError) as error:
            answer = _told(error)
        print(json.dumps(answer), file=answers, flush=True)


def _layout_of(told: dict[str, Any] | None) -> Layout | RawRows | None:
    return None if told is None else Layout.of(told) if "columns" in told else RawRows("", **told)


if __name__ == "__main__":
    _look(sys.stdin, sys.stdout)
