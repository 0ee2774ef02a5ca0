"""Served loaders: what batches take that another process makes and sends, and what failures of it cost.

Measures, by the word behind the command:

- `transport`: batches of 256 images of 224 x 224 x 3 bytes (38.5 MB) that are in memory already, 2 workers there; GB/s
  of whole epochs. Sides: a served loader over a socket in the file system, over TCP and over TLS, end to end; the same
  bytes made by two processes and sent by a third over the same sort of socket, by nothing but its own calls, into
  memory of a fourth; and a stream as Fuel sends it (ZeroMQ's PUSH and PULL, a JSON head before each array, without
  encryption, of one array that is made once). The consumer's CPU for each batch.
- `decoding`: JPEG images as in `benchmarks.decoding`, 2 workers, server and client on the same cores: served as uint8
  and as float32, each beside the same loader with workers of its own in the same round.
- `restarts`: a server that is killed and started anew 100 times; from when it listens again until the next batch.
- `cut`: two servers, one behind a link that is cut for 12 s: the longest wait for a batch. Needs root.
- `connect`: from the address to a connection that was let in, with keys.

Rounds alternate between the sides; medians, and the lowest and highest.

Leaves out: a network between machines. Both ends share this machine's cores, so GB/s here are a floor.

Command: `python -m benchmarks.served transport` and so on. The last tables are `results/served_*.txt`.

Caveat: with TLS both cores do nothing but AES and copying, so making batches beside it costs throughput here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.jpeg_workload import JpegImages, jpeg_files
from benchmarks.served_bare import BATCH, NBYTES, bare, fuels
from benchmarks.workloads import MemoryImages
from swift_loader import SwiftLoader
from swift_loader.net.address import parse
from swift_loader.net.keygen import make_key

ROUNDS = 3
STEPS = 24
ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"


class Pixels(JpegImages):
    """The same as bytes: a quarter of what floats are."""

    def __getitem__(self, index: int) -> Any:
        pixels, label = super().__getitem__(index)
        return (pixels * 255).astype(np.uint8), label


class Quick(MemoryImages):
    """Small."""

    def __getitem__(self, index: int) -> Any:
        return index


class Slow(Quick):
    """The same, a moment apart."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.003)
        return index


def make(what: str, workers: int = 2) -> SwiftLoader:
    """A loader of this sort, that is not started."""
    if what == "images":
        return SwiftLoader(MemoryImages, {"count": STEPS * BATCH}, BATCH, 1, workers, seed=1)
    if what in ("slow", "quick"):
        kind: type[Any] = Slow if what == "slow" else Quick
        return SwiftLoader(kind, {"count": 3600 * 8, "distinct": 1}, 8, 1, workers, seed=1)
    kind = Pixels if what == "uint8" else JpegImages
    return SwiftLoader(kind, {"files": jpeg_files(64), "count": 16 * 64}, 64, 1, workers, seed=1)


@contextlib.contextmanager
def serving(what: str, address: str, key: str | None = None, within: tuple[str, ...] = ()) -> Iterator[str]:
    """A server that answers."""
    server = start(what, address, key, within)
    try:
        SwiftLoader.connect(address, key=key).close()
        yield address
    finally:
        server.kill()
        server.wait(30)


def start(what: str, address: str, key: str | None = None, within: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """A server, in a process of its own."""
    words = [*within, sys.executable, "-m", "benchmarks.served", "serve", what, address, key or ""]
    return subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)


def free_tcp() -> str:
    """An address of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        return f"tcp://127.0.0.1:{door.getsockname()[1]}"


def epochs_of(loader: SwiftLoader, count: int) -> tuple[float, float]:
    """Batches a second of whole epochs, the first left out; and the consumer's CPU in ms for each batch."""
    loader.start(0)
    for _ in loader:
        pass
    batches, began, cpu = 0, time.perf_counter(), time.process_time()
    for _ in range(count):
        for batch in loader:
            batches += 1
            del batch
    return batches / (time.perf_counter() - began), (time.process_time() - cpu) / batches * 1e3


# ---- transport -------------------------------------------------------------------------------------------------------


def served(address: str, key: str | None) -> tuple[float, float]:
    """GB/s of a served loader, and its CPU."""
    with serving("images", address, key), SwiftLoader.connect(address, key=key) as loader:
        rate, cpu_ms = epochs_of(loader, 2)
    return rate * NBYTES / 1e9, cpu_ms


def transport() -> list[str]:
    """The table."""
    with tempfile.TemporaryDirectory() as folder:
        key = str(Path(folder, "job.key"))
        make_key(Path(key))
        unix = f"unix:{folder}/socket"
        sides: dict[str, Callable[[], tuple[float, float]]] = {
            "served, socket of files": lambda: served(unix, None),
            "bare, socket of files": lambda: bare(unix, None, STEPS),
            "served, TCP": lambda: served(free_tcp(), None), "bare, TCP": lambda: bare(free_tcp(), None, STEPS),
            "served, TLS": lambda: served(free_tcp(), key), "bare, TLS": lambda: bare(free_tcp(), key, STEPS),
            "as Fuel sends, TCP": lambda: fuels(parse(free_tcp()).port, STEPS),
        }  # fmt: skip
        return _in_turns(sides, ("GB/s", "its CPU, ms a batch"))


