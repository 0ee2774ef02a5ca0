"""Rows D7, D8 and D12 of the faults for the files that a user names today: log, benchmark_file and trace_file.

A disk that is full, read-only, too small for a user, or failing: training goes on, one warning names the file and what
to do. A run that is killed while it writes leaves whole files and whole lines.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from swift_loader.host.outfile import OutFile, publish
from tests.failing_disk import mounting
from tests.fault.oracle import Traced, differences, faultless, record
from tests.loaders import started
from tests.other_users import run_apart
from tests.watching import ROOT, begin_warm

FILES = ("logger", "benchmark_file", "trace_file")
ON_A_BAD_DISK = """
import json, os, warnings
from pathlib import Path
from tests.failing_disk import shut_down
from tests.fault.oracle import Traced, differences, faultless, record
from tests.loaders import started

failing = os.environ.get("FAILING")

def breaks(step):
    if step == 10 and failing is not None:
        shut_down(failing)

told = {}
expected = faultless(2)
for place in os.environ["PLACES"].split(":"):
    for name in ("logger", "benchmark_file", "trace_file"):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with started(Traced, {"count": 160}, **{name: Path(place, name)}) as loader:
                assert not differences(record(loader, 2, breaks), expected)
                for _ in range(30 if failing else 0):
                    list(loader)
        told[f"{place}/{name}"] = [str(one.message) for one in warned]
print(json.dumps(told))
"""
TINY = "mount -t tmpfs -o size=4k tmpfs {0} && head -c 4096 /dev/zero > {0}/full 2>/dev/null; true"
DISKS = {
    "full": (TINY, "No space left on device; make room on that disk"),
    "without inodes": ("mount -t tmpfs -o nr_inodes=1 tmpfs {0}", "No space left on device; make room"),
    "read-only": ("mount -t tmpfs -o ro tmpfs {0}", "Read-only file system; that disk can only be read"),
}


def test_d7_d8_a_bad_disk_costs_the_file_and_nothing_else(tmp_path: Path):
    places = [tmp_path / disk.replace(" ", "-") for disk in DISKS]
    for folder in places:
        folder.mkdir()
    mounts = " && ".join(command.format(place) for place, (command, _) in zip(places, DISKS.values(), strict=True))
    told = json.loads(run_apart(ON_A_BAD_DISK, mounts, PLACES=":".join(map(str, places))))
    for place, (_, why) in zip(places, DISKS.values(), strict=True):
        for name in FILES:
            (text,) = told[f"{place}/{name}"]  # one warning, that names the setting, the file, and what to do
            assert text.startswith(f"{name}: {place / name}")
            assert why in text
            assert "training goes on" in text


def test_d8_a_disk_that_fails_while_it_is_written_costs_the_file_and_nothing_else(tmp_path: Path):
    place = tmp_path / "disk"
    told = json.loads(run_apart(ON_A_BAD_DISK, mounting(tmp_path, place), PLACES=str(place), FAILING=str(place)))
    for name in FILES:
        (text,) = told[f"{place}/{name}"]
        assert re.match(rf"{name}: {place}/{name}.* (Input/output error|Read-only file system); that disk", text)
    assert "failing: name a path on another" in str(told)


def test_d7_a_file_that_may_not_grow_ends_with_a_whole_line(tmp_path: Path):
    """As a quota does it: no file may be larger than 50 kB, which is reached in the middle of a block of lines."""
    path, before = tmp_path / "lines", resource.getrlimit(resource.RLIMIT_FSIZE)
    expected = faultless(3, count=1600)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with started(Traced, {"count": 1600}, benchmark_file=path) as loader:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
            try:
                found = record(loader, epochs=3)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not differences(found, expected)
    (told,) = (str(one.message) for one in warned)
    assert re.match(r"benchmark_file: .*File too large; .*ulimit -f", told)
    text = path.read_text()
    assert text == "" or text.endswith("}\n")
    assert all(json.loads(line)["kind"] for line in text.splitlines())


WRITES = """
import resource, signal, sys
from swift_loader.telemetry import BatchRecord, Moments, Recorder, Trace

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the kernel kills whoever writes beyond the limit
what, path, count, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
target = Trace(path, 0) if what == "trace" else Recorder(0, path, None)
for step in range(count):
    record = BatchRecord(0, step, 0, 8, 64, *[1] * (len(BatchRecord._fields) - 5))
    target.batch(record, Moments(*(4 * step + i for i in (1, 2, 3, 4)))) if what == "trace" else target.batch(record)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
