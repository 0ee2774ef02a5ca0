"""Loaders whose batches servers make: the stream is that of the same loader here, whatever happens to the servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swift_loader import ConfigError, DataError, PoisonedTicket, ProtocolMismatch, SwiftLoader
from swift_loader.net.keygen import make_key
from tests.cut import proxied
from tests.served_loaders import made, plain, serving, start
from tests.served_streams import ROOT, family_of, free_port
from tests.slow import slow
from tests.watching import until

pytestmark = pytest.mark.filterwarnings("ignore:tcp.*made again:RuntimeWarning")


def tcp() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


def epochs(loader: SwiftLoader, count: int) -> list:
    return [[plain(batch) for batch in loader] for _ in range(count)]


def here(name: str = "Rows", count: int = 2, **settings) -> list:
    with made(name, **settings) as loader:
        loader.start(0)
        return epochs(loader, count)


@pytest.mark.parametrize(
    "settings",
    [
        slow({}),
        {"shuffle": False, "drop_last": True},
        {"collate_fn": True},
        slow({"random_per": "sample", "nearby_shuffle": 0}),
    ],
)
def test_a_loader_of_a_server_gives_what_it_would_give_here(settings: dict, tmp_path: Path):
    address = f"unix:{tmp_path / 'socket'}"
    with serving("Rows", address, **settings), SwiftLoader.connect(address) as loader:
        assert len(loader) == 12
        loader.start(0)
        assert epochs(loader, 2) == here(**settings)
        assert "server 0         unix:" in loader.report()
        assert 0 < loader.statistics()["transit_s"] < 60
        assert loader.statistics()["server_0_batches"] == 12


def test_an_epoch_is_left_and_a_state_gone_on_with():
    expected, address = here(count=3), tcp()
    with serving("Rows", address):
        with SwiftLoader.connect(address) as loader:
            loader.start(0)
            batches = iter(loader)
            assert [plain(next(batches)) for _ in range(5)] == expected[0][:5]
            assert plain(next(iter(loader))) == expected[1][0]
            state = loader.state_dict()
        with made() as local:  # a state of one is a state of the other
            local.load_state_dict(state)
            local.start(0)
            assert epochs(local, 1) == [expected[1][1:]]
        with SwiftLoader.connect(address) as loader:
            loader.load_state_dict(state)
            loader.start(0)
            assert epochs(loader, 2) == [expected[1][1:], expected[2]]


def test_two_consumers_of_two_servers_with_keys(tmp_path: Path):
    key = str(tmp_path / "job.key")
    make_key(Path(key))
    addresses = [tcp(), tcp()]
    with serving("Rows", addresses[0], key, consumers=2), serving("Rows", addresses[1], key, consumers=2):
        for consumer in range(2):
            with SwiftLoader.connect(",".join(addresses), key=key) as loader, made(consumers=2) as local:
                loader.start(consumer)
                local.start(consumer)
                assert epochs(loader, 2) == epochs(local, 2)


def test_a_server_that_is_killed_and_started_anew_changes_nothing():
    expected, address = here("Slow", count=1), tcp()
    server = start("Slow", address)
    try:
        with SwiftLoader.connect(address) as loader:
            loader.start(0)
            batches, seen = iter(loader), []
            for count in (2, 4, 6):
                seen += [plain(next(batches)) for _ in range(count)]
                server.kill()
                server.communicate(timeout=10)
                server = start("Slow", address)
            assert seen + [plain(batch) for batch in batches] == expected[0]
            assert loader.statistics()["servers_lost"] >= 2
    finally:
        server.terminate()
        server.communicate(timeout=10)


def test_one_of_two_servers_is_stopped_and_the_other_goes_on():
    expected, addresses = here("Slow", count=2), [tcp(), tcp()]
    with serving("Slow", addresses[0]) as first, serving("Slow", addresses[1]):
        for address in addresses:
            SwiftLoader.connect(address).close()
        with SwiftLoader.connect(",".join(addresses)) as loader:
            loader.start(0)
            batches = iter(loader)
            seen = [plain(next(batches)) for _ in range(4)]
            for pid in (first.pid, *family_of(first.pid)):
                os.kill(pid, signal.SIGSTOP)
            assert [[*seen, *map(plain, batches)], *epochs(loader, 1)] == expected
        first.send_signal(signal.SIGCONT)
        first.kill()


def test_jobs_share_what_is_made_and_the_slow_one_loses_nothing(tmp_path: Path):
    path = tmp_path / "asked"
    address = f"unix:{tmp_path / 'socket'}"
    with (
        serving("Counted", address, path=str(path)),
        SwiftLoader.connect(address) as one,
        SwiftLoader.connect(address) as other,
    ):
        for loader in (one, other):
            loader.start(0)
        seen: list[list] = [[], []]
        for batches in (both for _ in range(5) for both in zip(one, other, strict=True)):
            for at, batch in enumerate(batches):
                seen[at].append(plain(batch)["y"])
        assert seen[0] == seen[1] == [batch["y"] for epoch in here(count=5) for batch in epoch]
        # Once each; and what was tried, made for the first before the second came, and ahead: 20 batches each.
        assert len(path.read_text().split()) < 96 * 5 + 8 + 2 * 200 < 2 * 96 * 5
        slow = iter(one)
        rest = [plain(next(slow))["y"]]
        quick = [[plain(batch)["y"] for batch in other] for _ in range(4)]
        rest += [plain(batch)["y"] for batch in slow]
        assert rest == quick[0] == [batch["y"] for batch in here(count=6)[5]]


def test_connections_that_are_cut_change_nothing():
    expected, port = here("Slow", count=1), free_port()
    with (
        serving("Slow", f"tcp://127.0.0.1:{port}"),
        proxied(port, piece=3000) as proxy,
        SwiftLoader.connect(f"tcp://127.0.0.1:{proxy.port}") as loader,
    ):
        loader.start(0)
        seen = []
        for batch in loader:
            seen.append(plain(batch))
            if len(seen) in (2, 5, 8):
                proxy.cut()
        assert seen == expected[0]


@pytest.mark.parametrize("name", ["Images", "Named"])
def test_large_batches_arrive_whole(name: str, tmp_path: Path):
    address = tcp() if name == "Images" else f"unix:{tmp_path / 'socket'}"
    with serving(name, address), SwiftLoader.connect(address) as loader:
        loader.start(0)
        assert epochs(loader, 2) == here(name, count=2)


def test_what_a_sample_raises_or_kills_is_told_as_here():
    for name, error, words in (
        ("Failing", DataError, "row 21 is missing"),
        ("Deadly", PoisonedTicket, "sample 21"),
    ):
        address = tcp()
        with serving(name, address), SwiftLoader.connect(address) as loader:
            loader.start(0)
            with pytest.raises((error, DataError), match=words):
                epochs(loader, 1)


def test_what_cannot_be_sent_is_an_error_at_the_servers_start():
    server = start("Unsendable", tcp())
    _, complaint = server.communicate(timeout=60)
    assert server.returncode == 1
    assert "a batch cannot be sent to another machine: sample is a " in complaint
    assert "Pair; containers that are sent are dict" in complaint


def test_servers_of_different_loaders_are_refused():
    one, other = tcp(), tcp()
    with serving("Rows", one), serving("Rows", other, seed=8):
        for address in (one, other):
            SwiftLoader.connect(address).close()
        with pytest.raises(ProtocolMismatch, match="seed is 7 and 8"):
            SwiftLoader.connect(f"{one},{other}")
        with pytest.raises(ConfigError, match="seed: what decides"):
            SwiftLoader.connect(one, seed=3)


def test_servers_whose_datasets_are_built_otherwise_are_refused_unless_they_are_said_to_be_the_same(tmp_path: Path):
    paths, one, other = [str(tmp_path / name) for name in "ab"], tcp(), tcp()
    with serving("Counted", one, path=paths[0]), serving("Counted", other, path=paths[1]):
        SwiftLoader.connect(one).close()
        SwiftLoader.connect(other).close()
        with pytest.raises(ProtocolMismatch, match=r"arguments is .* and "):
            SwiftLoader.connect(f"{one},{other}")
    with serving("Counted", one, path=paths[0], version="1"), serving("Counted", other, path=paths[1], version="1"):
        to_all_of([one, other]).close()


def test_a_server_that_was_started_with_other_data_is_not_gone_on_with():
    address = tcp()
    server = start("Slow", address)
    try:
        with SwiftLoader.connect(address) as loader:
            loader.start(0)
            batches = iter(loader)
            next(batches)
            server.kill()
            server.communicate(timeout=10)
            server = start("Slow", address, seed=8)
            with pytest.raises(ProtocolMismatch, match="serves another loader"):
                list(batches)
    finally:
        server.terminate()
        server.communicate(timeout=10)


def test_one_of_two_servers_that_was_started_with_other_data_is_left_out():
    expected, addresses = here("Slow", count=1), [tcp(), tcp()]
    server = start("Slow", addresses[0])
    with serving("Slow", addresses[1]), to_all_of(addresses) as loader:
        loader.start(0)
        batches = iter(loader)
        seen = [plain(next(batches))]
        server.kill()
        server.communicate(timeout=10)
        with serving("Slow", addresses[0], seed=8):
            SwiftLoader.connect(addresses[0]).close()
            with pytest.warns(RuntimeWarning, match="serves another loader .* left out, as long as") as told:
                seen += gone_on(loader, batches, told)
    assert seen == expected[0]


def to_all_of(addresses: list[str]) -> SwiftLoader:
    """Once each of them is up."""
    for address in addresses:
        SwiftLoader.connect(address).close()
    return SwiftLoader.connect(",".join(addresses))


def gone_on(loader: SwiftLoader, batches: Iterator[Any], told: pytest.WarningsRecorder) -> list:
    """The rest of the epoch, and then others until somebody was warned."""
    rest = [plain(batch) for batch in batches]
    until(lambda: any("left out" in str(one.message) for one in told) or not epochs(loader, 1))
    return rest


def test_a_hostile_client_is_cut_off_and_others_go_on():
    address = tcp()
    port = int(address.rpartition(":")[2])
    with serving("Rows", address), SwiftLoader.connect(address) as loader:
        loader.start(0)
        batches = iter(loader)
        first = plain(next(batches))
        for garbage in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01" * 50, bytes(2000)):
            with socket.create_connection(("127.0.0.1", port), 5) as stranger:
                stranger.sendall(garbage)
                stranger.settimeout(8)
                assert stranger.recv(100) == b""
        assert [first, *map(plain, batches)] == here(count=1)[0]


def test_the_command_serves(tmp_path: Path):
    path = tmp_path / "socket"
    words = [sys.executable, "-m", "swift_loader.cli.main", "serve", "tests.served_loaders:made", "--unix", str(path)]
    server = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        with SwiftLoader.connect(f"unix:{path}") as loader:
            loader.start(0)
            assert epochs(loader, 1) == here(count=1)
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=10)
    assert not path.exists()
