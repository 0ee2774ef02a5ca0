"""Who is at the other end of a connection within this machine: the kernel knows the user, without any key."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from swift_loader.host.rendezvous import user_of

_ROOT = 0
#: Of linux/sock_diag.h and inet_diag.h: the protocol, what is asked, and where in the answer the user stands.
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ALL_STATES, _ANY = 4, 20, 1, 0xFFFFFFFF, 0xFFFFFFFF
_UID_AT = 16 + 4 + 48 + 12


def is_trusted(connected: socket.socket) -> bool:
    """Whether the other end is a process of this user, or of root, on this machine."""
    uid = _user_of(connected)
    return uid is not None and uid in (_ROOT, os.geteuid())


def _user_of(connected: socket.socket) -> int | None:
    if connected.family == socket.AF_UNIX:
        return user_of(connected)
    try:
        mine, theirs = connected.getsockname()[:2], connected.getpeername()[:2]
    except OSError:
        return None
    # Its own entry in the kernel's tables is that whose local end is our remote one.
    asked = _asked(connected.family, theirs, mine)
    if asked is not None:
        return asked
    wanted = f"{_written(theirs)} {_written(mine)}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        uid = _listed(table, wanted, connected.family)
        if uid is not None:
            return uid
    return None


def _asked(family: int, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """The user of the socket with these ends, by the kernel's service for that: 100 times as quick as its tables."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            ends = [socket.inet_pton(family, host.partition("%")[0]).ljust(16, b"\0") for host, _ in (local, remote)]
            ident = struct.pack("!HH16s16s", local[1], remote[1], *ends) + struct.pack("=III", 0, _ANY, _ANY)
            question = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + ident
            kernel.send(struct.pack("=IHHII", 16 + len(question), _BY_FAMILY, _REQUEST, 1, 0) + question)
            answer = kernel.recv(4096)
    except OSError:
        return None
    kind = struct.unpack_from("=IH", answer)[1]
    return int(struct.unpack_from("=I", answer, _UID_AT)[0]) if kind == _BY_FAMILY else None


def _listed(table: str, wanted: str, family: int) -> int | None:
    try:
        text = Path(table).read_text(encoding="ascii")
    except OSError:
        return None
    is_six = table.endswith("6")
    if is_six and family == socket.AF_INET:  # a socket of both families tells addresses of the older one so
        wanted = " ".join("0000000000000000FFFF0000" + end for end in wanted.split(" "))
    for line in text.splitlines()[1:]:
        if wanted in line:
            return int(line.split()[7])
    return None


def _written(end: tuple[str, int]) -> str:
    """An address as the kernel's tables have it: words of the machine's own order, in hexadecimal."""
    host, port = end
    is_six = ":" in host
    packed = socket.inet_pton(socket.AF_INET6 if is_six else socket.AF_INET, host.partition("%")[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
