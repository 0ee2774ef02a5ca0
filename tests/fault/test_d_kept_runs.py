"""Rows D7 to D13 against the folder in which parts of a bucket's set are kept: the stream stays the same."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swift_loader import SwiftLoader
from swift_loader.shards import ShardDataset
from tests.buckets import BATCH, COUNT, FIELDS, SEED, Trained, opened, put_set, write_set
from tests.other_users import run_apart
from tests.s3_server import S3Server

pytest.importorskip("obstore")
pytestmark = pytest.mark.filterwarnings("ignore:memory=")  # little, so that not all stays there: users are told
KEY = "kept/set"


@pytest.fixture(autouse=True)
def _fetchers_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFT_LOADER_FETCHER_LINGER_S", "0.1")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Path:
    folder = tmp_path_factory.mktemp("set")
    write_set(folder)
    put_set(folder, s3_server, KEY)
    return folder


@pytest.fixture(scope="module")
def undisturbed(local: Path) -> list[str]:
    return Trained(ShardDataset(local, FIELDS), workers=0).batches


def end(pid: int) -> None:
    """Kills a fetcher, and waits until it is gone: nobody's child."""
    fd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    gone, _, _ = select.select([fd], [], [], 60)
    os.close(fd)
    assert gone


class Kept:
    """A training that keeps what it reads, in that folder."""

    def __init__(self, server: S3Server, folder: Path, **more: Any) -> None:
        self.server, self.folder, self.more = server, folder, more

    def train(self, after_a_batch: Callable[[Any, int], object] | None = None) -> tuple[list[str], dict[str, Any]]:
        """What it saw, and what was counted; by a fetcher that has nothing in memory."""
        dataset = opened(self.server, self.server.endpoint, KEY, cache=self.folder, **self.more)

        class Watched(Trained):
            def after_a_batch(self) -> None:
                if after_a_batch is not None:
                    after_a_batch(dataset, len(self.batches))

        seen = Watched(dataset, data_queue_size=1).batches
        counts, before = dataset.statistics() or {}, -1
        while counts["kept_nbytes"] != before:  # what nobody waits for any more is still on its way there
            time.sleep(0.2)
            before, counts = counts["kept_nbytes"], dataset.statistics() or {}
        end(counts["pid"])
        return seen, counts

    @property
    def files(self) -> list[Path]:
        return sorted((self.folder / "swift-loader-runs").glob("*.run"))


@pytest.fixture
def kept(s3_server: S3Server, tmp_path: Path) -> Kept:
    return Kept(s3_server, tmp_path / "cache")


def test_d9_files_that_were_harmed_are_seen_and_fetched_anew(kept: Kept, undisturbed: list[str]) -> None:
    seen, first = kept.train()
    assert (seen, first["hits_kept"]) == (undisturbed, 0)
    whole = {path.name: path.read_bytes() for path in kept.files}
    assert len(whole) > 20
    assert first["kept_nbytes"] == sum(map(len, whole.values()))
    seen, again = kept.train()
    assert (seen, again["hits_kept"]) == (undisturbed, len(whole))
    chance = random.Random(7)
    for number, path in enumerate(kept.files):
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        match number % 4:
            case 0:
                path.write_bytes(data)
            case 1:
                os.truncate(path, chance.randrange(len(data)))
            case 2:
                path.unlink()
            case 3:
                path.unlink()
                path.symlink_to("/dev/zero")
    seen, mended = kept.train()
    assert (seen, mended["hits_kept"]) == (undisturbed, 0)
    assert not [path for path in kept.files if path.is_symlink()]  # to /dev/zero, which has no end
    assert {path.name: path.read_bytes() for path in kept.files} == whole


@pytest.mark.slow
def test_d9_files_that_are_harmed_while_they_are_used(kept: Kept, undisturbed: list[str]) -> None:
    kept.train()

    def harm(_dataset: Any, number: int) -> None:
        for path in kept.files[number % 3 :: 3]:
            os.truncate(path, number * 100)

    assert kept.train(harm)[0] == undisturbed


@pytest.mark.slow
def test_d7_no_more_than_was_allowed_is_kept_and_what_came_first_stays(
    s3_server: S3Server, tmp_path: Path, undisturbed: list[str]
) -> None:
    kept = Kept(s3_server, tmp_path / "cache", cache_limit=2_000_000)
    seen, _ = kept.train()
    first = kept.files
    assert seen == undisturbed
    assert 1_000_000 < sum(path.stat().st_size for path in first) <= 2_000_000
    seen, again = kept.train()
    assert (seen, again["hits_kept"], kept.files) == (undisturbed, len(first), first)


@pytest.mark.slow
def test_d11_d12_a_fetcher_that_is_killed_while_it_writes_leaves_whole_files(
    kept: Kept, undisturbed: list[str]
) -> None:
    chance, folder = random.Random(3), kept.folder / "swift-loader-runs"

    def kill(dataset: Any, _number: int) -> None:
        if chance.random() < 0.5:
            os.kill(dataset.statistics()["pid"], signal.SIGKILL)

    for _ in range(3):
        assert kept.train(kill)[0] == undisturbed
    seen, counts = kept.train()  # the lock of those that were killed is free
    assert seen == undisturbed
    assert {path.suffix for path in folder.iterdir()} == {".run", ""}
    seen, again = kept.train()
    assert seen == undisturbed
    assert again["hits_kept"] > 20
    assert again["kept_nbytes"] == sum(path.stat().st_size for path in kept.files) >= counts["kept_nbytes"]


@pytest.mark.slow
def test_d10_memory_for_a_few_shards_while_a_worker_is_slow(s3_server: S3Server, undisturbed: list[str]) -> None:
    slow_one = opened(s3_server, s3_server.endpoint, KEY, memory=700_000)
    assert Trained(slow_one, workers=3).batches == undisturbed


