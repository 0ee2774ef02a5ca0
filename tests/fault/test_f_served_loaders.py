"""Served loaders while servers, clients and networks fail: the stream is that of the same loader here, in each row."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from swift_loader import SwiftLoader
from swift_loader.net.frames import BEAT, WELCOME
from swift_loader.net.keygen import make_key
from swift_loader.net.link import LinkLost
from tests import namespaces
from tests.cut import proxied
from tests.fault.hostile import Stranger
from tests.namespaces import Network
from tests.served_loaders import made, plain, serving, start
from tests.served_streams import ROOT, free_port
from tests.watching import until

slow = pytest.mark.slow
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(made again|does not answer):RuntimeWarning"),
    pytest.mark.timeout(280),
]
networks = pytest.mark.skipif(os.geteuid() != 0 or not namespaces.can_be_made(), reason="no network namespaces here")


@functools.lru_cache(maxsize=4)
def expected(count: int, name: str = "Rows") -> list:
    with made(name) as loader:
        loader.start(0)
        return [plain(batch) for _ in range(count) for batch in loader]


def batches_of(loader: SwiftLoader, epochs: int) -> Iterator[Any]:
    for _ in range(epochs):
        for batch in loader:
            yield plain(batch)


def workers_of(server: int) -> list[psutil.Process]:
    family = psutil.Process(server).children(recursive=True)
    return [one for one in family if one.name().startswith("swift-worker") and one.status() != psutil.STATUS_ZOMBIE]


class Waits:
    """Takes batches, and notes the longest wait for one."""

    longest_s = 0.0

    def of(self, batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            began = time.monotonic()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            yield batch


@contextlib.contextmanager
def a_far_server(network: Network, key: Path, name: str = "Slow") -> Iterator[str]:
    address = f"tcp://{network.there}:5557"
    words = [sys.executable, "-m", "tests.served_loaders", name, address, repr(str(key)), "{}"]
    server = subprocess.Popen([*network.enter, *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        SwiftLoader.connect(address, key=key).close()
        yield address
    finally:
        server.kill()
        server.wait(30)


class Restarted:
    """A server that is killed and started anew."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.count = 0

    def __enter__(self) -> Self:
        self.server = start("Slow", self.address)
        return self

    def again(self) -> None:
        self.count += 1
        self.__exit__()
        self.__enter__()

    def __exit__(self, *_: object) -> None:
        self.server.kill()
        self.server.communicate(timeout=10)


@slow
@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_f1_a_server_killed_and_started_anew_again_and_again(kills: int):
    address, epochs, seen = f"tcp://127.0.0.1:{free_port()}", 10 + kills, []
    with Restarted(address) as server, SwiftLoader.connect(address) as loader:
        loader.start(0)
        for batch in batches_of(loader, epochs):
            seen.append(batch)
            if len(seen) % 12 == 6 and server.count < kills:
                server.again()
        assert loader.statistics()["servers_lost"] >= kills == server.count
    assert seen == expected(epochs)


