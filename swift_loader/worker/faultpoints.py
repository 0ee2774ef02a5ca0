"""In the child: places at which a worker kills itself when the environment asks for it, so that tests can.

    SWIFT_FAULT=after-order:3            each process dies the third time that it comes to that place
    SWIFT_FAULT=after-order:3:/a/folder  only the first one that comes so far; it leaves `/a/folder/after-order`

The replacement of a worker inherits the environment: with a count that lets it get on, or a folder, the loader does
too. The places are methods: they are wrapped in a process whose environment asks for it, and in no other, so this costs
nothing where it is not asked for. The end is a SIGKILL, in the middle of whatever is going on: nothing is flushed,
closed or told. See `POINTS` for the places.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from swift_loader.wire import messages

NAME = "SWIFT_FAULT"


def _always(*_: Any) -> bool:
    return True


def _of_kind(kind: int) -> Callable[..., bool]:
    return lambda _channel, datagram, *_: datagram[:1] == bytes((kind,))


def _answers_with_a_process(_zygote: Any, _kind: int, _value: Any, fds: Any = None) -> bool:
    return bool(fds)


@dataclass(frozen=True, slots=True)
class Point:
    """A place: before or after a call of one method, where ``if_`` says yes to its arguments."""

    side: Literal["before", "after"]
    home: str
    method: str
    if_: Callable[..., bool] = _always


_WORKER, _SENDS = "swift_loader.worker.worker:Worker", ("swift_loader.wire.channel:SocketChannel", "send")

#: Where a worker, or the server that forks it, can be told to die: at each thing that it hands over.
POINTS: dict[str, Point] = {
    "before-answer": Point("before", "swift_loader.worker.zygote:Zygote", "_answer", _answers_with_a_process),
    "before-hello": Point("before", *_SENDS, _of_kind(messages.HELLO)),
    "after-hello": Point("after", *_SENDS, _of_kind(messages.HELLO)),
    "before-order": Point("before", _WORKER, "_receive"),
    "after-order": Point("after", _WORKER, "_receive"),
    # Of any sample, so that rows before it are written; the dataset is wrapped when the fetcher is made of it.
    "in-fetch": Point("after", "swift_loader.worker.fetch:Fetcher", "__init__"),
    "rows-written": Point("before", "swift_loader.batch.collate:RowWriter", "finish"),
    "new-slot": Point("after", "swift_loader.wire.slot:Slot", "create"),
    "made": Point("before", _WORKER, "_send"),
    "before-parcel": Point("before", *_SENDS, _of_kind(messages.PARCEL)),
    "after-parcel": Point("after", *_SENDS, _of_kind(messages.PARCEL)),
    "before-parcels": Point("before", *_SENDS, _of_kind(messages.PARCELS)),
    "after-parcels": Point("after", *_SENDS, _of_kind(messages.PARCELS)),
    "before-void": Point("before", *_SENDS, _of_kind(messages.VOID)),
}

_armed: list[str] = []


def arm() -> None:
    """Wraps what the environment names; does nothing the second time, in a worker whose server was armed."""
    wanted = os.environ.get(NAME)
    if wanted is None or _armed:
        return
    name, count, *folder = wanted.split(":", 2)
    if name not in POINTS:
        raise ValueError(f"{NAME}={wanted}: there is no place {name!r}; known are {', '.join(sorted(POINTS))}")
    _armed.append(wanted)
    strike = _Strike(name, int(count), Path(folder[0]) if folder else None)
    point = POINTS[name]
    module, _, cls = point.home.partition(":")
    home = getattr(importlib.import_module(module), cls)
    if name == "in-fetch":
        _wrap_fetching(home, strike)
    else:
        _wrap(home, point, strike)


class _Strike:
    """Counts how often a process has come to the point, and ends it when it is time."""

    def __init__(self, name: str, count: int, folder: Path | None) -> None:
        self._name, self._left, self._folder = name, count, folder

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0 and self._is_first():
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_first(self) -> bool:
        if self._folder is None:
            return True
        try:
            os.close(os.open(self._folder / self._name, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True


def _wrap(home: Any, point: Point, strike: _Strike) -> None:
    plain = vars(home)[point.method]
    is_class_method = isinstance(plain, classmethod)
    call = plain.__func__ if is_class_method else plain

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        is_it = point.if_(*args)
        if is_it and point.side == "before":
            strike()
        result = call(*args, **kwargs)
        if is_it and point.side == "after":
            strike()
        return result

    setattr(home, point.method, classmethod(wrapped) if is_class_method else wrapped)


def _wrap_fetching(fetcher: Any, strike: _Strike) -> None:
    """The user's dataset is known only when the fetcher is made of it."""
    make = fetcher.__init__

    def wrapped(self: Any, dataset: Any, *args: Any) -> None:
        _wrap(type(dataset), Point("before", "", "__getitem__"), strike)
        make(self, dataset, *args)

    fetcher.__init__ = wrapped
