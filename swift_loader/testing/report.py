"""What the checks found: findings, and the page that tells them. Text and figures only."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from swift_loader.telemetry.words import counted

Verdict = Literal["ok", "advice", "problem", "skipped"]

_MARKS = {"ok": "ok", "advice": "advice", "problem": "PROBLEM", "skipped": "-"}
_WIDTH = 80
_INDENT = 23


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check has to say."""

    check: str
    """The name of the check, as ``only=`` takes it."""
    verdict: Verdict
    """"problem": it will go wrong; "advice": it works, and could do better; "skipped": it was not looked at."""
    text: str
    remedy: str = ""
    """What to change."""
    detail: str = ""
    """More than a line: the stack of a worker, a traceback."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by name, in the unit that the name ends with."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found. Printed, it is a page of 80 columns."""

    name: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What will go wrong."""
        return self._with("problem")

    @property
    def advice(self) -> tuple[Finding, ...]:
        """What works and could do better."""
        return self._with("advice")

    @property
    def skipped(self) -> tuple[Finding, ...]:
        """What was not looked at, and why."""
        return self._with("skipped")

    @property
    def is_ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    @property
    def figures(self) -> dict[str, float]:
        """All that was measured, as ``"speed.median_s"``."""
        return {f"{one.check}.{name}": value for one in self.findings for name, value in one.figures.items()}

    def assert_ok(self) -> None:
        """For tests: does nothing, or raises the page.

        Raises:
            AssertionError: if there is a problem.
        """
        if not self.is_ok:
            details = [f"\n{one.check}:\n{one.detail}" for one in self.problems if one.detail]
            raise AssertionError("\n".join([str(self), *details]))

    def __getitem__(self, check: str) -> tuple[Finding, ...]:
        """What one check has found."""
        return tuple(one for one in self.findings if one.check == check)

    def __str__(self) -> str:
        lines = [*textwrap.wrap(f"{self.name}: {self._sum()} in {self.seconds:.1f} s", _WIDTH), ""]
        told = ""
        for (verdict, text), group in groupby(self.findings, lambda one: (one.verdict, one.text)):
            alike = list(group)
            finding = alike[0]
            if verdict == "skipped" and len(alike) > 1:
                checks = ", ".join(one.check for one in alike)
                finding = dataclasses.replace(finding, check="", text=f"not looked at: {checks}. {_capital(text)}")
            name = "" if finding.check == told else finding.check
            told = finding.check
            lines += _lines(finding, name)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Report of {self.name}: {self._sum()}>"

    def _sum(self) -> str:
        problems, pieces, left = len(self.problems), len(self.advice), len(self.skipped)
        told = [counted(problems, "problem") if problems else "no problem"]
        told += [counted(pieces, "piece of advice", "pieces of advice")] if pieces else []
        told += [f"{left} not looked at"] if left else []
        return ", ".join(told)

    def _with(self, verdict: Verdict) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.verdict == verdict)


def _lines(finding: Finding, name: str) -> list[str]:
    indent = " " * _INDENT
    # Paths and settings stay whole: whoever copies one has all of it.
    wrap = textwrap.TextWrapper(_WIDTH, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)
    wrap.initial_indent = f" {_MARKS[finding.verdict]:<8} {name:<{_INDENT - 10}}"
    lines = wrap.wrap(finding.text)
    if finding.remedy:
        wrap.initial_indent, wrap.subsequent_indent = f"{indent}-> ", f"{indent}   "
        lines += wrap.wrap(finding.remedy)
    return lines


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def name_of(path: str) -> str:
    """A leaf's path as it is said: ``sample['image']`` is image."""
    key = re.fullmatch(r"sample(?:\['([^']+)'\]|\.(\w+))", path)
    return (key.group(1) or key.group(2)) if key else path
