"""What was found: settings to paste, a table, and what it rests on. Pure: looks in, text out."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple, Self

from swift_loader.telemetry.words import number
from swift_loader.tuning import physics
from swift_loader.tuning.looks import TOLERANCE, Choice, Evidence, Look
from swift_loader.tuning.policy import Task

_WIDTH = 80
_LONG = 100
#: What a loader has that is told nothing.
_USUAL = Choice(1)
_NOTHING = Look(0, 0.0, 0.0, 0.0)


class Subject(NamedTuple):
    """Whose loaders these are, as one would write it."""

    dataset: str
    kwargs: str = "{}"
    consumers: int = 1
    arguments: str = ""
    """Further keywords, as they stand in a call."""

    @classmethod
    def of(cls, dataset_class: Any, kwargs: Mapping[str, Any]) -> Self:
        """Names what has a name and can be written; the rest is left to the reader."""
        name, text = getattr(dataset_class, "__name__", ""), repr(dict(kwargs))
        return cls(
            name if name.isidentifier() else "dataset_class",
            text if len(text) <= _LONG and _is_literal(text) else "dataset_kwargs",
        )


class Row(NamedTuple):
    """What is known of one choice."""

    choice: Choice
    batches_per_s: float
    """In the middle of all looks."""
    lowest: float
    highest: float
    samples_per_s: float
    starved: float
    """The share of the time that the consumer waited."""
    busy: float
    """The share of the time that its workers were making batches."""
    looks: int


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The answer.

    Example:
        >>> tuning = loader.tune(consumer_ms=40)  # doctest: +SKIP
        >>> SwiftLoader(Images, {}, 64, 1, **tuning.settings)  # doctest: +SKIP
    """

    choice: Choice
    """The fewest workers that are as good as any number."""
    rows: tuple[Row, ...] = ()
    """All that was looked at, fewest workers first."""
    notes: tuple[str, ...] = ()
    is_whole: bool = False
    """It came to its end; otherwise this is what was known when it was stopped, or the time was over."""
    consumer_s: float = 0.0
    batch_size: int = 1
    cores: float = 1.0
    """That one consumer has."""
    batch_s: float = 0.0
    """What a worker needs for a batch."""
    waiting: float = 0.0
    """The share of that in which it waits for something else than a core."""
    worker_nbytes: int = 0
    took_s: float = 0.0
    usual: Choice = _USUAL
    """With the queues that were set."""
    subject: Subject = field(default_factory=lambda: Subject("Dataset"))

    @property
    def settings(self) -> dict[str, int]:
        """The keywords for `SwiftLoader`."""
        choice = self.choice
        return {
            "worker_per_consumer": choice.workers,
            "worker_threads": choice.threads,
            "data_queue_size": choice.data_queue,
            "message_queue_size": choice.message_queue,
        }

    @property
    def row(self) -> Row | None:
        """What was chosen, as it did."""
        return next((row for row in self.rows if row.choice == self.choice), None)

    @property
    def code(self) -> str:
        """What to paste, folded to 80 columns."""
        subject = self.subject
        said = [f"batch_size={self.batch_size}", f"nb_consumer={subject.consumers}"]
        said += [f"worker_per_consumer={self.choice.workers}"]
        pairs = zip(list(self.settings)[1:], self.choice[1:], _USUAL[1:], strict=True)
        said += [f"{name}={value}" for name, value, default in pairs if value != default]
        said += [subject.arguments] if subject.arguments else []
        line = f"SwiftLoader({subject.dataset}, {subject.kwargs}, {', '.join(said)})"
        if len(line) <= _WIDTH:
            return line
        words = f"{subject.dataset}, {subject.kwargs}, {', '.join(said)},"
        rest = textwrap.wrap(words, _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
        return "\n    ".join(["SwiftLoader(", *rest]) + "\n)"

    @property
    def verdict(self) -> str:
        """What it comes to, in words."""
        row = self.row
        if row is None:
            if not self.batch_s:
                return "Nothing was measured yet."
            return f"A worker takes {1e3 * self.batch_s:.3g} ms for a batch; nothing else was measured yet."
        workers = self.choice.words(self.usual)
        rate = f"{row.batches_per_s:,.1f} batches/s ({row.samples_per_s:,.0f} samples/s)"
        if not self.is_whole:
            return (
                f"Not to its end; so far {workers} gave {rate}, and the consumer waited {row.starved:.0%} of its time."
            )
        if self.consumer_s <= 0:
            return f"{workers} gave {rate}; more brought less than {TOLERANCE:.0%} on top."
        step = f"steps of {1e3 * self.consumer_s:g} ms"
        if row.starved <= TOLERANCE:
            verb = "keeps" if workers == "1 worker" else "keep"
            return f"{workers} {verb} up with {step}: {rate}, and the consumer waited {row.starved:.1%} of its time."
        return (
            f"Nothing keeps up with {step} here: {workers} gave {rate}, the consumer waited {row.starved:.0%} of its "
            f"time, and more brought less than {TOLERANCE:.0%} on top. {self._remedy}"
        )

    @property
    def _remedy(self) -> str:
        if self.waiting > physics.MUCH_WAITING:
            return "What a sample waits for (disk, network) gives no more."
        return f"{self.cores:g} core{'s' if self.cores > 1 else ''} cannot do more: cheaper samples, or more cores."

    def table(self) -> str:
        """A line for each choice, at most 80 columns wide."""
        head = f"  {'workers':>7} {'threads':>7} {'queues':>7} {'batches/s':>10} {'low - high':>17} {'samples/s':>10} "
        lines = [f"{head}{'starved':>8}", "  " + "-" * 72]
        for row in self.rows:
            mark = ">" if row.choice == self.choice else " "
            queues = f"{row.choice.data_queue}/{row.choice.message_queue}"
            spread = f"{number(row.lowest)} - {number(row.highest)}" if row.looks > 1 else ""
            lines.append(
                f"{mark} {row.choice.workers:>7} {row.choice.threads:>7} {queues:>7} {number(row.batches_per_s):>10} "
                f"{spread:>17} {row.samples_per_s:>10,.0f} {row.starved:>8.1%}"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "settings": self.settings,
            "code": self.code,
            "verdict": self.verdict,
            "is_whole": self.is_whole,
            "consumer_ms": 1e3 * self.consumer_s,
            "batch_size": self.batch_size,
            "cores": self.cores,
            "batch_ms": 1e3 * self.batch_s,
            "waiting_share": self.waiting,
            "worker_bytes": self.worker_nbytes,
            "took_s": self.took_s,
            "notes": list(self.notes),
            "rows": [{**row._asdict(), "choice": row.choice._asdict()} for row in self.rows],
        }

    def __str__(self) -> str:
        parts = [self.table(), textwrap.fill(self.verdict, _WIDTH)] if self.rows else [self.verdict]
        parts += [textwrap.fill(note, _WIDTH) for note in self.notes]
        parts += [self.code] if self.rows else []
        return "\n\n".join(parts)


def told(evidence: Evidence, task: Task, subject: Subject, found: Choice | None) -> Tuning:
    """What the looks say; ``found`` is the policy's answer, if it came to one."""
    choice = found or evidence.fewest() or task.base
    rows = tuple(_row(evidence, one) for one in sorted(evidence.looks))
    looks = evidence.hurried.get(task.base) or evidence.looks.get(task.base) or [_NOTHING]
    first = looks[:2][-1]
    return Tuning(
        choice=choice,
        rows=rows,
        notes=(*_shared(subject, task), *_faster(evidence, choice, task.base), *_notes(evidence, choice)),
        is_whole=found is not None,
        usual=task.base,
        consumer_s=task.consumer_s,
        batch_size=task.batch_size,
        cores=task.machine.cores,
        batch_s=first.made_s / max(1, first.batches),
        waiting=first.waiting,
        worker_nbytes=first.worker_nbytes,
        subject=subject,
    )


def _row(evidence: Evidence, choice: Choice) -> Row:
    looks = evidence.looks[choice]
    rates = [look.rate for look in looks]
    samples = [look.samples / look.seconds for look in looks if look.seconds > 0]
    return Row(
        choice, median(rates), min(rates), max(rates), median(samples or [0.0]), evidence.starved(choice),
        evidence.utilisation(choice), len(looks),
    )  # fmt: skip


def _shared(subject: Subject, task: Task) -> list[str]:
    if subject.consumers == 1:
        return []
    cores = f"{task.machine.cores:g} core{'s' if task.machine.cores != 1 else ''}"
    return [f"Measured for one of {subject.consumers} consumers, on its share of this machine: {cores}."]


def _faster(evidence: Evidence, choice: Choice, usual: Choice) -> list[str]:
    """Why what was fastest was not chosen."""
    fastest = max(evidence.looks, key=evidence.rate, default=choice)
    rate = number(evidence.rate(fastest))
    if evidence.rate(fastest) <= evidence.rate(choice) or rate == number(evidence.rate(choice)):
        return []
    if evidence.feeds(choice):
        both = evidence.feeds(fastest)
        why = "the consumer waits for neither, and this is less" if both else "the consumer waits less"
    elif choice < fastest:
        why = "this is less, and so small a gain may be noise"
    else:
        why = "it did better where both were looked at in turns"
    return [f"{fastest.words(usual)} gave more ({rate} batches/s). The answer is {choice.words(usual)} since {why}."]


def _notes(evidence: Evidence, choice: Choice) -> list[str]:
    notes = []
    if choice.threads > 1:
        notes.append(
            "Threads of a worker use one dataset: `swift-loader check` finds out whether yours bears that "
            "(threads=False, or --no-threads, tries none)."
        )
    for failed, failure in evidence.failures.items():
        notes.append(f"{failed.words(_USUAL)} cannot be had: {failure.reason}")
    if (noise := evidence.noise()) > 2 * TOLERANCE:
        notes.append(
            f"Looks at the same loader differed by {noise:.0%}: something else uses this machine. Counts that are as "
            "close as that may be told apart wrongly."
        )
    return notes


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True
