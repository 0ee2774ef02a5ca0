"""Runs a question: every case in a child process of its own, interleaved over rounds, then JSON, a table and a picture.

A question's file calls `main`. Without `--case` that is the parent, which measures nothing itself: it starts the same
module again with `--case NAME` for each case and round, in an order that moves on by one place with each round, and
reads the one JSON line that the child prints. It does not know what any case does.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import machine
from benchmarks.question import Case, Question, Result, Settings
from benchmarks.score import Verdict, judge, rotated, spread
from benchmarks.table import table
from swift_loader.cli.aside import NoAnswer, answer_of

RESULTS = Path(__file__).resolve().parent / "results"
CASE_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Order:
    """What the parent was asked for."""

    module: str
    selector: tuple[str, ...]
    rounds: int
    settings: Settings
    quick: bool
    only: tuple[str, ...]
    folder: Path


@dataclass
class Run:
    """All that one run of a question brought, by case and round."""

    results: dict[str, list[Result | None]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def figures(self, key: str) -> dict[str, list[float | None]]:
        """One figure of every case, round by round."""
        return {
            name: [None if result is None or result.get(key) is None else float(result[key]) for result in results]
            for name, results in self.results.items()
        }


def main(questions: Sequence[Question], option: str | None = None) -> int:
    """The command line of a question's file.

    Args:
        questions: the questions in the file; the first is the default.
        option: the option that picks one of several by its `variant` (`--dtype`).

    Returns:
        The exit status: 0 when every case ran and told the truth about its samples, else 1.
    """
    spec = sys.modules["__main__"].__spec__
    module = spec.name if spec is not None else Path(sys.argv[0]).stem
    given = parse(questions, option, sys.argv[1:])
    question = next(each for each in questions if option is None or each.variant == given.variant)
    settings = settings_from(question, given)
    if given.case is not None:
        print(json.dumps(question.case(given.case).run(settings)), flush=True)
        return 0
    selector = () if option is None else (option, given.variant)
    order = order_from(module, selector, settings, given)
    for name in order.only:
        question.case(name)
    return answer(question, order, progress=say)


def parse(questions: Sequence[Question], option: str | None, words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    names = " / ".join(question.title for question in questions)
    parser = argparse.ArgumentParser(description=names)
    if option is not None:
        variants = [question.variant for question in questions]
        parser.add_argument(option, dest="variant", choices=variants, default=variants[0])
    parser.add_argument("--case", help="run this one case here and print its JSON line")
    parser.add_argument("--only", default="", help="cases to run, separated by commas")
    common_arguments(parser)
    return parser.parse_args(words)


def common_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that one question and all of them share."""
    parser.add_argument("--rounds", type=int, default=None, help="how often each case runs (3; 1 with --quick)")
    parser.add_argument("--seconds", type=float, default=None, help="least time of a case, always whole epochs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds; its figures mean nothing")
    parser.add_argument("--out", type=Path, default=None, help="folder of the results")


def settings_from(question: Question, given: argparse.Namespace) -> Settings:
    """The settings of every case of a run."""
    if given.quick:
        return Settings(seconds=0.2, seed=given.seed, epochs=1, shrink=8)
    return Settings(seconds=question.seconds if given.seconds is None else given.seconds, seed=given.seed)


def order_from(module: str, selector: tuple[str, ...], settings: Settings, given: argparse.Namespace) -> Order:
    """The parent's order. What is not a whole, real run must not overwrite the results that are kept."""
    rounds = given.rounds or (1 if given.quick else 3)
    only = tuple(filter(None, getattr(given, "only", "").split(",")))
    partial = given.quick or bool(only)
    folder = given.out or (Path(tempfile.gettempdir()) / "swift-loader-benchmarks" if partial else RESULTS)
    return Order(module, selector, rounds, settings, given.quick, only, folder)


def answer(question: Question, order: Order, progress: Callable[[str], None]) -> int:
    """Run a question, write its three files, print its table."""
    run = run_rounds(question, order, progress)
    run.failures += disagreements(run)
    verdicts = [judge(goal, run.figures(question.metric)) for goal in question.goals]
    text = as_table(question, order, run, verdicts)
    order.folder.mkdir(parents=True, exist_ok=True)
    stem = order.folder / question.name
    record = as_record(question, order, run, verdicts)
    stem.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    stem.with_suffix(".txt").write_text(text)
    from benchmarks.picture import draw

    draw(question, run.figures(question.metric), verdicts, footer(order), stem.with_suffix(".png"))
    if question.chart is not None:
        question.chart(record, stem)
    sys.stdout.write(f"\n{text}written: {shown(stem)}.json .txt .png\n")
    sys.stdout.flush()
    return 1 if run.failures else 0


