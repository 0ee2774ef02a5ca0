"""The page fits 80 columns and leaves nothing out; figures and times are said as people say them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from swift_loader.cli import main as cli
from swift_loader.testing import Finding, Report
from swift_loader.testing.report import name_of
from swift_loader.testing.walk import place_in

FINDINGS = (
    Finding("sending", "ok", "1.2 kB by pickle", figures={"nbytes": 1200}),
    Finding("samples", "advice", "x of sample 3 has a NaN", "look at it"),
    Finding(
        "samples", "problem", "boxes has shape (1, 4) in sample 0 and shape " + "(5, 4) " * 20, "pad it", "a stack"
    ),
    Finding("speed", "skipped", "no time was left"),
    Finding("memory", "skipped", "no time was left"),
)


def test_the_page_fits_and_tells_all():
    page = str(Report("Images(folder='train')", FINDINGS, 6.25))
    assert max(map(len, page.splitlines())) <= 80
    assert page.splitlines()[0] == "Images(folder='train'): 1 problem, 1 piece of advice, 2 not looked at in 6.2 s"
    assert page.count("samples  ") == 1  # named once
    for words in ("1.2 kB by pickle", "-> look at it", "PROBLEM", "-> pad it", "speed, memory. No time was left"):
        assert words in page
    assert "a stack" not in page


def test_a_problem_is_raised_with_its_stack():
    with pytest.raises(AssertionError, match="a stack"):
        Report("Images", FINDINGS, 1.0).assert_ok()
    Report("Images", FINDINGS[:2], 1.0).assert_ok()


def test_findings_are_found_by_check_and_verdict():
    report = Report("Images", FINDINGS, 1.0)
    assert report["samples"] == FINDINGS[1:3]
    assert report.problems == (FINDINGS[2],)
    assert report.advice == (FINDINGS[1],)
    assert report.skipped == FINDINGS[3:]
    assert report.figures == {"sending.nbytes": 1200}
    assert repr(report) == "<Report of Images: 1 problem, 1 piece of advice, 2 not looked at>"


def test_leaves_are_named_by_their_keys():
    assert [name_of(p) for p in ("sample['x']", "sample.box", "sample[0]", "sample['a']['b']")] == [
        "x", "box", "sample[0]", "sample['a']['b']",
    ]  # fmt: skip


def test_the_line_of_the_users_code_is_found_in_both_sorts_of_stack():
    ours = 'File "/x/swift_loader/pool/fetch.py", line 9 in _once\n'
    newest_first = (
        f'most recent call first\n  File "{ctypes_file()}", line 5 in string_at\n  File "/u/a.py", line 7 in f\n{ours}'
    )
    assert place_in(newest_first) == "a.py:7 in f"
    newest_last = (
        f'Traceback (most recent call last):\n{ours}  File "/u/a.py", line 3, in f\n  File "/u/b.py", line 4, in g\n'
    )
    assert place_in(newest_last) == "b.py:4 in g"
    assert place_in("nothing") == ""


def ctypes_file() -> str:
    import ctypes

    return ctypes.__file__


WRONG = "tests.integration.testing.wrong_datasets"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([f"{WRONG}:Right", "--kwargs", '{"count": 30}', "--only", "sending", "length"], 0, "30 samples"),
        ([f"{WRONG}:CannotBeBuilt", "--only", "building"], 1, "PROBLEM"),
        ([f"{WRONG}:Rihgt"], 2, "has no Rihgt"),
        (["tests.no.such:Right"], 2, "there is no module 'tests.no'"),
        ([WRONG], 2, "package.module:Dataset"),
        ([f"{WRONG}:Right", "--kwargs", "{count: 3}"], 2, "takes JSON"),
        ([f"{WRONG}:Right", "--kwargs", "[3]"], 2, "an object of JSON"),
        ([f"{WRONG}:Right", "--only", "luck"], 2, "no check 'luck'"),
    ],
)
def test_the_command_prints_it(words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["check", *words]) == code
    said = capsys.readouterr()
    assert told in said.out + said.err


def test_the_public_names_are_there_and_cost_nothing_until_they_are_used():
    import swift_loader.testing as kit

    assert set(dir(kit)) == set(kit.__all__)
    assert all(getattr(kit, name).__name__ == name for name in kit.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'check_datasets'"):
        kit.check_datasets  # noqa: B018
    code = "import sys, swift_loader.testing; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