def _in_turns(sides: dict[str, Callable[[], tuple[float, float]]], heads: tuple[str, str]) -> list[str]:
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for _ in range(ROUNDS):
        for side, measure in sides.items():
            with contextlib.suppress(ImportError):  # one side has a library of its own
                found[side].append(measure())
                sys.stderr.write(f"{side}: {found[side][-1][0]:.2f}\n")
    lines = [f"{'side':<28}{heads[0]:>14}{'lowest':>10}{'highest':>10}{heads[1]:>22}"]
    for side, ones in found.items():
        if not ones:
            lines.append(f"{side:<28}{'no library':>14}")
            continue
        rates = [rate for rate, _ in ones]
        told = f"{statistics.median(rates):>14.2f}{min(rates):>10.2f}{max(rates):>10.2f}"
        lines.append(f"{side:<28}{told}{statistics.median(cpu for _, cpu in ones):>22.2f}")
    return lines


# ---- the others ------------------------------------------------------------------------------------------------------


def decoding() -> list[str]:
    """The table."""

    def here(what: str) -> tuple[float, float]:
        with make(what) as loader:
            return epochs_of(loader, 2)

    def there(what: str) -> tuple[float, float]:
        with (
            tempfile.TemporaryDirectory() as folder,
            serving(what, f"unix:{folder}/socket") as address,
            SwiftLoader.connect(address) as loader,
        ):
            return epochs_of(loader, 2)

    ratios: dict[str, list[float]] = {"uint8": [], "float32": []}
    for _ in range(ROUNDS):
        for what, list_of in ratios.items():
            list_of.append(there(what)[0] / here(what)[0])
    lines = [f"{'served / own workers':<28}{'median':>10}{'lowest':>10}{'highest':>10}"]
    for what, ones in ratios.items():
        lines.append(f"{what:<28}{statistics.median(ones):>10.3f}{min(ones):>10.3f}{max(ones):>10.3f}")
    return lines


def restarts(count: int = 100) -> list[str]:
    """The table."""
    address = free_tcp()
    waits: list[float] = []
    seen: list[Any] = []
    server = start("slow", address)
    try:
        with SwiftLoader.connect(address) as loader:
            loader.start(0)
            batches = iter(loader)
            for _ in range(count):
                seen += itertools.islice(batches, 8)
                server.kill()
                server.wait(30)
                server = start("slow", address)
                waits.append(_resumed_after(parse(address).port, batches, seen))
            seen += batches
            lost = loader.statistics()["servers_lost"]
    finally:
        server.kill()
        server.wait(30)
    with make("quick") as loader:
        loader.start(0)
        is_same = [batch.tolist() for batch in seen] == [batch.tolist() for batch in loader]
    ordered = sorted(waits)
    return [
        f"{'restarts':>10}{'resumed after, s: median':>28}{'p95':>8}{'highest':>10}{'the same':>10}",
        f"{lost:>10}{ordered[count // 2]:>28.2f}{ordered[int(count * 0.95)]:>8.2f}{ordered[-1]:>10.2f}{is_same!s:>10}",
    ]


def _resumed_after(port: int, batches: Iterator[Any], seen: list[Any]) -> float:
    """What was made before is there at once; for the next one, the server must be there again."""
    since_s = _since_it_listens(port)
    while not since_s():
        seen.append(next(batches))
    return since_s()


def _since_it_listens(port: int) -> Callable[[], float]:
    """How long somebody has listened there; 0 as long as nobody does."""
    found: list[float] = []

    def look() -> None:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                found.append(time.perf_counter())
                return
            time.sleep(0.005)

    threading.Thread(target=look, daemon=True).start()
    return lambda: time.perf_counter() - found[0] if found else 0.0


def cut() -> list[str]:
    """The table."""
    from tests import namespaces

    waits: list[float] = []
    with tempfile.TemporaryDirectory() as folder, namespaces.network() as network:
        key = str(Path(folder, "job.key"))
        make_key(Path(key))
        with (
            serving("slow", f"tcp://{network.there}:5557", key, tuple(network.enter)) as far,
            serving("slow", free_tcp(), key) as near,
            SwiftLoader.connect(f"{far},{near}", key=key) as loader,
        ):
            loader.start(0)
            batches = (batch for _ in range(10_000) for batch in loader)
            for _ in range(100):
                next(batches)
            mending = threading.Timer(12.0, network.mend)
            network.cut()
            mending.start()
            until_s = time.perf_counter() + 20
            while (began := time.perf_counter()) < until_s:
                next(batches)
                waits.append(time.perf_counter() - began)
            mending.join()
    ordered = sorted(waits, reverse=True)
    return [f"a link that is cut for 12 s: longest wait {ordered[0]:.2f} s, then {ordered[1]:.2f} s"]


def connect() -> list[str]:
    """The table."""
    with tempfile.TemporaryDirectory() as folder:
        key = str(Path(folder, "job.key"))
        make_key(Path(key))
        with serving("slow", free_tcp(), key) as address:
            took = []
            for _ in range(100):
                began = time.perf_counter()
                SwiftLoader.connect(address, key=key).close()
                took.append((time.perf_counter() - began) * 1e3)
    return [f"connect, with keys: {statistics.median(took):.1f} ms (highest of 100: {max(took):.1f})"]


def main() -> None:
    """Prints and keeps one of the tables, or serves one of its sides."""
    if sys.argv[1] == "serve":
        what, address, key = sys.argv[2:]
        make(what).serve(address, key=key or None)
        return
    lines = {"transport": transport, "decoding": decoding, "restarts": restarts, "cut": cut, "connect": connect}[
        sys.argv[1]
    ]()
    text = "\n".join(lines) + "\n"
    (RESULTS / f"served_{sys.argv[1]}.txt").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
