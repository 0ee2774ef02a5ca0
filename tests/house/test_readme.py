"""The README: its program runs as it is pasted, and on two ranks with the lines that it says to change."""

from __future__ import annotations

import re
from pathlib import Path

from tests.gloo_ranks import run_ranks
from tests.watching import run_warm

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
REPORT = "    print(loader.report())\n"
COUNTS = """\
    import json
    print(json.dumps([len(loader), loader.statistics()["samples"], isinstance(images, torch.Tensor)]))
"""


def only(kind: str) -> str:
    (piece,) = re.findall(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return piece


def changed(program: str, difference: str) -> str:
    """The program with the lines of a difference: those that take no line's place come first."""
    lines = difference.splitlines(keepends=True)
    for at, line in enumerate(lines):
        if line.startswith("-"):
            assert program.count(line[1:]) == 1
            program = program.replace(line[1:], lines[at + 1][1:])
    places = {at + 1 for at, line in enumerate(lines) if line.startswith("-")}
    first = [line[1:] for at, line in enumerate(lines) if line.startswith("+") and at not in places]
    return "".join(first) + program


def test_the_program_runs_as_it_is_pasted(tmp_path: Path):
    told = run_warm(tmp_path, only("python"))
    assert told.startswith("swift_loader: epoch 1, consumer 0 of 1, 2 workers\n157 batches of 10,000 samples")


def test_the_program_runs_on_two_ranks_with_four_lines_changed(tmp_path: Path):
    difference = only("diff")
    assert sum(line.startswith("+") for line in difference.splitlines()) == 4
    program = changed("import torch\n" + only("python"), difference)
    assert program.count(REPORT) == 1
    steps, samples_of_two_epochs = 79, 2 * 5_000
    assert run_ranks(tmp_path, program.replace(REPORT, COUNTS), world=2) == [[steps, samples_of_two_epochs, True]] * 2


def test_the_first_lines_say_what_it_is_and_on_what_it_has_run():
    top = " ".join(README.splitlines()[:10])
    for words in ("alpha", "Linux", "Python 3.11", "has not yet run on a real GPU"):
        assert " ".join(words.split()) in " ".join(top.replace("**", "").split())


def test_the_two_commands_stand_as_they_are():
    commands = [line.partition("#")[0].strip() for line in only("bash").splitlines()]
    assert commands == [
        "pip install -r requirements.txt && swift-loader demo",
        "pip install -r requirements.txt && pytest",
    ]


def test_it_is_read_in_five_minutes():
    text = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    assert len(text.split()) <= 1_200


def test_a_line_that_is_not_there_to_be_changed_would_be_seen():
    assert changed("a\nb\n", "+new\n-b\n+c\n") == "new\na\nc\n"
