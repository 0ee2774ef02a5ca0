"""`swift-loader doctor`: looks at this machine, tries small loaders, and says in words what to change."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence

from swift_loader.cli import diagnosis, facts, trial
from swift_loader.cli.diagnosis import Finding

_WIDTH = 80
_COLORS = {"ok": "32", "advice": "33", "problem": "31"}
_MARK_WIDTH, _NAME_WIDTH = 9, 18
_TEXT_INDENT = " " * (_MARK_WIDTH + _NAME_WIDTH)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="facts, findings and trials as JSON")
    parser.add_argument("--no-trial", action="store_true", help="look only: start no loader")


def run(arguments: argparse.Namespace) -> int:
    """Prints the report; 1 if there is a problem."""
    seen = facts.gather()
    findings = diagnosis.diagnose(seen)
    tried, starts = None, []
    if not arguments.no_trial:
        starts = trial.starts()  # first: a bar may leave a thread, beside which "fork" is refused
        findings.append(of_starts(starts))
        tried = trial.run(max(1, min(2, seen.cores_allowed)))
        findings.append(of_trial(tried))
    if arguments.json:
        told = {
            "facts": dataclasses.asdict(seen),
            "findings": [finding._asdict() for finding in findings],
            "start_methods": [dataclasses.asdict(start) for start in starts],
            "trial": None if tried is None else dataclasses.asdict(tried),
        }
        print(json.dumps(told, indent=2))
    else:
        has_colors = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        print(report(findings, has_colors=has_colors))
    return int(any(finding.verdict == "problem" for finding in findings))


def of_starts(starts: Sequence[trial.Start]) -> Finding:
    """Which start methods work, and how soon their first batch was there."""
    well = [f"{start.method} {start.first_batch_s:.2f} s" for start in starts if not start.failure]
    found = f"first batch of one worker: {', '.join(well)}" if well else "none works"
    failed = [f"start_method={start.method!r} failed: {start.failure}" for start in starts if start.failure]
    return Finding(
        "start methods", "advice" if well and failed else "problem" if failed else "ok", found, " ".join(failed)
    )


def of_trial(tried: trial.Trial) -> Finding:
    """What the trial showed."""
    workers = f"{tried.workers} worker{'s' if tried.workers > 1 else ''}"
    if tried.failure:
        return Finding("a small loader", "problem", f"failed with {workers}", tried.failure)
    return Finding(
        "a small loader", "ok",
        f"{workers}: first batch in {tried.first_batch_s:.2f} s, then {tried.samples_per_s:,.0f} samples/s of 3 kB, "
        f"closed in {tried.close_s * 1000:.0f} ms",
    )  # fmt: skip


def report(findings: Sequence[Finding], *, has_colors: bool) -> str:
    """A block for each finding, at most 80 columns wide, and what all of them come to."""
    blocks = [_block(finding, has_colors=has_colors) for finding in findings]
    return "\n".join([*blocks, "", _verdict(findings)])


def _block(finding: Finding, *, has_colors: bool) -> str:
    mark = f"{finding.verdict:<{_MARK_WIDTH}}"
    if has_colors:
        mark = f"\033[{_COLORS[finding.verdict]}m{mark}\033[0m"
    lines = textwrap.wrap(finding.finding, _WIDTH - len(_TEXT_INDENT))
    lines += textwrap.wrap(finding.advice, _WIDTH - len(_TEXT_INDENT))
    lines += [f"$ {line}" for line in finding.command.splitlines()]
    return f"{mark}{finding.name:<{_NAME_WIDTH}}" + f"\n{_TEXT_INDENT}".join(lines)


def _verdict(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.verdict for finding in findings)
    if counts["problem"]:
        many = "s" if counts["problem"] > 1 else ""
        return f"{counts['problem']} problem{many}: loaders will not work as they should before that is changed."
    if counts["advice"]:
        return "Loaders work here; what is marked as advice costs speed, or may surprise."
    return "All is well."
