"""Rows D13 and D14 of the faults: another user of the machine, who plants things at our paths, or tries to get in."""

from __future__ import annotations

import json
import os
import stat
import warnings
from pathlib import Path

import pytest

from tests.fault.oracle import Traced, differences, faultless, record
from tests.loaders import started
from tests.other_users import run_apart

STRANGER = 54322
FILES = {"logger": "logger-0.log", "benchmark_file": "benchmark_file", "trace_file": "trace_file"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="what another user has made can only be faked by root")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder like /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def _plant(kind: str, path: Path, victim: Path, owner: int) -> None:
    if kind == "symbolic link":
        path.symlink_to(victim)
    elif kind == "hard link":
        path.hardlink_to(victim)
        return  # it is the victim's, as the file is
    elif kind == "link to nothing":
        path.symlink_to(victim.parent / "made by us")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "file":
        path.write_text("theirs\n")
        path.chmod(0o666)
    else:
        os.mknod(path, 0o666 | stat.S_IFBLK, os.makedev(7, 200))
    os.chown(path, owner, owner, follow_symlinks=False)


def _run(settings: dict[str, Path]) -> None:
    with started(Traced, **settings) as loader:
        assert not differences(record(loader), faultless())


def _at(place: Path) -> dict[str, Path]:
    """Settings that name a file of each sort."""
    return {name: place / name for name in FILES}


@needs_root
@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "link to nothing", "pipe", "file", "device"])
def test_d13_what_another_user_has_planted_is_refused_and_his_victims_file_untouched(
    kind: str, tmp_path: Path, shared: Path
):
    victim, planted = tmp_path / "victim", [shared / name for name in FILES.values()]
    victim.write_text("precious\n")
    for path in planted:
        _plant(kind, path, victim, STRANGER)
    before = [_seen(path) for path in planted]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        _run(_at(shared))
    told = [str(one.message) for one in warned]
    assert [text.partition(":")[0] for text in told] == list(FILES)
    assert all("is not written from here on" in text for text in told)
    assert victim.read_text() == "precious\n"
    assert sorted(os.listdir(tmp_path)) == ["shared", "victim"]
    assert [_seen(path) for path in planted] == before


def _seen(path: Path) -> tuple[int, ...]:
    found = path.lstat()
    return found.st_ino, found.st_size, found.st_mode, found.st_uid


