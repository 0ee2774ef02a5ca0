"""The benchmarks' own arithmetic: ratios within a round, goals, the table, the order of cases, lost samples."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import duel
from benchmarks.all import MODULES
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side
from benchmarks.score import judge, ratios, rotated, spread
from benchmarks.table import WIDTH, short, table


def nothing(_: Settings) -> Result:
    return {}


QUESTION = Question(
    name="speed",
    title="How fast is it, with a title that is about as long as the others are?",
    metric="per_s",
    unit="samples/s",
    cases=(
        Case("ours", "ours", Side.OURS, nothing),
        Case("theirs", "torch, fork, with a label that is much too long", Side.TORCH, nothing),
        Case("slow", "torch, spawn", Side.TORCH, nothing, rounds=1),
    ),
    goals=(Goal("ours / theirs", "ours", "theirs", at_least=10),),
    columns=(Column("gb_per_s", "GB/s"), Column("first_s", "first s")),
)


def order(tmp_path: Path, *, rounds: int = 3, only: tuple[str, ...] = ()) -> duel.Order:
    return duel.Order("benchmarks.speed", (), rounds, Settings(seconds=1.0), False, only, tmp_path)


def test_ratios_are_made_within_a_round_before_the_median() -> None:
    # In the second round something else ran on the machine: both sides were slow, the ratio hardly moves.
    assert ratios([30.0, 6.0, 20.0], [3.0, 0.5, 2.0]) == [10.0, 12.0, 10.0]


def test_a_round_without_a_figure_is_left_out() -> None:
    assert ratios([30.0, None, 20.0], [3.0, 0.5, None]) == [10.0, None, None]
    assert ratios([1.0], [0.0]) == [None]
    found = spread([None, 4.0, 2.0])
    assert found is not None
    assert (found.median, found.lowest, found.highest) == (3.0, 2.0, 4.0)
    assert spread([None]) is None


@pytest.mark.parametrize(
    ("goal", "reached"),
    [
        (Goal("", "ours", "theirs", at_least=10), True),
        (Goal("", "ours", "theirs", at_least=10.5), False),
        (Goal("", "ours", at_most=20), True),
        (Goal("", "ours", at_most=19), False),
        (Goal("", "ours", "theirs"), None),
        (Goal("", "missing", at_least=1), False),
        (Goal("", "ours", "missing", at_most=1), False),
    ],
)
def test_a_goal_is_judged_by_the_median_and_a_missing_figure_reaches_nothing(goal: Goal, reached: bool | None) -> None:
    figures = {"ours": [30.0, 5.0, 20.0], "theirs": [3.0, 0.5, 2.0]}
    assert judge(goal, figures).reached is reached


def test_rounds_start_with_another_case_each() -> None:
    assert [rotated("abc", by=number) for number in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert rotated([], by=2) == []


def test_a_case_limited_to_one_round_is_not_run_again(tmp_path: Path) -> None:
    names = [(number, case.name) for number, case in duel.schedule(QUESTION, order(tmp_path, rounds=2))]
    assert names == [(0, "ours"), (0, "theirs"), (0, "slow"), (1, "theirs"), (1, "ours")]
    chosen = [case.name for _, case in duel.schedule(QUESTION, order(tmp_path, rounds=2, only=("ours",)))]
    assert chosen == ["ours", "ours"]


def test_cases_that_saw_other_samples_are_a_failure() -> None:
    good = {"samples_per_epoch": 100, "checksum": 7}
    run = duel.Run({"ours": [good, good], "theirs": [good, None], "ceiling": [{"per_s": 1.0}]})
    assert duel.disagreements(run) == []
    run.results["ours"][1] = {"samples_per_epoch": 96, "checksum": 7}
    (said,) = duel.disagreements(run)
    assert "ours: 96 samples" in said


def test_the_table_is_80_columns_wide_and_says_what_is_missing() -> None:
    figures: dict[str, list[float | None]] = {"ours": [12345.0, 20000.0], "theirs": [1.0, 2.0], "slow": [None, None]}
    columns: dict[str, Sequence[float | None]] = {"ours": [1.5, None], "theirs": [0.01, 3.0], "slow": [None, None]}
    text = table(QUESTION, figures, columns, [judge(goal, figures) for goal in QUESTION.goals], ["a note " * 30])
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert "ours                               16.2k     12.3k     20.0k      1.50         -" in lines
    assert "torch, spawn                           -         -         -         -         -" in lines
    assert any(line.startswith("ours / theirs") and line.endswith(">= 10       yes") for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.00456, "0.0046"),
        (0.0456, "0.046"),
        (0.5, "0.50"),
        (9.999, "10.0"),
        (99.97, "100"),
        (2_500.0, "2500"),
        (12_345.0, "12.3k"),
        (999_600.0, "1.00M"),
    ],
)
def test_figures_are_printed_with_the_digits_that_matter(value: float | None, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize("name", MODULES)
def test_every_question_is_whole(name: str) -> None:
    for question in importlib.import_module(f"benchmarks.{name}").QUESTIONS:
        names = [case.name for case in question.cases]
        assert len(set(names)) == len(names)
        assert len(question.title) <= WIDTH
        assert {Side.OURS, Side.TORCH, Side.CEILING} == {case.side for case in question.cases}
        for goal in question.goals:
            assert goal.case in names
            assert goal.against is None or goal.against in names
