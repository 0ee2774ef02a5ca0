"""Row C16 of the faults: main modules of every kind, all without a guard; that of a file is told in test_scripts.py.

What they print they print once: no worker runs them again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slow import slow
from tests.watching import ROOT

SCRIPT = """
from swift_loader import SwiftLoader

print("main runs")

class Base:
    def __len__(self):
        return 8

class Set(Base):
    def __getitem__(self, index):
        return scaled(index)

def scaled(index):
    return 3 * index

loader = SwiftLoader(Set, {}, 4, 1, 2, shuffle=False, start_method=METHOD)
loader.start(0)
print([batch.tolist() for batch in loader])
loader.close()
"""
EXPECTED = "main runs\n[[0, 3, 6, 9], [12, 15, 18, 21]]\n"


def _as_command(_folder: Path, text: str) -> tuple[list[str], str]:
    return ["-c", text], ""


def _as_notebook(_folder: Path, text: str) -> tuple[list[str], str]:
    """Cell by cell, in a main module that has no file, as kernels do."""
    kernel = (
        "import __main__, sys\n"
        "cells = sys.stdin.read().split('\\n\\n')\n"
        "vars(__main__).pop('__file__', None); vars(__main__)['__spec__'] = None\n"
        "for number, cell in enumerate(cells): exec(compile(cell, f'<cell {number}>', 'exec'), vars(__main__))\n"
    )
    return ["-c", kernel], text


def _as_session(_folder: Path, text: str) -> tuple[list[str], str]:
    """Line by line, as somebody types it."""
    typed = text.replace("\n\nclass", "\nclass").replace("\n\ndef", "\ndef")
    lines = []
    for line in typed.splitlines():
        if line and not line.startswith(" ") and lines and lines[-1].startswith(" "):
            lines.append("")  # what ends a block at a prompt
        lines += [line] if line else []
    return ["-i", "-q", "-"], "import sys; sys.ps1 = sys.ps2 = ''\n" + "\n".join(lines) + "\n"


def _as_package(folder: Path, text: str) -> tuple[list[str], str]:
    (folder / "job").mkdir()
    (folder / "job" / "__init__.py").touch()
    (folder / "job" / "__main__.py").write_text(text, encoding="utf-8")
    return ["-m", "job"], ""


def _as_archive(folder: Path, text: str) -> tuple[list[str], str]:
    with zipfile.ZipFile(folder / "job.pyz", "w") as archive:
        archive.writestr("__main__.py", text)
    return [str(folder / "job.pyz")], ""


@pytest.mark.parametrize(
    ("begin", "method"),
    [
        slow(_as_command, "spawn"), (_as_notebook, "forkserver"), slow(_as_session, "fork"),
        slow(_as_package, "spawn"), slow(_as_archive, "forkserver"),
    ],
)  # fmt: skip
def test_c16_a_dataset_of_any_main_module_works_and_that_runs_once(begin: Callable, method: str, tmp_path: Path):
    words, typed = begin(tmp_path, SCRIPT.replace("METHOD", repr(method)))
    ended = subprocess.run(
        [sys.executable, *words],
        input=typed,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default::ResourceWarning"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    said = ended.stderr.replace(">>>", "").strip()  # the prompt comes once before it can be taken away
    assert (ended.returncode, ended.stdout, said) == (0, EXPECTED, "")


@pytest.mark.parametrize("ending", [slow(""), "loader.close()", slow("ahead = iter(loader); kept = next(ahead)")])
def test_c16_a_script_that_has_the_package_itself_as_a_name_ends_in_silence(ending: str):
    """Then modules lose their names before what a script still holds is let go of."""
    script = SCRIPT.replace("METHOD", "'auto'").replace("loader.close()\n", ending)
    made = (
        "import tempfile; from swift_loader.host.mapping import MappedFile; import os; import swift_loader\n"
        "file = tempfile.TemporaryFile(); file.write(b'some'); file.flush(); held = MappedFile(os.dup(file.fileno()))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", made + script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, EXPECTED, "")
