"""The pages on tuning and on the comparison with torch: their code runs, their commands exist, their tables fit."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from swift_loader.cli import bench, tune
from tests.watching import run_warm

DOCS = Path(__file__).resolve().parents[2] / "swift_loader" / "docs"
COMMANDS = {"tune": tune, "bench": bench}

#: What the page's code takes for given.
BEFORE = """
import time

class Pages:
    def __init__(self, folder):
        self.count = {"train": 512}[folder]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.002)
        return index
"""


def pieces(name: str, kind: str) -> list[str]:
    text = (DOCS / f"{name}.md").read_text()
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [inside for of_kind, inside in fences if of_kind == kind]


def options(name: str) -> set[str]:
    parser = argparse.ArgumentParser()
    COMMANDS[name].add_arguments(parser)
    return set(parser._option_string_actions)


def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path):
    told = run_warm(tmp_path, BEFORE + "".join(pieces("tune", "python")) + "\nprint(loader)\n", timeout_s=60)
    assert "starved" in told
    assert "<SwiftLoader Pages" in told


@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_and_options_of_a_page_exist(name: str):
    (line,) = pieces(name, "bash")
    program, command, *words = shlex.split(line)
    assert (program, command) == ("swift-loader", name)
    parser = argparse.ArgumentParser()
    COMMANDS[name].add_arguments(parser)
    parser.parse_args(words)
    named = set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", (DOCS / f"{name}.md").read_text()))
    assert named <= options(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_shown_fits_80_columns(name: str):
    (shown,) = pieces(name, "")
    assert max(map(len, shown.splitlines())) <= 80
