"""The oracle can fail: rows A6, B1, B6 and the random streams find something wrong in torch's DataLoader, nothing here.

And the benchmarks of the faults run, and hold what they measure against what is to be reached.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.fault_figures import Figure, Limit, as_markdown, put_between, table, whole
from benchmarks.fault_rows import ROWS
from benchmarks.faults_of_torch import SIDES, verdicts_in
from benchmarks.table import WIDTH
from tests.watching import ROOT, soon_at_least_once, until

#: In this order: a killed worker is the last of all, since torch's loader may hang on it for ever.
QUICK_ROWS = ("R", "B1", "B6", "A6")
#: So long torch's may take for that row: on a quiet machine it hangs, or has lost a batch, within one.
HANGS_S = 5
DEADLINE_S = 100


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict]:
    """What was said of each loader and row."""
    # Both at the same time, each with all rows in one process: torch is imported once.
    folder = tmp_path_factory.mktemp("verdicts")
    words = [sys.executable, "-m", "benchmarks.faults_of_torch", "--rows", ",".join(QUICK_ROWS), "--here"]
    running = {side: begin([*words, side], folder / side) for side in SIDES}
    until(lambda: running["torch"].poll() is not None or at_the_last_row(folder / "torch"), "torch", DEADLINE_S)
    found = {}
    for side, deadline_s in {"torch": HANGS_S, "swift": DEADLINE_S}.items():
        code = end(running[side], deadline_s)
        assert code == 0 or (code is None and side == "torch"), (folder / f"{side}.err").read_text()
        told = verdicts_in((folder / side).read_text())
        found |= {(side, verdict["row"]): verdict for verdict in told if "row" in verdict}
    return found


def at_the_last_row(told: Path) -> bool:
    return {verdict.get("row") for verdict in verdicts_in(told.read_text())} >= set(QUICK_ROWS[:-1])


def begin(words: list[str], told: Path) -> subprocess.Popen:
    # To files: a worker that outlives its trainer would hold a pipe open.
    with told.open("w") as out, told.with_suffix(".err").open("w") as err:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(words, cwd=ROOT, env=env, stdout=out, stderr=err, start_new_session=True)


def end(process: subprocess.Popen, deadline_s: float) -> int | None:
    """Its exit code, or None: it hung, and all of its group was killed."""
    try:
        return process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


@pytest.mark.slow
@pytest.mark.parametrize("row", QUICK_ROWS)
def test_a_row_finds_something_wrong_in_torch_and_nothing_here(row: str, verdicts: dict):
    ours = verdicts["swift", row]
    assert ours["fine"], ours["words"]
    # Without a verdict it was at that row that it hung; the first rows cannot.
    torch = verdicts.get(("torch", row)) if row == "A6" else verdicts["torch", row]
    assert torch is None or not torch["fine"]


def test_rows_have_each_a_number_of_their_own():
    numbers = [row.number for row in ROWS]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.slow
def test_the_figures_are_measured_and_told(tmp_path: Path):
    def measured() -> float:
        """How many times as long as promised the slower of the two took."""
        found = figures(tmp_path)
        return max(found["death_seen"]["median"] / 2, found["replaced"]["p95"] / 300)

    soon_at_least_once(measured, bound_s=10)


def figures(folder: Path) -> dict:
    words = [sys.executable, "-m", "benchmarks.faults", "--quick", "--only", "one_kill,deaths,checkpoints"]
    done = subprocess.run(
        [*words, "--out", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((folder / "faults.json").read_text())
    found = {figure["name"]: figure for figure in record["figures"]}
    assert record["failures"] == []
    assert found["one_kill"]["n"] == found["one_kill"]["well"] == 10
    assert found["death_seen"]["n"] == 8
    assert found["checkpoints"]["well"] == 2
    assert max(map(len, (folder / "faults.txt").read_text().splitlines())) <= WIDTH
    assert (folder / "faults.png").stat().st_size > 10_000
    return found


def test_a_figure_is_judged_by_the_statistic_that_was_asked_for():
    figure = Figure("x", "x", "ms", [float(value) for value in range(1, 101)])
    assert [figure.statistic(name) for name in ("median", "p95", "p99", "max")] == [50.5, 96, 100, 100]
    assert figure.reached(Limit("median", at_most=50.5))
    assert not figure.reached(Limit("p95", at_most=95))
    assert not figure.reached(Limit("median", at_least=51))
    assert not Figure("x", "x", "ms", []).reached(Limit("max", at_most=1))


def test_one_that_went_wrong_is_not_all():
    figure = whole("x", "epochs exact", [True, True, False])
    assert not figure.reached(figure.limits[0])
    text = table("title", [figure], ["a note"])
    assert "2 of 3 all           NO" in text
    assert "2 of 3 |  |  | all (**missed**)" in as_markdown([figure])


def test_only_what_stands_between_its_marks_is_written(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- x: written by the benchmark, not by hand -->\nold\n<!-- end of x -->\nbelow\n")
    put_between(page, "x", "new\n")
    put_between(page, "x", "newer\n")
    text = page.read_text()
    assert text.startswith("above\n<!-- x")
    assert text.endswith("<!-- end of x -->\nbelow\n")
    assert "newer" in text
    assert "new\n" not in text
    with pytest.raises(SystemExit, match="needs one line"):
        put_between(page, "y", "")
