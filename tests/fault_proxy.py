"""A proxy in front of a store, in a process of its own, that does to requests and answers what is asked of it.

    with FaultProxy(server.port) as proxy:
        proxy.shape(ttfb=0.03, rate=85e6)                 # of each connection: seconds to the first byte, bytes/s
        proxy.fault("trickle", method="GET", times=1)     # one request; p=0.05: one of twenty
        proxy.fault("status", status=503, headers={"Retry-After": "1"}, code="SlowDown", times=8)
        proxy.gone(60)                                    # nobody listens for so long
        proxy.counts()                                    # requests, bytes, and how many were done something to
        proxy.seen()                                      # each request: method, path, range, status, bytes
        proxy.calm()                                      # no faults any more, and counted from 0

Bytes are forwarded as they are, heads too: what is signed stays so, since `Host` is the proxy's
own address on both ways.
Of the kinds of faults, `KINDS` tells. Knows nothing of pytest, nor of the project.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Self

KINDS = {
    "status": "answered by the proxy: `status`, `headers`, and a body with an S3 error `code`",
    "hang": "no answer", "slow_start": "an answer `s` seconds later",
    "cut": "the connection ends after so many bytes of the body (`after`)", "rst": "the same, by a reset",
    "stall": "nothing more comes after so many bytes", "trickle": "a byte a second, after so many",
    "flip": "a bit of the body is another (`at`: which byte)",
    "short_length": "less of the body (`less` bytes), and the head says so", "long_length": "rubbish behind the body",
    "rubbish": "chunks that are none", "no_partial": "the whole object where a range was asked for",
    "wrong_range": "another range than was asked for, says the head", "etag": "another etag",
}  # fmt: skip
_PROGRAM = Path(__file__).with_name("fault_proxy_process.py")


class FaultProxy:
    """The proxy, as tests know it; to be used in a `with`."""

    def __init__(self, target: int, seed: int = 0) -> None:
        self._target, self._seed = target, seed

    def __enter__(self) -> Self:
        words = [sys.executable, "-I", "-S", str(_PROGRAM), str(self._target), str(self._seed)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        self.port, self._control = map(int, self._process.stdout.readline().split()) if ready else (0, 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pids(self) -> set[int]:
        return {self._process.pid}

    def fault(self, kind: str, **how: Any) -> None:
        """See `Fault`."""
        assert kind in KINDS, kind
        self._ask(do="fault", kind=kind, **how)

    def shape(self, ttfb: float = 0.0, rate: float = 0.0) -> None:
        """Seconds to the first byte, bytes a second of each connection; 0: as fast as it can."""
        self._ask(do="shape", ttfb=ttfb, rate=rate)

    def gone(self, seconds: float) -> None:
        """Connections are reset, and nobody listens for so long."""
        self._ask(do="gone", s=seconds)

    def calm(self) -> None:
        """No faults any more; counted from 0."""
        self._ask(do="calm")

    def counts(self) -> Counter[str]:
        """By what: connections, requests, each method, nbytes, faults, each kind of these."""
        return Counter(self._ask(do="counts"))

    def seen(self) -> list[list[Any]]:
        """Method, path, range, status and bytes of each request."""
        found: list[list[Any]] = self._ask(do="seen")
        return found

    def _ask(self, **asked: Any) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self._control}/", json.dumps(asked).encode())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())
