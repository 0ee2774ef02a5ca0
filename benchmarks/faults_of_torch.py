"""The same faults for torch's DataLoader and for swift_loader, side by side: what a training sees of each.

Measures: rows of faults that torch's loader can be given too, each with both loaders in a process of its own that may
take 15 s ("no answer": it said nothing in that time). One verdict for both, by the tests' oracle: "E1" means that every
batch came once, in order, with the bytes of a run without faults. Two workers, samples of 1 ms, default settings but
for what the row says (ours with short queues, so that a fault meets work).

Leaves out: what torch's loader has no counterpart for (caches, shards, servers); persistent workers; spawn.

Command: `python -m benchmarks.faults_of_torch` (about five minutes; `--rows A1,B3` for some). The outcome is
`results/faults_of_torch.json` and the table of the page swift_loader/docs/faults.md.

Caveat: one run of each row, but for those that say otherwise. What torch does after a killed worker is a matter of
luck: it raised, raised and then hung, or lost more batches, from run to run. Row A2 needs a machine that is not busy:
where a worker cannot be started and make a batch between two kills, ours is too slow for the deadline, or raises
PoisonedTicket.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.apart import Ended, run_apart
from benchmarks.duel import RESULTS, say
from benchmarks.fault_figures import put_between
from benchmarks.fault_rows import ROWS, Row
from benchmarks.faults import PAGE

SIDES = ("torch", "swift")


def main() -> int:
    """Runs the rows; the exit status says nothing about who did well."""
    parser = argparse.ArgumentParser(description="The same faults for torch's DataLoader and for swift_loader.")
    parser.add_argument("--rows", default="", help="their numbers, separated by commas")
    parser.add_argument("--out", type=Path, default=None, help="a JSON file instead of the results and the page")
    parser.add_argument("--here", choices=SIDES, help="run the row in this very process, with this loader")
    given = parser.parse_args()
    known = {row.number: row for row in ROWS}
    chosen = [known[number] for number in given.rows.split(",")] if given.rows else ROWS
    if given.here:
        for row in chosen:
            verdict = row.run(given.here)
            print(json.dumps({"fine": verdict.fine, "words": verdict.words, "row": row.number}), flush=True)
        return 0
    begun, load = time.monotonic(), os.getloadavg()[0]
    outcomes = [outcome_of(row) for row in chosen]
    record = {
        "title": "Faults: torch's DataLoader and swift_loader",
        "command": "python -m benchmarks.faults_of_torch",
        "commit": machine.commit(),
        "machine": machine.facts(),
        "seed": 1,
        "seconds": round(time.monotonic() - begun, 1),
        "load_before": round(load, 2),
        "counts": {side: sum(outcome[side]["fine"] for outcome in outcomes) for side in SIDES}
        | {"rows": len(outcomes)},
        "rows": outcomes,
    }
    text = json.dumps(record, indent=1) + "\n"
    if given.out is not None:
        given.out.write_text(text)
    elif not given.rows:
        (RESULTS / "faults_of_torch.json").write_text(text)
        facts = machine.facts()
        run = f"{record['seconds']:.0f} s, load before {load:.1f}, commit {record['commit']}"
        below = f"{run}, torch {facts['torch']}, {facts['cores']} cores"
        put_between(PAGE, "table against torch", f"{as_markdown(outcomes)}\n{below}\n")
    sys.stdout.write("\n" + as_markdown(outcomes))
    return 0


def outcome_of(row: Row) -> dict[str, Any]:
    """What each loader did."""
    found: dict[str, Any] = {"row": row.number, "fault": row.fault}
    for side in SIDES:
        say(f"{row.number}: {row.fault}; {side}")
        words = ["benchmarks.faults_of_torch", "--rows", row.number, "--here", side]
        found[side] = as_verdict(run_apart(words, row.deadline_s, row.within))
    return found


def verdicts_in(out: str) -> list[dict[str, Any]]:
    """All that was said; what names its row was said at the row's end."""
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"fine"')]


def as_verdict(ended: Ended) -> dict[str, Any]:
    """What a process said of itself, and what became of it."""
    lines = verdicts_in(ended.out)
    found = lines[-1] if lines else {"fine": False, "words": ""}
    words = [found["words"]] if found["words"] else []
    if ended.code is None:
        words.append("then it hangs" if words else "no answer in 15 s")
    elif ended.code < 0:
        words.append(f"the training process dies of {signal.Signals(-ended.code).name}")
    elif ended.code or not lines:
        last = ended.err.strip().splitlines()[-1:] or [f"exit code {ended.code}"]
        words.append(f"the training process ends: {last[0][:120]}")
    elif ended.left:
        words.append(f"{ended.left} processes are left behind")
    return {"fine": found["fine"] and ended.code == 0 and not ended.left, "words": "; ".join(words)}


def as_markdown(outcomes: Sequence[dict[str, Any]]) -> str:
    """The table of the page."""
    lines = ["| | fault | torch's DataLoader does | swift_loader does |", "|---|---|---|---|"]
    for outcome in outcomes:
        cells = [outcome[side]["words"].replace("|", "/").replace("\n", " ") for side in SIDES]
        lines.append(f"| {outcome['row']} | {outcome['fault']} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
