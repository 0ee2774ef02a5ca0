"""A dataset that does harm to the sockets of its worker. No torch here."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

from tests.traced import Traced


class Harms(Traced):
    """At one sample, and once only, does so to every socket of its process."""

    def __init__(self, path: str, harm: bytes | None, **options: Any) -> None:
        super().__init__(**options)
        self.path, self.harm = path, harm

    def __getitem__(self, index: int) -> Any:
        if index == 13 and not os.path.exists(self.path):
            Path(self.path).touch()
            for fd in range(3, 64):
                if _is_socket(fd):
                    self._do_harm_to(fd)
        return super().__getitem__(index)

    def _do_harm_to(self, fd: int) -> None:
        if self.harm is None:
            with socket.socket(fileno=os.dup(fd)) as same:
                same.shutdown(socket.SHUT_WR)
        else:
            os.write(fd, self.harm)


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False
