"""The server's process that talks to clients: lets them in, and gives each a session. It runs none of the user's code.

It is forked from the server before any stream runs. Over a pair of sockets the server hands it producers, one ahead of
the clients that come; it says which one a client has taken, and which are over.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time

from swift_loader.net.doorman import Doorman, Guest
from swift_loader.net.keys import Keys
from swift_loader.net.link import Link
from swift_loader.streams.session import KEPT_S, Session

MOST_SESSIONS = 64
_MOST_LOST = 16
_TURN_S = 1.0
_END_S = 5.0
TAKEN, OVER, PRODUCER = b"T", b"O", b"P"


class Door:
    """Lets clients in.

    Args:
        doors: Sockets that listen.
        server: The server's end of what connects both.
        keys: Whom to let in.
        hwm: How many batches are made ahead of each client.
        most_sessions: How many clients there may be at a time.
    """

    def __init__(
        self,
        doors: list[socket.socket],
        server: socket.socket,
        keys: Keys | None,
        hwm: int,
        most_sessions: int = MOST_SESSIONS,
    ) -> None:
        self._doorman = Doorman(doors, keys, "stream")
        self._server = server
        self._parent = os.getppid()
        self._keys = keys
        self._hwm = hwm
        self._most_sessions = most_sessions
        self._sessions: dict[int, Session] = {}
        self._spare: Session | None = None
        self._waiting: list[Guest] = []
        self._doorman.watch(server.fileno())

    def run(self) -> None:
        """Until the server goes."""
        while True:
            guests, ready = self._doorman.turn(_TURN_S)
            if self._server.fileno() in ready and not self._take_producer():
                return
            for guest in guests:
                self._receive(guest)
            self._seat_those_waiting()
            self._end_the_lost()

    def close(self) -> None:
        """Ends all sessions, where the process goes on."""
        self._doorman.close()
        sessions = [*self._sessions.values(), *([] if self._spare is None else [self._spare])]
        for session in sessions:
            session.end()
        for session in sessions:
            session.wait(_END_S)
        for guest in self._waiting:
            guest.link.close()

    def _take_producer(self) -> bool:
        message, fds, _, _ = socket.recv_fds(self._server, 64, 4, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
        if not message:
            return False
        producer = Link(socket.socket(fileno=fds[0]), "the producer")
        self._spare = Session(
            int(message[1:]), producer, self._hwm, self._is_over, self._may_stay, self._server_has_gone
        )
        return True

    def _receive(self, guest: Guest) -> None:
        if not guest.hello.session:
            self._waiting.append(guest)
            return
        session = next((one for one in self._sessions.values() if one.ident == guest.hello.session), None)
        if session is None or session.certificate != guest.certificate:
            text = "this server knows nothing of the session that is to go on: it was started anew, or has given it up"
            self._doorman.refuse(guest, "session", text)
        else:
            session.attach(guest)

    def _seat_those_waiting(self) -> None:
        while self._waiting and self._spare is not None:
            guest, session, self._spare = self._waiting.pop(0), self._spare, None
            session.certificate = guest.certificate
            self._sessions[session.number] = session
            session.attach(guest)
            self._tell(TAKEN)
        if self._waiting and len(self._sessions) >= self._most_sessions:
            self._refuse_those_waiting()

    def _refuse_those_waiting(self) -> None:
        """No place is left, unless somebody has not been seen for a while."""
        lost = min((one for one in list(self._sessions.values()) if one.lost_s), key=_lost_since, default=None)
        if lost is not None:
            lost.end()
            return
        count = "one client" if self._most_sessions == 1 else f"{self._most_sessions} clients"
        while self._waiting:
            self._doorman.refuse(self._waiting.pop(), "full", f"this server has {count}, and takes no more")

    def _end_the_lost(self) -> None:
        now = time.monotonic()
        lost = [(one.lost_s, one) for one in list(self._sessions.values())]
        since = sorted(((then, one) for then, one in lost if then is not None), key=lambda pair: pair[0])
        for at, (then, session) in enumerate(since):
            if now - then > KEPT_S or at < len(since) - _MOST_LOST:
                session.end()

    def _may_stay(self, certificate: bytes | None) -> bool:
        return self._keys is None or self._keys.may_stay(certificate)

    def _server_has_gone(self) -> bool:
        """Called by sessions' threads: producers end with the server, which is no crash that a client is told of.

        A producer that was forked last may hold the server's end of the pair for a moment longer than the server lives.
        """
        poll = select.poll()
        poll.register(self._server, 0)
        return bool(poll.poll(0)) or os.getppid() != self._parent

    def _is_over(self, number: int) -> None:
        """Called by a session's thread."""
        self._sessions.pop(number, None)
        self._tell(OVER + str(number).encode())

    def _tell(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # the server has gone, and this process with it
            self._server.send(message, socket.MSG_NOSIGNAL)


def _lost_since(session: Session) -> float:
    return session.lost_s or 0.0


def be_the_door(doors: list[socket.socket], server: socket.socket, keys: Keys | None, hwm: int) -> None:
    """The whole life of that process."""
    Door(doors, server, keys, hwm).run()
