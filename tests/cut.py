"""A TCP proxy that does what networks do: cuts connections, holds them, breaks them into pieces, changes bytes."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator

Change = Callable[[bytes], bytes]


class Proxy:
    """Carries bytes between clients and the server at a port of this machine."""

    def __init__(self, port: int, piece: int = 65536) -> None:
        self._target = port
        self._piece = piece
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self.change_from_server: Change = bytes
        self.is_held = False
        self.connections = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """All connections there are, at once."""
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._is_over = True
        self.cut()
        self._thread.join(5)
        self._door.close()

    def _run(self) -> None:
        while not self._is_over:
            ends = [] if self.is_held else [end for pair in self._pairs for end in pair]
            ready, _, _ = select.select([self._door, *ends], [], [], 0.02)
            if self._door in ready:
                self._connect()
            ways = [(pair, *way) for pair in self._pairs for way in (pair, pair[::-1])]
            for pair, source, target in ways:
                if source in ready and pair in self._pairs:
                    self._carry(pair, source, target)
        for pair in self._pairs:
            for end in pair:
                end.close()

    def _connect(self) -> None:
        client, _ = self._door.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._target), 5)
        except OSError:
            client.close()
            return
        self.connections += 1
        self._pairs.append((client, server))

    def _carry(self, pair: tuple[socket.socket, socket.socket], source: socket.socket, target: socket.socket) -> None:
        try:
            data = source.recv(self._piece)
            if data and source is pair[1]:
                data = self.change_from_server(data)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for end in pair:
            end.close()
        self._pairs.remove(pair)


@contextlib.contextmanager
def proxied(port: int, piece: int = 65536) -> Iterator[Proxy]:
    proxy = Proxy(port, piece)
    try:
        yield proxy
    finally:
        proxy.close()
