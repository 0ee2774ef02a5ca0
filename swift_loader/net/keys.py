"""Keys, and TLS between those who hold the same one.

A key is a file: a private key and the certificate that goes with it. Both ends show the certificate and accept no
other. A server may take several; each client says which it has (as the name of a host, in its first message), and is
known by that key's name. What is no longer there lets nobody in.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import socket
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_loader.errors import ConfigError

#: X509_V_FLAG_NO_CHECK_TIME: a key is good until it is taken away, whatever a host takes for the time.
_ANY_TIME = 0x200000
_MOST_NBYTES = 64 * 1024
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Key:
    """One key."""

    name: str
    path: Path
    ident: str
    """What it is called on the wire: a digest of its certificate."""
    certificate: bytes
    """As it is compared."""
    pem: str
    """And as TLS is given it."""


def read_key(path: str | Path) -> Key:
    """The key in a file.

    Raises:
        ConfigError: if there is none, or others may read it.
    """
    path = Path(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(
            f"the key {str(path)!r} cannot be read: {error.strerror}. swift-loader keygen {path} makes one"
        ) from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_NBYTES:
            raise ConfigError(f"{str(path)!r} is no key file")
        if stat.S_IMODE(found.st_mode) & _OTHERS or found.st_uid not in (0, os.geteuid()):
            raise ConfigError(
                f"the key {str(path)!r} may be read by others, or belongs to somebody else: chmod 600, and chown"
            )
        data = os.read(fd, _MOST_NBYTES)
    finally:
        os.close(fd)
    found_one = _CERTIFICATE.search(data)
    if found_one is None or b"PRIVATE KEY-----" not in data:
        raise ConfigError(f"{str(path)!r} is no key: swift-loader keygen {path} makes one")
    pem = found_one[0].decode("ascii") + "\n"
    try:
        certificate = ssl.PEM_cert_to_DER_cert(pem)
    except ValueError as error:
        raise ConfigError(f"the certificate in {str(path)!r} is damaged") from error
    return Key(path.stem, path, "k" + hashlib.sha256(certificate).hexdigest()[:40], certificate, pem)


class Keys:
    """The keys that a server takes: of files, or of all files ``*.key`` in folders, as they are at that moment."""

    def __init__(self, paths: str | Path | list[str | Path]) -> None:
        given = paths if isinstance(paths, (list, tuple)) else [paths]
        self._paths = [Path(path) for path in given]
        if not self.known():
            raise ConfigError(f"there is no key in {', '.join(map(str, self._paths))}: swift-loader keygen makes one")

    def known(self) -> dict[str, Key]:
        """Those that are there now.

        Raises:
            ConfigError: if one of them cannot be read.
        """
        return {key.ident: key for key in map(read_key, self._files())}

    def _files(self) -> Iterator[Path]:
        for path in self._paths:
            yield from sorted(path.glob("*.key")) if path.is_dir() else [path]

    def _now(self) -> Iterator[Key]:
        """Those that can be read: what was taken away, or is being written, lets nobody in."""
        for file in self._files():
            with contextlib.suppress(ConfigError):
                yield read_key(file)

    def holds(self, certificate: bytes | None) -> str | None:
        """The name of the key with this certificate, if it is still one of them."""
        return next((key.name for key in self._now() if key.certificate == certificate), None)

    def may_stay(self, certificate: bytes | None) -> bool:
        """Whether who was let in with this certificate, or without one, still is."""
        return certificate is None or self.holds(certificate) is not None

    def context(self) -> ssl.SSLContext:
        """What a server's connections are made with."""
        context = _context(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # nobody comes back without showing a key

        def choose(connection: Any, ident: str | None, _first: ssl.SSLContext) -> int | None:
            key = next((key for key in self._now() if key.ident == ident), None)
            if key is None:
                return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
            connection.context = _of_key(ssl.PROTOCOL_TLS_SERVER, key)
            return None

        context.sni_callback = choose
        return context


def client_side(connected: socket.socket, key: Key) -> ssl.SSLSocket:
    """A connection of a client, whose handshake is still to come."""
    return _of_key(ssl.PROTOCOL_TLS_CLIENT, key).wrap_socket(
        connected, server_hostname=key.ident, do_handshake_on_connect=False
    )


@functools.lru_cache(maxsize=64)
def _of_key(side: ssl._SSLMethod, key: Key) -> ssl.SSLContext:
    context = _context(side)
    try:
        context.load_cert_chain(key.path)
        context.load_verify_locations(cadata=key.pem)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the key {str(key.path)!r} is damaged: {error}") from error
    return context


def _context(side: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= _ANY_TIME
    return context
