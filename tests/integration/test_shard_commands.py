"""The commands that write sets, as processes: killed they are called again, interrupted they leave nothing half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from swift_loader import shards
from tests.unit.shards.sources import digests
from tests.watching import ROOT, descendants, until

COUNT = 120
WORDS = ("create", "tests.shard_datasets:Pictures", "{}", "--maxcount", "10", "--workers", "2", "--kwargs")


def begun(folder: Path, *, seconds: float = 0.0) -> subprocess.Popen[str]:
    words = [word.format(folder) for word in WORDS] + [f'{{"count": {COUNT}, "seconds": {seconds}}}', "--name", "one"]
    command = [sys.executable, "-c", "import sys; from swift_loader.cli.main import main; sys.exit(main())", "shard"]
    return subprocess.Popen(
        [*command, *words], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.fixture
def undisturbed(tmp_path: Path) -> dict[str, str]:
    code, out, err = ended(begun(tmp_path / "undisturbed"))
    assert (code, err) == (0, "")
    assert f"{COUNT} samples in 12 shards" in out
    return digests(tmp_path / "undisturbed")


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