@pytest.mark.slow
def test_d13_a_link_in_place_of_the_folder_is_not_followed(
    s3_server: S3Server, tmp_path: Path, undisturbed: list[str]
) -> None:
    kept = Kept(s3_server, tmp_path / "cache")
    kept.folder.mkdir()
    (tmp_path / "others").mkdir()
    (kept.folder / "swift-loader-runs").symlink_to(tmp_path / "others")
    with pytest.warns(RuntimeWarning, match="no folder"):
        seen, _ = kept.train()
    assert seen == undisturbed
    assert not list((tmp_path / "others").iterdir())


@pytest.mark.slow
def test_c12_two_jobs_that_begin_at_once_keep_in_one_folder(
    s3_server: S3Server, tmp_path: Path, local: Path, undisturbed: list[str]
) -> None:
    code = (
        "import sys; from tests.buckets import Trained, opened; from tests.s3_server import S3Server\n"
        "server = S3Server; endpoint, bucket, cache, memory = sys.argv[1:]\n"
        "server.bucket = bucket\n"
        f"dataset = opened(server, endpoint, {KEY!r}, cache=cache, memory=int(memory))\n"
        "print(*Trained(dataset).batches)\n"
    )
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", code, s3_server.endpoint, s3_server.bucket, tmp_path / "cache", str(64 << 20 | job)],
            stdout=subprocess.PIPE, text=True,
        )
        for job in (0, 1)
    ]  # fmt: skip
    told = [job.communicate(timeout=100)[0].split() for job in jobs]
    assert told == [undisturbed, undisturbed]
    assert not list(tmp_path.rglob("*.part"))


ON_BAD_DISKS = """
import json, os, subprocess, warnings
from tests.buckets import Trained, opened
from tests.fault.test_d_kept_runs import end
from tests.s3_server import S3Server

S3Server.bucket, place = os.environ["BUCKET"], os.environ["PLACE"]

def run(folder):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        dataset = opened(S3Server, os.environ["ENDPOINT"], os.environ["KEY"], cache=folder)
        batches = Trained(dataset).batches
        hits = dataset.statistics()["hits_kept"]
        end(dataset.statistics()["pid"])
    return batches, [str(one.message) for one in warned], hits

told = {"good": run(place + "/good")}
subprocess.run(["mount", "-o", "remount,ro", place + "/good"], check=True)
for name in ("full", "inodes", "read-only", "good"):
    told[name] = run(place + "/" + name)
print(json.dumps(told))
"""


@pytest.mark.slow
def test_d7_d8_a_disk_that_is_full_or_read_only_costs_one_warning(
    s3_server: S3Server, tmp_path: Path, local: Path, undisturbed: list[str]
) -> None:
    disks = {"full": "size=66m", "inodes": "nr_inodes=5", "read-only": "ro", "good": "size=200m"}
    for name in disks:
        (tmp_path / name).mkdir()
    mounts = " && ".join(f"mount -t tmpfs -o {options} tmpfs {tmp_path / name}" for name, options in disks.items())
    words = {"PLACE": str(tmp_path), "ENDPOINT": s3_server.endpoint, "BUCKET": s3_server.bucket, "KEY": KEY}
    told = json.loads(run_apart(ON_BAD_DISKS, mounts, **words))
    why = {"full": "No space left", "inodes": "No space left", "read-only": "Read-only", "good": "Read-only"}
    for name, text in why.items():
        batches, (warning,), hits = told[name]
        assert batches == undisturbed
        assert text in warning
        assert (hits > 20) == (name == "good")


@pytest.mark.slow
@pytest.mark.usefixtures("local")
def test_d10_of_two_hosts_one_that_stays_with_its_part_is_served_by_its_folder(
    s3_server: S3Server, tmp_path: Path
) -> None:
    asked = {}
    for stay in (1, 2):
        folder = tmp_path / f"cache-{stay}"
        dataset = opened(s3_server, s3_server.endpoint, KEY, cache=folder, memory=3_000_000, stay=stay)
        with SwiftLoader.from_dataset(dataset, BATCH, 2, 1, seed=SEED, nearby_mix=2) as loader:
            loader.start(0)
            list(loader)
            before = dataset.statistics() or {}
            for _ in range(2):
                list(loader)
            told = dataset.statistics() or {}
        asked[stay] = (told["nbytes"] - before["nbytes"]) / 2 / (dataset.catalog.nbytes / 2)
        end(told["pid"])
    assert asked[1] > 0.3  # of what it needs in an epoch: the other half comes to it again and again
    assert asked[2] < 0.5 * asked[1]


@pytest.mark.usefixtures("local")
def test_d7_a_later_job_asks_for_what_was_not_kept_alone(s3_server: S3Server, tmp_path: Path) -> None:
    """Though its order is another one, so that what it reads together is cut elsewhere."""
    kept = Kept(s3_server, tmp_path / "cache", cache_limit=3_000_000)
    _, first = kept.train()
    files = kept.files
    dataset = opened(s3_server, s3_server.endpoint, KEY, cache=kept.folder, **kept.more)
    with SwiftLoader.from_dataset(dataset, BATCH, 1, 2, seed=SEED + 1, nearby_mix=2) as loader:
        assert sum(len(batch[1]) for batch in loader) == COUNT
    told = dataset.statistics() or {}
    end(told["pid"])
    assert kept.files == files
    assert told["hits_kept"] > len(files) // 2
    assert told["nbytes"] - told["ranges_nbytes"] < first["nbytes"] - first["ranges_nbytes"] - 1_500_000