@needs_root
def test_d13_a_folder_that_another_user_has_linked_elsewhere_is_refused(tmp_path: Path, shared: Path):
    (tmp_path / "home").mkdir()
    (shared / "logs").symlink_to(tmp_path / "home")
    os.chown(shared / "logs", STRANGER, STRANGER, follow_symlinks=False)
    with pytest.warns(RuntimeWarning, match=rf"logs is a symbolic link of another user \(uid {STRANGER}\)"):
        _run(_at(shared / "logs"))
    assert os.listdir(tmp_path / "home") == []


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_d13_links_of_the_users_own_are_followed(linked: str, tmp_path: Path, shared: Path):
    home = tmp_path / "home"
    home.mkdir()
    if linked == "folder":
        (shared / "logs").symlink_to(home)
    else:
        for name in FILES.values():
            (shared / name).symlink_to(home / name)
    _run(_at(shared / "logs" if linked == "folder" else shared))
    for name in FILES.values():
        found = (home / name).lstat()
        assert stat.S_ISREG(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o600
        assert found.st_size > 50


BREAK_IN = """
import contextlib, json, os, subprocess, sys

USER, STRANGER = 54321, 54322
TRAINER = '''
import json, os, sys
from tests.datasets import Pictures
from tests.loaders import started
from tests.watching import descendants, until
with started(Pictures, {"count": 160}, start_method=sys.argv[1], benchmark_file="lines") as loader:
    batches = iter(loader)
    next(batches)
    until(lambda: len(descendants(os.getpid())) >= 3 - (sys.argv[1] == "spawn"))
    print(json.dumps([os.getpid(), *(process.pid for process in descendants(os.getpid()))]), flush=True)
    sys.stdin.readline()
    print(1 + sum(1 for _ in batches))
'''
INTRUDER = '''
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
got = {}
def attempt(what, action):
    try:
        got[what] = got.get(what, 0) + bool(action())
    except OSError:
        got.setdefault(what, 0)
def opened(path, flags):
    fd = os.open(path, flags)
    os.close(fd)
    return True
class Piece(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("nbytes", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(16)
for pid in json.loads(sys.argv[1]):
    attempt("list", lambda: os.listdir(f"/proc/{pid}/fd"))
    for fd in range(100):
        attempt("open", lambda: opened(f"/proc/{pid}/fd/{fd}", os.O_RDONLY))
        attempt("write", lambda: opened(f"/proc/{pid}/fd/{fd}", os.O_WRONLY))
    for name in ("mem", "maps", "environ", "root"):
        attempt(name, lambda: opened(f"/proc/{pid}/{name}", os.O_RDONLY))
    here, there = Piece(ctypes.addressof(buffer), 16), Piece(0, 16)
    attempt("signal", lambda: os.kill(pid, 0) is None)
    pidfd = os.pidfd_open(pid)
    for fd in range(100):
        attempt("take", lambda: libc.syscall(438, pidfd, fd, 0) >= 0)
    attempt("trace", lambda: libc.ptrace(0x4206, pid, None, None) == 0)
for path in sys.argv[2:]:
    attempt("file", lambda: opened(path, os.O_RDONLY))
print(json.dumps(got))
'''

def python(user, script, *words):
    return subprocess.Popen([sys.executable, "-c", script, *words], user=user, group=user, extra_groups=[],
                            cwd=os.environ["PLACE"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

def intrudes(user, family, *paths):
    with python(user, INTRUDER, json.dumps(family), *paths) as process:
        return json.loads(process.stdout.read())

def lines_of(name):
    with open(f"/proc/net/{name}") as file:
        return file.readlines()

def listening():
    lines = [line.split() for name in ("unix", "tcp", "tcp6") for line in lines_of(name)][1:]
    return {words[6] for words in lines if len(words) > 6 and words[3] == "00010000"} | {
        words[9] for words in lines if len(words) > 9 and words[3] == "0A"}

def links(pid):
    for entry in os.listdir(f"/proc/{pid}/fd"):
        place = f"/proc/{pid}/fd/{entry}"
        with contextlib.suppress(FileNotFoundError):  # it was there for a moment only
            yield place, os.readlink(place), os.stat(place).st_mode

told = {}
named = {folder: set(os.listdir(folder)) for folder in ("/tmp", "/dev/shm")}
with python(USER, TRAINER, os.environ["METHOD"]) as trainer:
    family = json.loads(trainer.stdout.readline())
    told["family"] = len(family)
    told["new names"] = sorted(name for folder in named for name in set(os.listdir(folder)) - named[folder]
                               if os.lstat(f"{folder}/{name}").st_uid == USER)
    places = [place for pid in family for place in links(pid)]
    told["sockets"] = sum(to.startswith("socket:") for _, to, _ in places)
    told["listening"] = sorted({to for _, to, _ in places if to[8:-1] in listening()})
    memory = [(to, mode) for _, to, mode in places if to.startswith("/memfd:swift")]
    told["memory files"] = len(memory)
    told["open to others"] = [to for to, mode in memory if mode & 0o077]
    paths = {to for _, to, _ in places if to.startswith("/") and not to.startswith("/proc/")}
    told["named"] = sorted(to for to in paths if os.path.exists(to) and os.stat(to).st_uid == USER)
    told["stranger"] = intrudes(STRANGER, family, "lines")
    told["user"] = intrudes(USER, family, "lines")
    told["batches"] = trainer.communicate("\\n")[0]
print(json.dumps(told))
"""


@needs_root
@pytest.mark.parametrize(
    "method", ["forkserver", *(pytest.param(one, marks=pytest.mark.soak) for one in ("spawn", "fork"))]
)
def test_d14_another_user_gets_at_nothing(method: str):
    place = Path("/tmp") / f"swift-test-{os.getpid()}"
    place.mkdir(mode=0o755)
    os.chown(place, 54321, 54321)
    try:
        told = json.loads(run_apart(BREAK_IN, METHOD=method, PLACE=str(place), TMPDIR="/tmp"))
    finally:
        (place / "lines").unlink(missing_ok=True)
        place.rmdir()
    assert told["family"] >= 3
    assert told["batches"] == "20\n"
    assert told["new names"] == []
    assert told["sockets"] >= 4
    assert told["listening"] == []
    assert told["memory files"] >= 4
    assert told["open to others"] == []
    assert told["named"] == [str(place / "lines")]
    assert set(told["stranger"].values()) == {0}
    assert min(told["user"].values()) > 0, "the intruder's tools do not work: nothing was shown"
