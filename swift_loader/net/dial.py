"""Connecting to a server: who is there, and that it is who we think."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time

from swift_loader.net.address import Address
from swift_loader.net.keys import Key, client_side
from swift_loader.net.link import SILENCE_S, Link, LinkLost, LinkRefused, lost
from swift_loader.net.neighbours import is_trusted


def dial(address: Address, key: Key | None, timeout_s: float = SILENCE_S) -> Link:
    """A connection to a server, which has shown the same key; without a key, one of this user's on this machine.

    Raises:
        LinkLost: if nobody answers.
        LinkRefused: if it is somebody else.
    """
    deadline = time.monotonic() + timeout_s
    connected = _connected(address, timeout_s)
    try:
        if key is None or address.path:
            if not is_trusted(connected):
                raise LinkRefused(f"what listens at {address} belongs to another user of this machine: it needs a key")
            return Link(connected, str(address))
        return _secured(connected, address, key, deadline)
    except BaseException:
        connected.close()
        raise


def _connected(address: Address, timeout_s: float) -> socket.socket:
    if address.path:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(timeout_s)
            connected.connect(address.path)
        except OSError as error:
            connected.close()
            raise lost(error) from error
        return connected
    try:
        return socket.create_connection((address.host, address.port), timeout_s)
    except OSError as error:
        raise lost(error) from error


def _secured(connected: socket.socket, address: Address, key: Key, deadline: float) -> Link:
    secure = client_side(connected, key)  # has taken the descriptor over
    try:
        secure.settimeout(0.0)
        while not shaken(secure):
            wanted = select.poll()
            wanted.register(secure, select.POLLIN)  # what it sends fits any socket's buffer
            if not wanted.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise LinkLost(f"{address} does not answer to TLS")
        if secure.getpeercert(binary_form=True) != key.certificate:
            raise LinkRefused(f"{address} shows another key")
        return Link(secure, str(address))
    except BaseException:
        with contextlib.suppress(OSError):
            secure.close()
        raise


def shaken(secure: ssl.SSLSocket) -> bool:
    """Goes on with the handshake; whether it is done.

    Raises:
        LinkLost: if it will not be.
    """
    try:
        secure.do_handshake()
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return False
    except OSError as error:
        raise lost(error) from error
    return True