def schedule(question: Question, order: Order) -> Iterator[tuple[int, Case]]:
    """Which case runs when: round by round, each round starting one case later."""
    wanted = [case for case in question.cases if not order.only or case.name in order.only]
    chosen = [case for case in wanted if case.smoke or not order.quick]
    for number in range(order.rounds):
        for case in rotated(chosen, by=number):
            if case.rounds is None or number < case.rounds:
                yield number, case


def run_rounds(question: Question, order: Order, progress: Callable[[str], None]) -> Run:
    """Run every case of every round, one after the other."""
    machine.make_ready()
    run = Run(results={case.name: [None] * order.rounds for case in question.cases})
    for number, case in schedule(question, order):
        progress(f"{question.name} {number + 1}/{order.rounds} {case.name}")
        result, error = run_case(case, order)
        run.results[case.name][number] = result
        if error is not None:
            run.failures.append(f"{case.name}, round {number + 1}: {error}")
    return run


def run_case(case: Case, order: Order) -> tuple[Result | None, str | None]:
    """One case in a child process: its result, or why there is none."""
    settings = order.settings
    words = ["-m", order.module, *order.selector, "--case", case.name]
    words += ["--seconds", str(settings.seconds), "--seed", str(settings.seed), *(["--quick"] if order.quick else [])]
    try:
        return answer_of(words, None, CASE_TIMEOUT_S, machine.ROOT), None
    except NoAnswer as why:
        return None, str(why).replace("\n", "\n  ")


def disagreements(run: Run) -> list[str]:
    """Cases that saw other samples than the rest: whoever drops data is fast, and must not win."""
    seen: dict[tuple[object, ...], str] = {}
    for name, results in run.results.items():
        for result in results:
            if result is not None and "checksum" in result:
                key = (result.get("work"), result["samples_per_epoch"], result["checksum"])
                seen.setdefault(key, name)
    said = []
    for work in {key[0] for key in seen}:
        kinds = {key[1:]: name for key, name in seen.items() if key[0] == work}
        if len(kinds) > 1:
            detail = "; ".join(f"{name}: {rows} samples, checksum {value}" for (rows, value), name in kinds.items())
            said.append(f"cases did not see the same samples: {detail}")
    return said


def as_table(question: Question, order: Order, run: Run, verdicts: Sequence[Verdict]) -> str:
    """The table of a run, with what failed and the machine below."""
    by_key = {column.key: run.figures(column.key) for column in question.columns}
    columns: dict[str, Sequence[float | None]] = {}
    for case in question.cases:
        found = [spread(by_key[column.key][case.name]) for column in question.columns]
        columns[case.name] = [None if each is None else each.median for each in found]
    once = [case.label for case in question.cases if case.rounds == 1 and order.rounds > 1]
    notes = [f"In the first round only: {'; '.join(once)}."] if once else []
    notes += [*question.notes]
    notes += [*(f"FAILED {failure}" for failure in run.failures), footer(order)]
    return table(question, run.figures(question.metric), columns, verdicts, notes)


def as_record(question: Question, order: Order, run: Run, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The run as it is kept: every figure of every round, and what was made of them."""
    cases = {}
    for case in question.cases:
        values = run.figures(question.metric)[case.name]
        present = [value for value in values if value is not None]
        cases[case.name] = {
            "label": case.label,
            "side": case.side.value,
            "median": median(present) if present else None,
            "values": values,
            "rounds": run.results[case.name],
        }
    goals = [
        {
            "text": verdict.goal.text,
            "case": verdict.goal.case,
            "against": verdict.goal.against,
            "at_least": verdict.goal.at_least,
            "at_most": verdict.goal.at_most,
            "median": None if verdict.spread is None else verdict.spread.median,
            "lowest": None if verdict.spread is None else verdict.spread.lowest,
            "highest": None if verdict.spread is None else verdict.spread.highest,
            "reached": verdict.reached,
        }
        for verdict in verdicts
    ]
    return {
        "question": question.name,
        "title": question.title,
        "metric": question.metric,
        "unit": question.unit,
        "higher_is_better": question.higher_is_better,
        "command": " ".join(["python", "-m", order.module, *order.selector]),
        "commit": machine.commit(),
        "machine": machine.facts(),
        "rounds": order.rounds,
        "seconds": order.settings.seconds,
        "seed": order.settings.seed,
        "quick": order.quick,
        "goals": goals,
        "failures": run.failures,
        "cases": cases,
    }


def footer(order: Order) -> str:
    """The machine and the run in one line."""
    kind = "SMOKE RUN, " if order.quick else ""
    return f"{kind}{order.rounds} rounds, {machine.in_a_line()}, commit {machine.commit()}"


def shown(path: Path) -> str:
    """A path as one would type it from the project's root."""
    return str(path.relative_to(machine.ROOT) if path.is_relative_to(machine.ROOT) else path)


def say(text: str) -> None:
    """Progress of a single question: one line on standard error for each case."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
