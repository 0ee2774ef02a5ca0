"""Runs every question, one after the other, with a progress bar, and prints what was reached on one page.

Command: `python -m benchmarks.all` (about twenty minutes; `--quick` for a smoke run). The page is kept as
`results/all.txt`. Each question can be run alone as well: `python -m benchmarks.<question>`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tqdm import tqdm

from benchmarks import duel
from benchmarks.question import Goal, Question
from benchmarks.table import WIDTH, bound, row, short

MODULES = (
    "transport",
    "overhead",
    "decoding",
    "epoch_gap",
    "first_batch",
    "script_start",
    "consumer_cpu",
    "worker_memory",
    "memory",
    "waiting",
    "nested",
    "torch_samples",
    "stragglers",
    "cached",
    "cached_read",
    "shards",
    "shard_write",
    "shards_there",
    "shard_read",
)
OPTIONS = {
    "transport": "--dtype",
    "cached_read": "--samples",
    "memory": "--load",
    "shards": "--samples",
    "shard_write": "--of",
    "shards_there": "--of",
    "shard_read": "--of",
}


def main() -> int:
    """Run all questions; the exit status is 1 when a case failed."""
    parser = argparse.ArgumentParser(description="Run every benchmark.")
    duel.common_arguments(parser)
    given = parser.parse_args()
    planned: list[tuple[Question, duel.Order]] = []
    for name in MODULES:
        module: ModuleType = importlib.import_module(f"benchmarks.{name}")
        option = OPTIONS.get(name)
        for question in module.QUESTIONS:
            selector = () if option is None else (option, question.variant)
            settings = duel.settings_from(question, given)
            planned.append((question, duel.order_from(f"benchmarks.{name}", selector, settings, given)))
    total = sum(1 for question, order in planned for _ in duel.schedule(question, order))
    status = 0
    with tqdm(total=total, unit="case", file=sys.stderr) as bar:
        for question, order in planned:
            status |= duel.answer(question, order, progress=lambda text: step(bar, text))
    records = [json.loads((order.folder / f"{question.name}.json").read_text()) for question, order in planned]
    write_page(records, planned[0][1].folder / "all.txt")
    return status


def step(bar: Any, text: str) -> None:
    """Move the bar on as a case begins."""
    bar.set_description(text)
    bar.update()


def write_page(records: list[dict[str, Any]], path: Path) -> None:
    """Every figure that has something to reach, on one page."""
    lines = [row("goal (median of ratios)", ["median", "lowest", "highest", "to reach", ""]), "-" * WIDTH]
    for record in records:
        lines += ["", record["title"][:WIDTH]]
        for goal in record["goals"]:
            limits = Goal("", "", at_least=goal["at_least"], at_most=goal["at_most"])
            if goal["reached"] is not None:
                cells = [short(goal[key]) for key in ("median", "lowest", "highest")]
                lines.append(row("  " + goal["text"], [*cells, bound(limits), "yes" if goal["reached"] else "NO"]))
    text = "\n".join(lines) + "\n"
    path.write_text(text)
    sys.stdout.write("\n" + text)


if __name__ == "__main__":
    raise SystemExit(main())