target.close()
"""


def _write(what: str, path: Path, count: int, limit: int = resource.RLIM_INFINITY) -> int:
    command = [sys.executable, "-c", WRITES, what, str(path), str(count), str(limit)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False, timeout=100).returncode


def test_d12_a_trace_is_there_as_a_whole_or_as_it_was(tmp_path: Path):
    path = tmp_path / "trace.json"
    assert _write("trace", path, 3) == 0
    first = path.read_bytes()
    assert _write("trace", path, 300, limit=50_000) == -signal.SIGXFSZ  # killed while it writes
    assert path.read_bytes() == first
    assert _write("trace", path, 300) == 0
    handed = [event for event in json.loads(path.read_bytes())["traceEvents"] if event["name"] == "transfer to device"]
    assert len(handed) == 300


def test_d12_a_line_that_a_killed_run_left_unfinished_spoils_no_other(tmp_path: Path):
    path = tmp_path / "lines"
    path.write_text('{"kind": "batch"}\n{"kind": "ba')
    assert _write("lines", path, 3) == 0
    lines = path.read_text().splitlines()
    assert lines[:2] == ['{"kind": "batch"}', '{"kind": "ba']
    assert [json.loads(line)["step"] for line in lines[2:]] == [0, 1, 2]


def test_d13_files_and_folders_that_we_make_are_for_their_user_alone_and_others_keep_their_mode(tmp_path: Path):
    given, trace = tmp_path / "given", tmp_path / "trace"
    given.touch(0o640)
    trace.touch(0o640)
    before = os.umask(0)
    try:
        for path in (given, tmp_path / "a" / "b" / "ours"):
            file = OutFile(path, "logger")
            file.write("a line\n")
            file.close()
        os.umask(0o022)
        with started(
            Traced, logger=tmp_path / "log", benchmark_file=tmp_path / "c" / "b", trace_file=tmp_path / "t"
        ) as one:
            list(one)
        publish(trace, b"{}")
    finally:
        os.umask(before)
    assert (_mode(given), _mode(trace)) == (0o640, 0o640)
    assert [_mode(tmp_path / name) for name in ("a", "a/b", "c")] == [0o700] * 3
    assert [_mode(tmp_path / name) for name in ("a/b/ours", "log-0.log", "c/b", "t")] == [0o600] * 4
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("target", ["/dev/full", "a folder", "a link to itself", "/dev/null"])
def test_d8_what_cannot_be_a_file_costs_a_warning_and_no_batch(name: str, target: str, tmp_path: Path):
    place = tmp_path / "there" if target == "a folder" else Path(target)
    settings = {name: place}
    if target == "a folder":
        place.mkdir()
    elif target == "a link to itself":
        place = tmp_path / "there"
        settings = {name: place}
        link = tmp_path / ("there-0.log" if name == "logger" else "there")
        link.symlink_to(link)
    elif name == "logger":  # it adds its own name to what it is given
        (tmp_path / "log-0.log").symlink_to(target)
        settings = {name: tmp_path / "log"}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with started(Traced, **settings) as loader:
            assert not differences(record(loader), faultless())
    has_warning = target in ("/dev/full", "a link to itself") or (target == "a folder" and name != "logger")
    assert [str(one.message).partition(":")[0] for one in warned] == [name] * has_warning
    assert not Path("/dev/null").is_file()


def test_d8_a_pipe_without_a_reader_stops_nobody(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.warns(RuntimeWarning, match="benchmark_file: .*it is no file: a pipe whose reader stalls"),
        started(Traced, benchmark_file=tmp_path / "pipe") as loader,
    ):
        assert not differences(record(loader), faultless())


def test_d8_a_log_on_a_standard_output_that_nobody_reads_stops_nobody(tmp_path: Path):
    script = (
        "from tests.datasets import Numbers\nfrom tests.loaders import stream\nimport os, sys\n"
        "sys.stdout = open(os.open('/dev/full', os.O_WRONLY), 'w')\n"
        "count = len(stream(Numbers, {'count': 64}, logger={'stdout': True}, epochs=2))\n"
        "os.write(2, b'%d' % count)\nos._exit(0)\n"
    )
    with begin_warm(tmp_path, script) as process:
        _, said = process.communicate(timeout=60)
    assert said == "16"
