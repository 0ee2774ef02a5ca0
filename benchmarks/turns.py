"""Turns: what a change has done to the figures, this tree beside another commit of it, in turns in one run.

Measures: our own cases of each question, as both commits' own benchmarks run them, each in a process of its own, now
the one first, now the other. The ratio is that of the medians; the lowest and the highest are of single rounds, whose
sides ran one after the other.

Leaves out: cases that one of the two does not have.

Command: `python -m benchmarks.turns COMMIT [QUESTION ...] [--rounds 3] [--seconds 4]`. The last table is
`results/turns.txt`.

Caveat: what other commits need to be installed is what is installed here.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from benchmarks import duel, machine
from benchmarks.question import Case, Question, Result, Side
from benchmarks.score import ratios, spread
from benchmarks.table import WIDTH, row, short
from swift_loader.cli.aside import NoAnswer, answer_of

QUESTIONS = ("overhead", "transport", "decoding", "first_batch", "epoch_gap")


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A folder with that commit, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="turns-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=machine.ROOT, check=True)
        try:
            yield tree
        finally:
            machine.git("worktree", "remove", "--force", str(tree))


def measured(module: str, case: Case, seconds: float, tree: Path) -> Result | None:
    """One case as the commit in that folder runs it; nothing where it has no such case."""
    words = ["-m", f"benchmarks.{module}", "--case", case.name, "--seconds", str(seconds)]
    try:
        return answer_of(words, None, duel.CASE_TIMEOUT_S, tree)  # whose folder comes first where it looks for modules
    except NoAnswer as why:
        tqdm.write(f"{module} {case.name} in {tree}: {why}", file=sys.stderr)
        return None


def in_turns(module: str, question: Question, trees: dict[str, Path], rounds: int, seconds: float) -> list[str]:
    """The lines of one question, a case each."""
    lines = []
    for case in (case for case in question.cases if case.side is Side.OURS):
        figures: dict[str, list[float | None]] = {side: [] for side in trees}
        for number in tqdm(range(rounds), desc=f"{module} {case.name}", leave=False):
            sides = list(trees) if number % 2 == 0 else list(trees)[::-1]
            for side in sides:
                result = measured(module, case, seconds, trees[side])
                figures[side].append(None if result is None else result.get(question.metric))
        then, now = (spread(figures[side]) for side in ("then", "now"))
        by = spread(ratios(figures["now"], figures["then"]))
        if then is not None and now is not None and by is not None:
            label = f"{question.name} {case.label} ({question.unit})"
            cells = [then.median, now.median, now.median / then.median, by.lowest, by.highest]
            lines.append(row(label, [short(cell) for cell in cells]))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument(
        "questions", nargs="*", metavar="question", default=list(QUESTIONS), help="those of benchmarks/"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="least time of a case, always whole epochs")
    given = parser.parse_args()
    head = row("question, case", ["then", "now", "now/then", "lowest", "highest"])
    then = machine.git("rev-parse", "--short=12", given.commit)
    lines = [f"then: {then}; now: {machine.commit()}", "", head, "-" * WIDTH]
    with checked_out(given.commit) as tree:
        trees = {"then": tree, "now": machine.ROOT}
        for each in trees.values():
            machine.make_ready(each)
        for module in given.questions:
            question = importlib.import_module(f"benchmarks.{module}").QUESTIONS[0]
            lines += in_turns(module, question, trees, given.rounds, given.seconds)
    text = "\n".join([*lines, "", f"{given.rounds} rounds, {machine.in_a_line()}"]) + "\n"
    if given.questions == list(QUESTIONS):  # else it is not the whole table
        (duel.RESULTS / "turns.txt").write_text(text)
    sys.stdout.write(f"\n{text}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
