"""What the fetcher and those who ask it say to each other: words as JSON, and bytes and descriptors beside them.

A message is one datagram. What is too long for one, and bytes, lie in sealed files in memory whose descriptors go with
it; so nothing is copied that need not be, and nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_loader.host.mapping import whole_file
from swift_loader.host.memfile import sealed_file

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

#: Kernels take datagrams of about 200 kB.
_MOST_NBYTES = 48 << 10
_MOST_FDS = 4
_HERE, _BESIDE = b"H", b"B"


class Message(NamedTuple):
    """Words, and descriptors that came with them: they are the receiver's."""

    words: dict[str, Any]
    fds: list[int]

    def close(self) -> None:
        """Lets go of the descriptors."""
        while self.fds:
            os.close(self.fds.pop())

    def data(self) -> memoryview:
        """The bytes that came with them, mapped; they live as long as somebody looks at them."""
        return whole_file(self.fds.pop(0))


def in_memory(data: Buffer) -> int:
    """A sealed file in memory that has these bytes; its descriptor."""
    return sealed_file("swift-message", memoryview(data).cast("B"))


def written(words: dict[str, Any]) -> tuple[bytes, list[int]]:
    """A datagram that says so, and descriptors that must go in front of all others; to be closed when it is sent."""
    text = json.dumps(words, separators=(",", ":")).encode()
    if len(text) <= _MOST_NBYTES:
        return _HERE + text, []
    return _BESIDE, [in_memory(text)]


def send(link: socket.socket, words: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Says it; the descriptors are copied.

    Raises:
        ConnectionError: if there is nobody any more.
        BlockingIOError, TimeoutError: if the other one reads nothing.
    """
    data, ours = written(words)
    try:
        if ours or fds:
            socket.send_fds(link, [data], [*ours, *fds])
        else:
            link.send(data)
    finally:
        for fd in ours:
            os.close(fd)


def receive(link: socket.socket) -> Message:
    """The next message.

    Raises:
        ConnectionError: if there is nobody any more.
        BlockingIOError, TimeoutError: if there is none yet.
    """
    data, fds, _, _ = socket.recv_fds(link, _MOST_NBYTES + 1, _MOST_FDS, socket.MSG_CMSG_CLOEXEC)
    message = Message({}, fds)
    try:
        if not data:
            raise ConnectionResetError("the other end is gone")
        text = message.data() if data[:1] == _BESIDE else data[1:]
        message.words.update(json.loads(bytes(text)))
    except BaseException:
        message.close()
        raise
    return message
