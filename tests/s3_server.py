"""A real S3 server on this machine: SeaweedFS, from its wheel. Ended with whoever started it; nothing of it stays.

    with S3Server(folder) as server:
        server.endpoint, server.bucket, server.access_key, server.secret_key
        server.kill()       # by SIGKILL, in the middle of whatever it does; what was written is kept
        server.start()      # again, on the same port

Knows nothing of pytest, nor of the project.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

#: Its own processes speak over other ports: each of these and, by a habit of the server's, that and 10,000.
_PORTS = ("s3.port", "master.port", "volume.port", "filer.port", "admin.port")
_BEHIND = 10_000
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_STARTING_S = 60.0

#: Those of this process that run now, which tests of other things are not to see.
running: set[int] = set()


def binary() -> str | None:
    """Where the server is, if it is installed."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


class S3Server:
    """The server; started by `start`, or by a `with`."""

    access_key, secret_key = "testkey", "testsecret"
    reader_access_key, reader_secret_key = "rokey", "rosecret"
    region = "us-east-1"

    def __init__(self, folder: Path, bucket: str = "bkt") -> None:
        self.bucket = bucket
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
        folder.mkdir(parents=True, exist_ok=True)
        may_all = ["Admin", "Read", "List", "Tagging", "Write"]
        (folder / "s3.json").write_text(
            json.dumps(
                {
                    "identities": [
                        _identity("admin", self.access_key, self.secret_key, may_all),
                        _identity("ro", self.reader_access_key, self.reader_secret_key, ["Read", "List"]),
                    ]
                }
            )
        )

    @property
    def port(self) -> int:
        return self._ports["s3.port"]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pids(self) -> set[int]:
        """Its process."""
        return set() if self._process is None else {self._process.pid}

    def start(self) -> None:
        """Starts it, and waits until it has its bucket; some tries, since another may take a port between two lines."""
        program = binary()
        assert program is not None
        words = [
            program, "-logtostderr=true", "mini", f"-dir={self._folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            *(f"-{name}={port}" for name, port in self._ports.items()),
            *(f"-{name}.grpc={port + _BEHIND}" for name, port in self._ports.items()),
            "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false", "-master.telemetry=false",
            f"-s3.config={self._folder / 's3.json'}", f"-bucket={self.bucket}",
            f"-filer.localSocket={self._folder / 'filer.sock'}", f"-s3.localSocket={self._folder / 's3.sock'}",
        ]  # fmt: skip
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder,
                env={"HOME": str(self._folder), "TMPDIR": str(self._folder), "PATH": os.environ.get("PATH", "")},
            )  # fmt: skip
        running.add(self._process.pid)
        try:
            self._wait_until_ready()
        except BaseException:
            self.end()
            raise

    def put(self, key: str, data: bytes) -> None:
        """Writes an object into its bucket, past its keys."""
        assert _status(self._ports["filer.port"], f"/buckets/{self.bucket}/{key}", data) == 201

    def kill(self) -> None:
        """Ends it as a loss of power would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            running.discard(self._process.pid)
            self._process = None
            for port in self._ports.values():  # these it puts there whatever it is told
                for left in Path("/tmp").glob(f"seaweedfs-*-grpc-{port + _BEHIND}.sock"):
                    left.unlink(missing_ok=True)

    #: What it has written is a folder that goes with it: there is nothing to be put in order.
    end = kill

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _has_data(self) -> bool:
        """Whether its bucket is there, and it can write and read: what holds the data comes last."""
        port = self._ports["filer.port"]
        if _status(port, f"/buckets/{self.bucket}/") != 200:
            return False
        return _status(port, "/ready", b"yes") == 201 and _status(port, "/ready") == 200

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _STARTING_S
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            # A bucket that is there is one that needs a key.
            if _status(self.port, f"/{self.bucket}/") == 403 and self._has_data():
                return
            time.sleep(0.02)
        raise RuntimeError("the S3 server has not started:\n" + (self._folder / "log").read_text()[-3000:])


def _identity(name: str, access_key: str, secret_key: str, actions: list[str]) -> dict[str, object]:
    credentials = [{"accessKey": access_key, "secretKey": secret_key}]
    return {"name": name, "credentials": credentials, "actions": actions}


def _status(port: int, path: str, data: bytes | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET" if data is None else "PUT", path, data)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has now, nor those behind them."""
    begin = _FIRST_PORT + (os.getpid() * 97 + time.monotonic_ns() // 1000) % (_LAST_PORT - _FIRST_PORT)
    found: list[int] = []
    for port in range(begin, begin + 10_000):
        if _is_free(port) and _is_free(port + _BEHIND):
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError("there are no free ports for an S3 server")


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
