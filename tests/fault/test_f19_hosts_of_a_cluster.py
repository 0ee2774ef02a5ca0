"""A cluster of two hosts, with workers here and there: whatever is lost, the stream is that of the same loader here.

Both are network namespaces of this machine, with a real link between them, so these tests need root.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import on_ray
from tests.namespaces import can_be_made
from tests.served_streams import ROOT
from tests.two_hosts import Hosts, two_hosts

pytestmark = pytest.mark.skipif(not can_be_made(), reason="network namespaces need root and iproute2")
#: What is promised where other workers live. The bound is the consumer's own: 3 s of silence are waited for, and what
#: else it takes is a fraction of a second.
LONGEST_WAIT_S = 3.5
ACTOR, HEAD = "ray::_Group", "gcs_server"


class Result(NamedTuple):
    digest: str
    longest_wait_s: float
    lost: int


@pytest.fixture(params=[True])
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    folder = tempfile.mkdtemp(prefix="ray-")
    try:
        with two_hosts(Path(folder), both=request.param) as both:
            yield both
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def expected() -> str:
    return on_ray.run("here").splitlines()[-1].split()[1]


def trained(hosts: Hosts, case: str, at: int, do: Callable[[], None]) -> Result:
    """Trains on the first host; does this when so many batches have come."""
    words = hosts.words(0, [sys.executable, "-W", "ignore", "-m", "tests.on_ray", case])
    doing = threading.Thread(target=do)
    lines = []
    with (
        subprocess.Popen(words, env=hosts.environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as trainer,
        contextlib.ExitStack() as undone,
    ):
        undone.callback(trainer.kill)
        for line in trainer.stdout:
            lines.append(line)
            if line.startswith(f"batch {at} "):
                doing.start()
                undone.callback(doing.join, 30)
        assert trainer.wait(30) == 0, "".join(lines[-5:])
    _, digest, longest, lost = lines[-1].split()
    return Result(digest, float(longest), int(lost))


@pytest.mark.soak
def test_f19_a_host_that_is_lost(hosts: Hosts, expected: str):
    result = trained(hosts, "mixed", 60, lambda: hosts.kill(1))
    assert result.digest == expected
    assert result.longest_wait_s <= LONGEST_WAIT_S


@pytest.mark.slow
def test_f19_a_link_that_is_cut_for_twelve_seconds(hosts: Hosts, expected: str):
    def cut() -> None:
        hosts.cut()
        time.sleep(12.0)
        hosts.join()

    result = trained(hosts, "mixed", 60, cut)
    assert result.digest == expected
    assert result.longest_wait_s <= LONGEST_WAIT_S
    assert result.lost >= 1


@pytest.mark.soak
def test_f19_an_actor_that_is_killed_every_four_seconds(hosts: Hosts, expected: str):
    def kill() -> None:
        for _ in range(3):
            hosts.kill(1, ACTOR)
            time.sleep(4.0)

    result = trained(hosts, "mixed", 60, kill)
    assert result.digest == expected
    assert result.longest_wait_s <= LONGEST_WAIT_S
    assert result.lost >= 2


@pytest.mark.soak
def test_f19_an_actor_that_is_killed_where_there_are_no_others(hosts: Hosts, expected: str):
    result = trained(hosts, "far_alone", 60, lambda: hosts.kill(1, ACTOR))
    assert result.digest == expected
    assert result.lost >= 1


@pytest.mark.soak
@pytest.mark.parametrize("hosts", [False], indirect=True)
def test_f19_a_host_that_comes_in_the_middle_of_an_epoch_and_goes(hosts: Hosts, expected: str):
    def come_and_go() -> None:
        hosts.start_there()
        time.sleep(5.0)
        hosts.kill(1)

    result = trained(hosts, "mixed", 30, come_and_go)
    assert result.digest == expected
    assert result.longest_wait_s <= LONGEST_WAIT_S
    assert result.lost >= 1  # so it was there


@pytest.mark.soak
def test_f19_a_head_that_is_lost(hosts: Hosts, expected: str):
    assert hosts.pids(0, HEAD)
    result = trained(hosts, "mixed", 60, lambda: hosts.kill(0, HEAD))
    assert result.digest == expected
    assert result.longest_wait_s <= LONGEST_WAIT_S


@pytest.mark.soak
def test_f19_a_head_that_is_lost_for_longer_than_ray_waits_for_it(hosts: Hosts, expected: str):
    hosts.environment["RAY_gcs_rpc_server_reconnect_timeout_s"] = "3600"  # of the trainer: else Ray ends it after 60 s
    result = trained(hosts, "slow_step", 30, lambda: hosts.kill(0, HEAD))
    assert result.digest == expected
    assert result.longest_wait_s <= LONGEST_WAIT_S


@pytest.mark.slow
def test_f19_a_trainer_that_is_killed_leaves_nothing(hosts: Hosts):
    words = hosts.words(0, [sys.executable, "-W", "ignore", "-m", "tests.on_ray", "mixed"])
    with subprocess.Popen(words, env=hosts.environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as trainer:
        while not trainer.stdout.readline().startswith("batch 60 "):
            pass
        assert hosts.pids(1, "swift-")
        before = hosts.pids(0, "swift-")
        trainer.kill()
    deadline = time.monotonic() + 30
    while (left := [*hosts.pids(1, "swift-"), *hosts.pids(0, "swift-")]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert before
    assert not left
