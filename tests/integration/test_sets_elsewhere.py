"""A set in a bucket is read as one in a folder: the same stream, whatever forks and dies meanwhile."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

from swift_loader import ShardError, SwiftLoader
from swift_loader.shards import ShardDataset, create
from tests import elsewhere
from tests.fault_proxy import FaultProxy
from tests.s3_server import S3Server
from tests.slow import slow

FIELDS = ("x.npy", "cls")


@pytest.fixture(autouse=True)
def _ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFT_LOADER_FETCHER_LINGER_S", "0.3")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return elsewhere.set_in(tmp_path_factory.mktemp("set") / "local")


@pytest.fixture
def url(local: Path, s3_server: S3Server, request: pytest.FixtureRequest) -> str:
    """The set, in a folder of this test's own."""
    url = f"s3://{s3_server.bucket}/{abs(hash(request.node.name)):x}"
    elsewhere.upload(local, url, elsewhere.client_of(s3_server))
    return url


def opened(url: str, server: S3Server, endpoint: str | None = None, **more: object) -> ShardDataset:
    return ShardDataset(url, FIELDS, client=elsewhere.client_of(server, endpoint), **more)


def kill(dataset: ShardDataset) -> None:
    """Its fetcher."""
    os.kill(dataset.statistics()["pid"], signal.SIGKILL)


def test_the_stream_is_that_of_a_folder_though_its_fetcher_is_killed(
    local: Path, url: str, s3_server: S3Server, tmp_path: Path
) -> None:
    expected = elsewhere.stream(ShardDataset(local, FIELDS), workers=2, epochs=2)
    dataset = opened(url, s3_server)
    assert (len(dataset), dataset.column("cls").sum()) == (600, sum(range(600)))
    assert [len(dataset.where(cls=[3, 7])), dataset[-1][0].nbytes] == [2, 20_000]
    kills = dict.fromkeys((3, 11, 22, 30), lambda: kill(dataset))
    assert elsewhere.stream(dataset, workers=2, epochs=2, at=kills) == expected


@pytest.mark.parametrize("form", [{"rows": True}, {"small_members": False}], ids=["rows", "numbers in the table"])
def test_samples_of_every_form_are_read_there(tmp_path: Path, s3_server: S3Server, form: dict[str, bool]) -> None:
    samples = [{"x.npy": np.full(9, at), "y.npy": np.full((2, 2), at / 2), "cls": at % 7} for at in range(300)]
    create(samples, tmp_path / "set", maxcount=70, **form)
    url = f"s3://{s3_server.bucket}/{'-'.join(form)}"
    elsewhere.upload(tmp_path / "set", url, elsewhere.client_of(s3_server))
    here, there = ShardDataset(tmp_path / "set"), ShardDataset(url, client=elsewhere.client_of(s3_server))
    for index in (0, 69, 70, 299):
        for name, part in here[index].items():
            np.testing.assert_array_equal(part, there[index][name])
    rows = [
        {name: np.zeros((300, *np.shape(part)), np.asarray(part).dtype) for name, part in here[0].items()} for _ in "ab"
    ]
    for dataset, columns in zip((here, there), rows, strict=True):
        dataset.read_into(range(300), columns)
    assert all((rows[0][name] == rows[1][name]).all() for name in rows[0])


def test_torchs_workers_are_forked_before_during_and_after_fetching(local: Path, url: str, s3_server: S3Server) -> None:
    here, there = ShardDataset(local, FIELDS), opened(url, s3_server)
    for _ in range(2):
        for mine, other in zip(DataLoader(here, 64), DataLoader(there, 64, num_workers=2, timeout=60), strict=True):
            assert all((a == b).all() for a, b in zip(mine, other, strict=True))
        assert there[5][1] == here[5][1]


@pytest.mark.parametrize("times", [slow(40), pytest.param(1000, marks=pytest.mark.soak)])
def test_forks_of_every_sort_while_others_fetch(url: str, s3_server: S3Server, times: int) -> None:
    dataset = opened(url, s3_server)
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            dataset.__getitems__(list(np.random.default_rng().integers(0, 600, 16)))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        forked(dataset, times)
    finally:
        is_over.set()
        reader.join(60)


def forked(dataset: ShardDataset, times: int) -> None:
    for number in range(times):
        if number % 10 == 0:
            subprocess.run([sys.executable, "-c", ""], check=True, timeout=60)
        pid = os.fork()
        if not pid:
            os._exit(0 if dataset[number % 600] is not None else 1)
        until = time.monotonic() + 60
        while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
            assert time.monotonic() < until, "a child hangs"
            time.sleep(0.001)
        assert ended[1] == 0
        assert dataset[number % 600] is not None


