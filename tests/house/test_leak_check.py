"""The leak check finds each kind of leak, and is cheap where there is none: a checker must be able to fail."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.leak_check import SHARED_MEMORY, Residue, leaks_since
from tests.watching import soon_at_least_once

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


@contextmanager
def a_child() -> Iterator[str]:
    with subprocess.Popen(SLEEP) as child:
        yield f"process {child.pid}"
        child.kill()


@contextmanager
def a_forked_child() -> Iterator[str]:
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    yield f"process {pid}"
    os.kill(pid, 9)
    os.waitpid(pid, 0)


@contextmanager
def a_dead_child_nobody_waited_for() -> Iterator[str]:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    yield f"process {pid} (zombie)"
    os.waitpid(pid, 0)


@contextmanager
def an_orphaned_grandchild() -> Iterator[str]:
    script = f"import subprocess as s; print(s.Popen({SLEEP!r}, start_new_session=True, stdout=s.DEVNULL).pid)"
    pid = int(subprocess.run([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE, check=True).stdout)
    yield f"process {pid}"
    orphan = psutil.Process(pid)
    orphan.kill()
    orphan.wait(10)


@contextmanager
def a_thread() -> Iterator[str]:
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait, name="swift-telecom-c0w3", daemon=True)
    thread.start()
    yield "thread swift-telecom-c0w3"
    leave.set()
    thread.join()


@contextmanager
def a_descriptor() -> Iterator[str]:
    fd = os.memfd_create("swift-slot")
    yield f"descriptor {fd}"
    os.close(fd)


@contextmanager
def a_name_in_shared_memory() -> Iterator[str]:
    path = SHARED_MEMORY / f"swift-{os.getpid()}"
    path.touch()
    yield str(path)
    path.unlink()


@contextmanager
def a_temporary_file() -> Iterator[str]:
    path = Path(tempfile.gettempdir()) / "left-behind"
    path.touch()
    yield str(path)
    path.unlink()


@pytest.mark.parametrize(
    "leak",
    [
        a_child,
        a_forked_child,
        a_dead_child_nobody_waited_for,
        an_orphaned_grandchild,
        a_thread,
        a_descriptor,
        a_name_in_shared_memory,
        a_temporary_file,
    ],
)
def test_each_leak_is_found_and_its_end_is_seen(leak: Callable[[], AbstractContextManager[str]]):
    before = Residue.take()
    with leak() as named:
        leaks = leaks_since(before, grace_s=0.1)
        assert any(named in line for line in leaks), leaks
    assert leaks_since(before) == []


def test_what_is_on_its_way_out_is_no_leak():
    before = Residue.take()
    thread = threading.Thread(target=time.sleep, args=(0.2,), name="swift-landing-c0")
    thread.start()
    assert leaks_since(before) == []


def test_a_test_that_leaks_fails(pytester: pytest.Pytester, project_root: Path):
    text = (project_root / "tests/conftest.py").read_text()
    assert "leaks_since(before)" in text
    pytester.makeconftest(text.replace("leaks_since(before)", "leaks_since(before, grace_s=0.5)"))
    pytester.makepyfile("import os\ndef test_leaky():\n    os.memfd_create('kept')\ndef test_clean():\n    pass\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-o", f"pythonpath={project_root}")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*left behind:*", "*descriptor * -> /memfd:kept*"])


def test_a_test_without_processes_pays_less_than_two_milliseconds():
    def pays_s() -> float:
        times = []
        for _ in range(30):
            before = Residue.take()
            began = time.thread_time()
            leaks_since(Residue.take(before))
            times.append(time.thread_time() - began)
        return sorted(times)[3]

    soon_at_least_once(pays_s, bound_s=0.002, tries=10)
