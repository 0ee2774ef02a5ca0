"""The page on shards: its code runs from top to bottom, and its commands print what it says."""

from __future__ import annotations

import re
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from swift_loader.cli import main as cli
from tests.watching import run_warm

PAGE = Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "shards.md"


def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path: Path):
    pieces = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = "".join(pieces) + "\nprint('all of it')"
    said = run_warm(tmp_path, script, PYTHONWARNINGS="error", TMPDIR=str(tmp_path))
    assert re.fullmatch(r"1000 samples in \d+ shards\nall of it\n", said)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images, and one of tar files, as the page has them."""
    rng = np.random.default_rng(0)
    for number in range(100):
        path = tmp_path / "train" / ("cat", "dog")[number % 2] / f"{number}.{('jpg', 'png')[number // 2 % 2]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(path)
    (tmp_path / "old").mkdir()
    for half in range(2):
        with tarfile.open(tmp_path / "old" / f"{half}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for path in sorted((tmp_path / "train").rglob("*.*"))[half * 50 : half * 50 + 50]:
                tar.add(path, path.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def calls() -> Iterator[tuple[str, str]]:
    """The commands of the page, and what it says that they print."""
    for block in re.findall(r"^```\n(\$ .*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        for call in block.split("$ ")[1:]:
            command, _, said = call.partition("\n")
            yield command, said


def numbers_aside(text: str) -> str:
    return re.sub(r"\d[\d,.]*", "N", text).strip()


def test_the_commands_of_the_page_print_what_it_says(data: Path, capfd: pytest.CaptureFixture[str]):
    count = 0
    for command, said in calls():
        program, *words = shlex.split(command)
        assert program == "swift-loader"
        assert cli.main(words) == 0, command
        printed = capfd.readouterr().out.replace(str(data), "/data")
        assert numbers_aside(printed) == numbers_aside(said), command
        count += 1
    assert count == 10