@pytest.mark.slow
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP])
def test_a_fetcher_that_is_killed_or_stopped_again_and_again(
    local: Path, url: str, s3_server: S3Server, way: signal.Signals
) -> None:
    killed(local, url, s3_server, way, 30 if way == signal.SIGKILL else 3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_fetcher_that_is_killed_a_thousand_times_in_an_epoch(tmp_path: Path, s3_server: S3Server) -> None:
    local = elsewhere.set_in(tmp_path / "large", 40_000, 4_000, 4 << 20)
    url = f"s3://{s3_server.bucket}/killed"
    elsewhere.upload(local, url, elsewhere.client_of(s3_server))
    killed(local, url, s3_server, signal.SIGKILL, 1000)


def killed(local: Path, url: str, server: S3Server, way: signal.Signals, times: int) -> None:
    expected = elsewhere.stream(ShardDataset(local, FIELDS), batch=16)
    dataset = opened(url, server)
    told, count = [], 0
    with SwiftLoader.from_dataset(dataset, 16, 1, 2, seed=5) as loader:
        for batch in loader:
            told.append(elsewhere.digest(batch))
            if count < times:
                os.kill(dataset.statistics()["pid"], way)
                count += 1
    assert (told, count) == (expected, min(times, len(expected)))


@pytest.mark.slow
def test_each_run_is_asked_for_once_by_two_ranks_and_eight_workers(
    tmp_path: Path, s3_server: S3Server, fault_proxy: FaultProxy
) -> None:
    local = elsewhere.set_in(tmp_path / "two", 2400, 20_000, 8 << 20)
    url = f"s3://{s3_server.bucket}/two"
    elsewhere.upload(local, url, elsewhere.client_of(s3_server))
    nbytes = sum(path.stat().st_size for path in local.iterdir())
    dataset = opened(url, s3_server, fault_proxy.endpoint)
    fault_proxy.calm()
    code = (
        "import sys, pickle; from swift_loader import SwiftLoader; dataset = pickle.load(sys.stdin.buffer)\n"
        "if __name__ == '__main__':\n"
        "    loader = SwiftLoader.from_dataset(dataset, 16, 2, 4, seed=5)\n"
        "    loader.start(int(sys.argv[1]))\n"
        "    with loader: print(sum(len(batch[1]) for batch in loader))\n"
    )
    script = tmp_path / "rank.py"
    script.write_text(code)
    ranks = [
        subprocess.Popen([sys.executable, script, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for rank in range(2)
    ]
    for rank in ranks:
        rank.stdin.write(pickle.dumps(dataset))
        rank.stdin.close()
    assert sum(int(rank.stdout.read()) for rank in ranks) == 2400
    assert [rank.wait(60) for rank in ranks] == [0, 0]
    for rank in ranks:
        rank.stdout.close()
    told = dataset.statistics()
    assert sorted(told["consumers"]) == [0, 1]  # bytes of each rank, which are those of the host together
    assert sum(one["nbytes"] for one in told["consumers"].values()) == pytest.approx(told["nbytes"], rel=0.05)
    # Beside the runs: their beginnings, so that nobody waits for all of a first batch's; catalogs, and tables.
    assert fault_proxy.counts()["nbytes"] - told["ranges_nbytes"] < 1.1 * nbytes, told


def test_a_batch_of_more_stretches_than_the_fetcher_can_have_at_once(tmp_path: Path, s3_server: S3Server) -> None:
    local = elsewhere.set_in(tmp_path / "many", 12_000, 100, 8 << 20)
    url = f"s3://{s3_server.bucket}/many"
    elsewhere.upload(local, url, elsewhere.client_of(s3_server))
    dataset = opened(url, s3_server)
    apart = list(range(0, 12_000, 4))  # so far from each other that none is fetched with another
    assert [number for _, number in dataset.__getitems__(apart)] == dataset.column("cls")[apart].tolist()
    assert dataset.statistics()["ranges"] > 2500


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:memory=")  # little, so that not all is there before the server is killed
def test_a_server_that_is_killed_and_comes_again(local: Path, tmp_path: Path) -> None:
    expected = elsewhere.stream(ShardDataset(local, FIELDS), batch=8)
    with S3Server(tmp_path / "server") as server:
        url = f"s3://{server.bucket}/x"
        elsewhere.upload(local, url, elsewhere.client_of(server))
        dataset = opened(url, server, memory=2 << 20)

        def kill_and_start() -> None:
            server.kill()
            threading.Timer(2.0, server.start).start()

        assert elsewhere.stream(dataset, batch=8, at={5: kill_and_start}) == expected


def test_what_is_changed_under_a_training_is_told(local: Path, url: str, s3_server: S3Server, tmp_path: Path) -> None:
    dataset = opened(url, s3_server)
    assert len(dataset.__getitems__(list(range(0, 600, 10)))) == 60  # of each shard
    other = tmp_path / "other"
    other.mkdir()
    for path in sorted(local.glob("*.tar")):
        (other / path.name).write_bytes(path.read_bytes()[::-1])
    elsewhere.upload(other, url, elsewhere.client_of(s3_server))
    with pytest.raises(ShardError, match="changed under us"):
        dataset.__getitems__(list(range(1, 600)))
