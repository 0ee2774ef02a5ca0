"""A TLS server on loopback in front of a plain one, with certificates made by OpenSSL's program for a test."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Self

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make_authority(folder: Path) -> Path:
    """A certificate that others are signed by: `ca.pem`, with its key beside it."""
    _openssl(
        "req", "-x509", *_KEY, "-keyout", folder / "ca.key", "-out", folder / "ca.pem", "-days", 2, "-subj", "/CN=ca"
    )
    return folder / "ca.pem"


def make_certificate(folder: Path, name: str, alternative: str, days: int = 2) -> Path:
    """One of a server, signed by that authority: for ``IP:127.0.0.1``, or ``DNS:other.example``."""
    (folder / "extensions").write_text(f"basicConstraints=CA:FALSE\nsubjectAltName={alternative}\n")
    _openssl(
        "req", "-new", *_KEY, "-keyout", folder / f"{name}.key", "-out", folder / "asked.csr", "-subj", "/CN=server"
    )
    _openssl(
        "x509", "-req", "-in", folder / "asked.csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
        "-CAcreateserial", "-out", folder / f"{name}.pem", "-days", days, "-extfile", folder / "extensions",
    )  # fmt: skip
    return folder / f"{name}.pem"


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)


class Terminator:
    """The server; to be used in a `with`."""

    def __init__(self, certificate: Path, target: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self._target = target
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._begin(self._serve)
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _begin(self, target: object, *words: object) -> None:
        thread = threading.Thread(target=target, args=words, daemon=True)  # type: ignore[arg-type] # it can be called
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listening.accept()
                self._sockets.append(plain)
                self._begin(self._one, plain)

    def _one(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            client = self._context.wrap_socket(plain, server_side=True)
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            self._begin(self._pump, server, client)
            self._pump(client, server)

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
