"""`ServerDataStream`: a stream that runs in a server, on this machine or another.

There is no thread and no process here: batches are read when they are asked for, and what the server has sent until
then waits in the kernel. A lost connection is made anew, and the stream goes on where it was.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from swift_loader.errors import ConfigError
from swift_loader.net.address import DEFAULT_PORT, Address
from swift_loader.net.keys import read_key
from swift_loader.settings.checks import whole
from swift_loader.streams.iterator import DataIterator
from swift_loader.streams.remote import Remote
from swift_loader.streams.stream import AbstractDataStream

_MINE = ("host", "port", "hwm", "axis_labels")


@dataclass(frozen=True, slots=True)
class _Settings:
    """What a stream is told of its server."""

    produces_examples: bool = False
    host: Any = "localhost"
    port: int = DEFAULT_PORT
    hwm: int = 10
    axis_labels: Any = None
    key: str | None = None
    wait_s: float = 300.0


class ServerDataStream(AbstractDataStream):
    """A stream that `start_server` serves.

    Args:
        sources: What the parts of each batch are called here.
        where: ``host='localhost'``, ``port=5557``, ``hwm=10`` and ``axis_labels=None``, in this order. ``hwm`` is how
            many batches the server may make ahead, if it does not say less itself.
        more: The same by name, and ``produces_examples=False``, which may also stand before the host: whether the
            stream gives single examples; ``key``, a file made by ``swift-loader keygen``, if the server has one; and
            ``wait_s=300``: how long a server is waited for that does not answer.

    Raises:
        ConfigError: if a setting is wrong.

    Example:
        >>> stream = ServerDataStream(("features",))
        >>> for (features,) in stream.get_epoch_iterator():  # doctest: +SKIP
        ...     train(features)
    """

    def __init__(self, sources: tuple[str, ...], *where: Any, **more: Any) -> None:
        settings = _read(where, more)
        super().__init__(axis_labels=settings.axis_labels)
        self.sources = sources
        self.produces_examples = settings.produces_examples
        self.host = settings.host
        self.port = settings.port
        self.hwm = settings.hwm
        self._key = settings.key
        self._wait_s = settings.wait_s
        if settings.key is not None:
            read_key(settings.key)  # what is wrong with it is said now
        self._remote: Remote | None = None
        self._pid = os.getpid()
        self._epoch = -1
        """The epoch that was begun last, counted from the beginning of the session."""
        self._is_open = False
        """Whether there may be more of it."""

    def get_data(self, request: Any = None) -> tuple[Any, ...]:
        """The next batch; StopIteration at the end of an epoch, after which the next epoch is begun.

        Raises:
            ValueError: if something is asked for: the server's stream decides what comes.
            PeerLost: if the server does not answer, or was started anew.
            DataError: if the stream has raised.
        """
        if request is not None:
            raise ValueError("a ServerDataStream takes no requests: the server's stream decides what comes")
        self._be_in_this_process()
        if not self._is_open:
            self._begin()
        try:
            return self._connected().batch(self._epoch)
        except StopIteration:
            self._is_open = False
            raise

    def get_epoch_iterator(self, as_dict: bool = False) -> Any:  # noqa: FBT001, FBT002 - others' code says it so
        self._be_in_this_process()
        self._begin()
        return _Epoch(self, as_dict=as_dict)

    def is_at(self, epoch: int) -> bool:
        """Whether that epoch is the one that was begun last, in this process and session."""
        self._be_in_this_process()
        return epoch == self._epoch

    @property
    def epoch(self) -> int:
        """The epoch that was begun last; -1 before the first."""
        return self._epoch

    def close(self) -> None:
        """Ends the session: the server lets go of what it has made for this stream. Used again, it begins anew."""
        remote, self._remote = self._remote, None
        if remote is not None and self._pid == os.getpid():
            remote.close()
        self._epoch, self._is_open = -1, False

    def next_epoch(self) -> None:
        """Nothing: `get_epoch_iterator` begins the next epoch."""

    def reset(self) -> None:
        """Nothing: the server's stream goes on; `get_epoch_iterator` begins its next epoch."""

    def __getstate__(self) -> dict[str, Any]:
        """Without the connection: whoever unpickles it has a session of his own, from the stream's beginning."""
        return {**self.__dict__, "_remote": None, "_epoch": -1, "_is_open": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _pid=os.getpid())

    def __del__(self) -> None:
        if getattr(self, "_remote", None) is not None:
            self.close()

    def _begin(self) -> None:
        self._epoch += 1
        self._is_open = True

    def _connected(self) -> Remote:
        if self._remote is None:
            key = None if self._key is None else read_key(self._key)
            self._remote = Remote(Address(self.host, self.port), key, self.hwm, self._wait_s)
        return self._remote

    def _be_in_this_process(self) -> None:
        """A fork has the same connection as its parent, and must not use it."""
        if self._pid != os.getpid():
            if self._remote is not None:
                self._remote.forget()
            self._remote, self._pid, self._epoch, self._is_open = None, os.getpid(), -1, False


class _Epoch(DataIterator):
    """The batches of one epoch, and no others."""

    def __init__(self, stream: ServerDataStream, *, as_dict: bool) -> None:
        super().__init__(stream, as_dict=as_dict)
        self._stream = stream
        self._epoch = stream.epoch
        self._is_over = False

    def __next__(self) -> Any:
        if self._is_over:
            raise StopIteration
        if not self._stream.is_at(self._epoch):
            raise RuntimeError("a later epoch of this stream was begun, so this one was left: use the later iterator")
        try:
            return super().__next__()
        except StopIteration:
            self._is_over = True
            raise


def _read(where: tuple[Any, ...], more: dict[str, Any]) -> _Settings:
    names = ("produces_examples", *_MINE) if where and isinstance(where[0], bool) else _MINE
    if len(where) > len(names):
        raise TypeError(f"a ServerDataStream takes sources and at most {', '.join(names)} by position")
    given = dict(zip(names, where, strict=False))
    twice = given.keys() & more.keys()
    if twice:
        raise TypeError(f"{', '.join(sorted(twice))} was given by position and by name")
    settings = _Settings(**given, **more)
    if not isinstance(settings.host, str) or not settings.host:
        raise ConfigError(f"host is the name or the address of a machine, not {settings.host!r}")
    whole("port", settings.port, least=1)
    whole("hwm", settings.hwm, least=1)
    return settings
