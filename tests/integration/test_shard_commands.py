"""The commands that write sets, as processes: killed they are called again, interrupted they leave nothing half."""

from __future__ import annotations

import io
import os
import signal
import tarfile
from pathlib import Path

import pytest

from swift_loader import shards
from tests.slow import slow
from tests.unit.shards.sources import digests
from tests.warm import Script
from tests.watching import begin_python, descendants, until

COMMAND = "import sys; from swift_loader.cli.main import main; sys.exit(main())"
COUNT = 120
TARS = 12
WORDS = ("create", "tests.shard_datasets:Pictures", "{}", "--maxcount", "10", "--workers", "2", "--kwargs")


def begun(folder: Path, *, seconds: float = 0.0) -> Script:
    """`create`, which makes a sample in so many seconds."""
    words = [word.format(folder) for word in WORDS]
    return called(*words, f'{{"count": {COUNT}, "seconds": {seconds}}}', "--name", "one")


def called(*words: str) -> Script:
    """In a session of its own, as a shell starts it."""
    return begin_python("-c", f"import os; os.setsid(); {COMMAND}", "shard", *words)


def ended(process: Script) -> tuple[int, str, str]:
    with process:
        out, err = process.communicate(timeout=60)
    assert process.returncode is not None
    return process.returncode, out, err


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed") / "set"
    code, out, err = ended(begun(folder))
    assert (code, err) == (0, "")
    assert f"{COUNT} samples in 12 shards" in out
    return digests(folder)


def test_a_killed_command_is_called_again_and_writes_the_same_bytes(tmp_path: Path, undisturbed: dict[str, str]):
    folder = tmp_path / "killed"
    for least in (1, 4, 9):
        process = begun(folder, seconds=0.01)
        until(lambda least=least: len(list(folder.glob("shard-*"))) >= least, "a shard")
        children = descendants(process.pid)
        process.kill()
        ended(process)
        until(lambda children=children: not any(child.is_running() for child in children), "the end of its workers")
        assert {name: undisturbed[name] for name in digests(folder)} == digests(folder)
    code, out, err = ended(begun(folder))
    assert code == 0
    assert "of about 12 shards are there" in err
    assert "were there" in out
    assert digests(folder) == undisturbed
    assert sorted(os.listdir(folder)) == sorted(undisturbed)
    assert shards.verify(folder) == []


def test_ctrl_c_leaves_nothing_half_and_no_traceback(tmp_path: Path, undisturbed: dict[str, str]):
    folder = tmp_path / "stopped"
    process = begun(folder, seconds=0.02)
    until(lambda: len(list(folder.glob("shard-*"))) >= 2, "two shards")
    children = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = ended(process)
    assert (code, out) == (130, "")
    assert "the same call goes on from there" in err
    assert "Traceback" not in err
    until(lambda: not any(child.is_running() for child in children), "the end of its workers")
    found = digests(folder)
    assert sorted(os.listdir(folder)) == sorted(found), "a hidden file was left"
    assert {name: undisturbed[name] for name in found} == found
    assert ended(begun(folder))[0] == 0
    assert digests(folder) == undisturbed


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """Tar files of somebody, which take a moment to go through."""
    folder = tmp_path / "tars"
    folder.mkdir()
    for number in range(TARS):
        with tarfile.open(folder / f"{number:02}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for key in range(2000):
                member = tarfile.TarInfo(f"{key:06}.txt")
                member.size = 2000
                tar.addfile(member, io.BytesIO(bytes(2000)))
    return folder


@pytest.mark.parametrize("stop", [signal.SIGINT, slow(signal.SIGKILL)])
def test_index_is_stopped_and_called_again(tars: Path, tmp_path: Path, stop: signal.Signals):
    assert ended(called("index", str(tars), "--workers", "2", "--index-to", str(tmp_path / "undisturbed")))[0] == 0
    folder = tmp_path / "stopped"
    process = called("index", str(tars), "--workers", "2", "--index-to", str(folder))
    until(lambda: list(folder.glob("*.tar.swift")), "a table")
    children = descendants(process.pid)
    os.killpg(process.pid, stop)
    code, out, err = ended(process)
    until(lambda: not any(child.is_running() for child in children), "the end of its processes")
    assert "Traceback" not in err
    if stop == signal.SIGINT and code != 0:  # it may have been done by then
        assert (code, out) == (130, "")
    code, _, err = ended(called("index", str(tars), "--workers", "2", "--index-to", str(folder)))
    assert code == 0
    assert f"of {TARS} shards are there" in err
    assert digests(folder) == digests(tmp_path / "undisturbed")
    assert sorted(os.listdir(folder)) == sorted(digests(folder))