_TRAINER = """
import json, os, signal, sys
from swift_loader import SwiftLoader
from tests.served_loaders import plain
if __name__ == "__main__":
    loader = SwiftLoader.connect(sys.argv[1])
    loader.start(0)
    batches = iter(loader)
    seen = [plain(next(batches)) for _ in range(5)]
    print(json.dumps([loader.state_dict(), [batch["y"][0] for batch in seen]]), flush=True)
    next(batches)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@slow
def test_f2_f3_clients_that_are_killed_take_nothing_from_others_and_go_on_from_their_state(tmp_path: Path):
    address = f"tcp://127.0.0.1:{free_port()}"
    with serving("Slow", address) as server, SwiftLoader.connect(address) as other:
        other.start(0)
        batches = batches_of(other, 3)
        seen = [next(batches) for _ in range(3)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", _TRAINER, address]
        killed = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        state, rows = json.loads(killed.stdout.splitlines()[-1])
        with SwiftLoader.connect(address) as again:
            again.load_state_dict(state)
            again.start(0)
            assert rows == [batch["y"][0] for batch in expected(1)[:5]]
            assert list(batches_of(again, 1)) == expected(1)[5:]
        assert seen + list(batches) == expected(3)
        other.close()
        until(lambda: not workers_of(server.pid))  # they end with the last client


@slow
@networks
@pytest.mark.parametrize("how", ["cut", "one way"])
@pytest.mark.parametrize("cut_s", [8, pytest.param(120, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_f4_a_link_that_is_cut_is_noticed_and_others_go_on_meanwhile(how: str, cut_s: int, tmp_path: Path):
    key, near, waits = tmp_path / "job.key", f"tcp://127.0.0.1:{free_port()}", Waits()
    make_key(key)
    with namespaces.network() as network, a_far_server(network, key) as far, serving("Slow", near, str(key)):
        SwiftLoader.connect(near, key=key).close()
        with SwiftLoader.connect(f"{far},{near}", key=key) as loader:
            loader.start(0)
            batches, seen = waits.of(batches_of(loader, 1000)), []
            seen += [next(batches) for _ in range(60)]
            (network.cut if how == "cut" else network.swallow)()
            until_s = time.monotonic() + cut_s
            while time.monotonic() < until_s:
                seen.append(next(batches))
            (network.mend if how == "cut" else network.mend_swallowing)()
            seen += itertools.islice(batches, 400)
            assert loader.statistics()["servers_lost"] >= 1
        assert seen == expected(-(-len(seen) // 12))[: len(seen)]
        # It is known after 3 s of silence. With TCP's own means alone it would be 6 s, and without those for ever.
        assert waits.longest_s < 30


@slow
@networks
def test_f4_the_only_server_behind_a_link_that_is_cut_for_a_while_and_one_that_died_unseen(tmp_path: Path):
    key = tmp_path / "job.key"
    make_key(key)
    with namespaces.network() as network, contextlib.ExitStack() as servers:
        far = servers.enter_context(a_far_server(network, key))
        with SwiftLoader.connect(far, key=key) as loader:
            loader.start(0)
            batches = batches_of(loader, 12)
            seen = [next(batches) for _ in range(20)]
            network.cut()
            timer = threading.Timer(2.0, network.mend)  # shorter than what counts as lost: TCP sends it again
            timer.start()
            seen += [next(batches) for _ in range(60)]
            timer.join()
            network.cut()
            servers.close()  # dies, and nobody hears of it
            network.mend()
            with a_far_server(network, key):
                seen += list(batches)
    assert seen == expected(12)


@slow
@pytest.mark.parametrize("harm", ["one byte at a time", "resets"])
def test_f5_segments_of_a_byte_and_resets_change_nothing(harm: str):
    port = free_port()
    with (
        serving("Slow", f"tcp://127.0.0.1:{port}"),
        proxied(port, piece=1 if harm == "one byte at a time" else 5000) as proxy,
        SwiftLoader.connect(f"tcp://127.0.0.1:{proxy.port}") as loader,
    ):
        loader.start(0)
        seen = []
        for batch in batches_of(loader, 2):
            seen.append(batch)
            if harm == "resets" and len(seen) % 5 == 2:
                proxy.cut()
    assert seen == expected(2)


@slow
def test_f6_one_who_reads_slowly_holds_little_and_slows_nobody():
    address = f"tcp://127.0.0.1:{free_port()}"
    port = int(address.rpartition(":")[2])
    with serving("Images", address) as server, SwiftLoader.connect(address) as loader, Stranger(port) as stranger:
        assert stranger.greet().kind == WELCOME
        stranger.order(*[(seq, 0, seq % 12) for seq in range(1000)])
        loader.start(0)
        assert list(batches_of(loader, 3)) == expected(3, "Images")
        # Its twelve are there for the other too. All that it has asked for would be 1.2 GB.
        assert psutil.Process(server.pid).memory_info().rss < 600 << 20
        assert is_sent_away(stranger, time.monotonic() + 200)


def is_sent_away(stranger: Stranger, until_s: float) -> bool:
    """Reads a kilobyte a second, and says that it is there."""
    try:
        while time.monotonic() < until_s:
            stranger.link.receive_some(memoryview(bytearray(1000)))
            stranger.link.say(BEAT)
            time.sleep(1)
    except LinkLost:
        return True
    return False


@slow
def test_f15_bytes_changed_repeated_or_lost_on_the_way_end_a_connection_and_change_nothing(tmp_path: Path):
    key, port, chance = tmp_path / "job.key", free_port(), random.Random(3)
    make_key(key)

    def harmed(data: bytes) -> bytes:
        if chance.random() > 0.05 or len(data) < 100:
            return data
        at, how = chance.randrange(len(data)), chance.randrange(3)
        return (
            data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :],
            data + data,
            data[:at],
        )[how]

    with serving("Slow", f"tcp://127.0.0.1:{port}", str(key)), proxied(port, piece=4000) as proxy:
        with SwiftLoader.connect(f"tcp://127.0.0.1:{proxy.port}", key=key) as loader:
            loader.start(0)
            proxy.change_from_server = harmed
            seen = list(batches_of(loader, 6))
            proxy.change_from_server = bytes
        assert proxy.connections > 3
    assert seen == expected(6)


@slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("name", ["Slow", "Named"])
@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_f3_what_stands_for_a_server_is_killed_or_stopped(how: signal.Signals, name: str, kills: int, tmp_path: Path):
    # What is large is copied out of the server's memory, which then was held for nobody.
    address = f"unix:{tmp_path / 'socket'}" if name == "Named" else f"tcp://127.0.0.1:{free_port()}"
    with serving(name, address), SwiftLoader.connect(address) as loader:
        loader.start(0)
        seen, killed, chance = [], set(), random.Random(5)
        for batch in itertools.takewhile(lambda _: len(killed) < kills, batches_of(loader, 4 * kills)):
            seen.append(batch)
            for pid in loader._runtime._source.worker_pids() if len(seen) % 20 == 10 else ():
                time.sleep(chance.random() / 100)
                os.kill(pid, how)
                killed.add(pid)
        assert len(killed) == kills
        assert seen == expected(4 * kills, name)[: len(seen)]


@slow
def test_f4_a_server_that_is_stopped_and_goes_on_is_connected_to_anew():
    address = f"tcp://127.0.0.1:{free_port()}"
    with serving("Slow", address) as server, SwiftLoader.connect(address) as loader:
        loader.start(0)
        batches = batches_of(loader, 6)
        seen = [next(batches) for _ in range(10)]
        os.kill(server.pid, signal.SIGSTOP)
        timer = threading.Timer(6.0, os.kill, (server.pid, signal.SIGCONT))
        timer.start()
        seen += list(batches)
        timer.join()
        assert seen == expected(6)


@slow
@networks
def test_f10_a_slow_link_is_named_as_what_limits(tmp_path: Path):
    key = tmp_path / "job.key"
    make_key(key)
    with namespaces.network() as network, a_far_server(network, key, "Images") as far:
        network.slow_down("100mbit")
        with SwiftLoader.connect(far, key=key) as loader:
            loader.start(0)
            batches = [batch for _ in range(3) for batch in loader]  # as quick as they come
            report = " ".join(loader.report().split())
            assert "The network limits" in report
            assert "of uint8 came; send fewer bytes" in report
            assert [plain(batch) for batch in batches] == expected(3, "Images")
            assert 3e6 < loader.statistics()["server_0_bytes_per_s"] < 120e6 / 8


def test_f4_no_deadline_hangs_on_the_clock_that_can_be_set():
    parts = [ROOT / "swift_loader" / name for name in ("net", "serving", "streams")]
    files = [file for part in parts for file in part.glob("*.py")]
    files += [ROOT / "swift_loader" / "worker" / name for name in ("porter.py", "approach.py")]
    assert not [file.name for file in files if "time.time(" in file.read_text()]
