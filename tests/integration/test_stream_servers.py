"""Streams that a server runs: to a client they are as if they ran there."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from swift_loader import ConfigError, DataError, PeerLost
from swift_loader.net.keygen import make_key
from swift_loader.streams import ServerDataStream, start_server
from tests import served_streams
from tests.cut import proxied
from tests.served_streams import ROOT, family_of, free_port, serving, start
from tests.watching import descendants, living, until

SOURCES = ("f", "t")


def epoch_of(stream) -> list[list]:
    return [[np.asarray(part).tolist() for part in batch] for batch in stream.get_epoch_iterator()]


def here(epochs: int) -> list[list]:
    stream = served_streams.shuffled()
    return [epoch_of(stream) for _ in range(epochs)]


def wait_until(holds, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.02)
    return held


@contextmanager
def stopped_door(server: int) -> Iterator[None]:
    """Meanwhile the process that talks to clients does not run; after it, all others of the server have gone."""
    family = descendants(server)
    (door,) = (one for one in family if one.name() == "swift-door")
    others = [one.pid for one in family if one != door]
    door.suspend()
    yield
    until(lambda: not living(others))
    door.resume()


def test_every_client_has_the_stream_as_if_it_ran_there():
    expected = here(3)
    with serving("shuffled") as (port, _):
        first, second = (ServerDataStream(SOURCES, port=port) for _ in range(2))
        assert epoch_of(first) == expected[0]
        for one, other, batch in zip(first.get_epoch_iterator(), second.get_epoch_iterator(), expected[1], strict=True):
            assert [part.tolist() for part in one] == batch
            assert isinstance(other[0], np.ndarray)
        assert epoch_of(first) == expected[2]
        assert [epoch_of(second), epoch_of(second)] == expected[1:]
        first.close()
        second.close()


def test_an_epoch_that_is_left_is_followed_by_the_next():
    expected = here(3)
    with serving("shuffled") as (port, _):
        stream = ServerDataStream(SOURCES, port=port)
        batches = stream.get_epoch_iterator()
        assert [part.tolist() for part in next(batches)] == expected[0][0]
        stream.get_epoch_iterator()  # nor is one that nobody looked into
        later = stream.get_epoch_iterator(as_dict=True)
        assert next(later)["t"].tolist() == expected[2][0][1]
        with pytest.raises(RuntimeError, match="a later epoch"):
            next(batches)
        assert len(list(later)) == len(expected[2]) - 1
        with pytest.raises(StopIteration):
            next(later)
        stream.close()


def test_a_connection_that_is_lost_again_and_again_changes_nothing():
    expected = here(4)
    with serving("shuffled") as (port, _), proxied(port, piece=100) as proxy:
        stream = ServerDataStream(SOURCES, host="127.0.0.1", port=proxy.port, hwm=1)
        seen = []
        for batch in (batch for _ in range(4) for batch in stream.get_epoch_iterator()):
            seen.append([part.tolist() for part in batch])
            if len(seen) % 3 == 1:
                proxy.cut()
        assert seen == [batch for epoch in expected for batch in epoch]
        assert proxy.connections > 8
        stream.close()


def test_one_that_comes_before_the_server_waits_and_a_new_server_knows_no_old_session():
    port = free_port()
    stream = ServerDataStream(SOURCES, port=port, hwm=1, wait_s=60)
    batches = stream.get_epoch_iterator()
    server = start("slow", port)
    try:
        assert next(batches)[1].tolist() == here(1)[0][0][1]
        with stopped_door(server.pid):  # it sees the end of the stream's process and the server's at the same time
            server.kill()
            server.wait(10)
            server.stderr.close()
        server = start("slow", port)
        with pytest.raises(PeerLost, match=r"knows nothing of the session.*\(batch \d+ of epoch 0") as caught:
            list(batches)
        assert (caught.value.epoch, caught.value.peer) == (0, f"tcp://localhost:{port}")
        assert caught.value.step > 0
        stream.close()
        assert epoch_of(stream) == here(1)[0]
        stream.close()
    finally:
        server.terminate()
        server.communicate(timeout=10)


def test_what_a_stream_raises_is_raised_where_its_batch_was_wanted():
    with serving("raising") as (port, _):
        stream = ServerDataStream(SOURCES, port=port)
        batches = stream.get_epoch_iterator()
        assert [next(batches)[1].tolist(), next(batches)[1].tolist()] == [batch[1] for batch in here(1)[0][:2]]
        with pytest.raises(DataError, match="LookupError: the third batch is missing") as caught:
            next(batches)
        assert (caught.value.epoch, caught.value.step) == (0, 2)
        assert "served_streams.py" in str(caught.value.__cause__)
        assert len(list(batches)) == 7
        assert epoch_of(stream) == here(2)[1]
        stream.close()


def test_a_stream_whose_process_dies_is_an_error_and_no_other_clients():
    with serving("dying") as (port, _):
        for _ in range(2):
            stream = ServerDataStream(SOURCES, port=port)
            batches = stream.get_epoch_iterator()
            assert len([next(batches), next(batches)]) == 2
            with pytest.raises(DataError, match="the process that ran this client's stream has ended"):
                next(batches)
            stream.close()


def test_what_can_be_sent_arrives_as_it_was():
    expected = list(served_streams.of_many_types().get_epoch_iterator())
    with serving("of_many_types") as (port, _):
        stream = ServerDataStream(("0", "1", "2", "3"), False, "localhost", port, 3)
        for batch, values in zip(stream.get_epoch_iterator(), expected, strict=True):
            for part, value in zip(batch, map(np.asarray, values), strict=True):
                assert (part.dtype, part.shape) == (value.dtype, value.shape)
                assert np.array_equal(part, value)
                assert part.flags.writeable
        stream.close()


def test_large_batches_and_a_small_mark():
    with serving("large", hwm=1) as (port, _):
        stream = ServerDataStream(("f",), "localhost", port, 1)
        for _ in range(2):
            sums = [int(batch.sum()) for (batch,) in stream.get_epoch_iterator()]
            assert sums == [int(batch.sum()) for (batch,) in served_streams.large().get_epoch_iterator()]
        stream.close()


def test_a_first_batch_that_cannot_be_sent_ends_the_server_at_once():
    server = start("ragged", free_port())
    _, complaint = server.communicate(timeout=30)
    assert server.returncode == 1
    assert re.search(r"DataError: source 'f' of batch 0 of epoch 0 is a list that makes no array", complaint)


def test_a_client_is_pickled_without_its_session():
    with serving("shuffled") as (port, _):
        stream = ServerDataStream(SOURCES, port=port)
        next(stream.get_epoch_iterator())
        other = pickle.loads(pickle.dumps(stream))
        assert epoch_of(other) == here(1)[0]
        if (pid := os.fork()) == 0:
            os._exit(0 if epoch_of(stream) == here(1)[0] else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert epoch_of(stream) == here(2)[1]
        stream.close()
        other.close()


def test_without_a_server_a_stream_can_be_asked_all_but_for_data():
    stream = ServerDataStream(SOURCES, port=free_port(), wait_s=0.1)
    stream.next_epoch()
    stream.reset()
    stream.close()
    assert stream.sources == SOURCES
    assert stream.produces_examples is False
    with pytest.raises(ValueError, match="takes no requests"):
        stream.get_data([0, 1])
    with pytest.raises(PeerLost, match=r"has not answered for .* connection refused"):
        next(stream.get_epoch_iterator())


def test_nothing_is_left_of_a_server_that_is_killed_or_of_a_client_that_has_gone():
    with serving("slow") as (port, server):
        stream = ServerDataStream(SOURCES, port=port)
        next(stream.get_epoch_iterator())
        assert wait_until(lambda: len(family_of(server.pid)) == 3)  # the door, this client's producer, and the next
        stream.close()
        assert wait_until(lambda: len(family_of(server.pid)) == 2)
        children = family_of(server.pid)
        server.send_signal(signal.SIGKILL)
        server.wait(10)
        assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def test_beside_another_thread_a_stream_is_run_in_the_servers_process_for_one_client_at_a_time():
    port = free_port()
    server = start("beside_a_thread", port)
    try:
        one, other = (ServerDataStream(SOURCES, port=port) for _ in range(2))
        assert epoch_of(one) == here(1)[0]
        batches = one.get_epoch_iterator()
        next(batches)
        assert not family_of(server.pid)
        with pytest.raises(PeerLost, match="this server has one client, and takes no more"):
            epoch_of(other)
        assert [[part.tolist() for part in batch] for batch in batches] == here(2)[1][1:]
        one.close()
        again, found = ServerDataStream(SOURCES, port=port), []
        assert wait_until(lambda: not refused(lambda: found.append(epoch_of(again))))
        assert found[0] in here(100)[2:]
        server.send_signal(signal.SIGINT)
        complaint = server.communicate(timeout=20)[1]
        assert "for one client at a time, since it must not fork: other threads run (another)" in complaint
        assert "KeyboardInterrupt" in complaint
        again.close()
    finally:
        server.kill()
        server.communicate(timeout=10)


def refused(asked: Callable[[], None]) -> bool:
    try:
        asked()
    except PeerLost:
        return True
    return False


def test_beside_another_thread_what_cannot_be_sent_is_an_error_at_the_servers_start():
    server = start("ragged_beside_a_thread", free_port())
    complaint = server.communicate(timeout=30)[1]
    assert server.returncode == 1
    assert "DataError: source 'f' of batch 0 of epoch 0 is a list that makes no array" in complaint


def test_a_server_that_listens_to_others_needs_a_key():
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0:\d+ could connect.*needs a key"):
        start_server(served_streams.shuffled(), free_port(), host="0.0.0.0")
    with pytest.raises(ConfigError, match="has none"):
        start_server(3)  # type: ignore[arg-type]
    with serving("shuffled") as (port, server):
        assert wait_until(lambda: bool(family_of(server.pid)))
        with pytest.raises(ConfigError, match=f"cannot listen at tcp://127.0.0.1:{port}"):
            start_server(served_streams.shuffled(), port)


def test_keys_let_in_those_who_have_them_until_they_are_taken_away(tmp_path: Path):
    for name in ("one", "two", "other"):
        make_key(tmp_path / f"{name}.key")
    folder = tmp_path / "known"
    folder.mkdir()
    for name in ("one", "two"):
        shutil.copy2(tmp_path / f"{name}.key", folder)
    with serving("shuffled", key=str(folder), host="0.0.0.0") as (port, _):
        one, two, other = (
            ServerDataStream(SOURCES, "localhost", port, 1, key=str(tmp_path / f"{name}.key"))
            for name in ("one", "two", "other")
        )
        assert [epoch_of(one), epoch_of(one)] == here(2)
        batches = two.get_epoch_iterator()
        next(batches)
        with pytest.raises(PeerLost, match=r"does not let this client in: .*same key"):
            epoch_of(other)
        (folder / "two.key").unlink()
        time.sleep(2.5)  # the server looks each second
        with pytest.raises(PeerLost, match="does not let this client in"):
            list(batches)
        assert epoch_of(one) == here(3)[2]
        one.close()


@pytest.mark.slow
def test_one_without_a_key_is_not_served(tmp_path: Path):
    make_key(tmp_path / "one.key")
    with serving("shuffled", key=str(tmp_path / "one.key")) as (port, _):
        stream = ServerDataStream(SOURCES, port=port)
        with pytest.warns(RuntimeWarning, match="does not answer"), pytest.raises(PeerLost, match="it wants a key"):
            epoch_of(stream)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ServerDataStream(SOURCES, "h", 1, 2, None, 5), TypeError, "at most host, port"),
        (lambda: ServerDataStream(SOURCES, False, "h", host="g"), TypeError, "by position and by name"),
        (lambda: ServerDataStream(SOURCES, prot=3), TypeError, "prot"),
        (lambda: ServerDataStream(SOURCES, hwm=0), ConfigError, "hwm"),
        (lambda: ServerDataStream(SOURCES, 5557), ConfigError, "host is the name"),
    ],
)
def test_what_a_client_cannot_be_told_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_the_documents_two_files_run_as_written():
    folder = ROOT / "examples" / "stream_server"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen([sys.executable, "server.py"], cwd=folder, env=environment)
    try:
        for words in (["train.py", "-p"], ["train.py"]):
            result = subprocess.run(
                [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=60,
                check=False,
            )  # fmt: skip
            assert result.returncode == 0, result.stderr
            assert re.fullmatch(r"Training took \d+\.\d+ seconds\n", result.stdout)
    finally:
        server.terminate()
        server.wait(10)
