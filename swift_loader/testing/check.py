"""`check_dataset`: runs the checks and gathers what they find."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from time import monotonic
from typing import Any, Unpack

from swift_loader.errors import ConfigError
from swift_loader.settings.arguments import Settings
from swift_loader.settings.checks import meant
from swift_loader.testing import building, determinism, faults, hashing, memory, sending, speed, threads
from swift_loader.testing import samples as samples_
from swift_loader.testing.lab import Lab
from swift_loader.testing.report import Finding, Report
from swift_loader.testing.subject import Source, Subject
from swift_loader.testing.walk import Blocked, CannotStart, NotInTime

#: In the order of the page.
CHECKS: dict[str, Callable[[Lab], Iterator[Finding]]] = {
    "sending": sending.check,
    "building": building.check_building,
    "length": building.check_length,
    "samples": samples_.check,
    "determinism": determinism.check,
    "hashing": hashing.check,
    "threads": threads.check,
    "speed": speed.check,
    "memory": memory.check,
    "faults": faults.check,
}


def check_dataset(
    dataset: Any,
    dataset_kwargs: dict[str, Any] | None = None,
    *,
    batch_size: int = 32,
    only: str | Collection[str] = (),
    samples: int = 64,
    seconds: float = 20.0,
    **settings: Unpack[Settings],
) -> Report:
    """Finds out what will go wrong with a dataset in workers, and what could go better.

    The dataset runs in child processes: it may crash or hang there, and that is what is then told. On a terminal, a
    line on standard error says which check is at work.

    Args:
        dataset: A class, with its arguments, or a function that makes the dataset, or the dataset itself.
        dataset_kwargs: The arguments.
        batch_size: As `SwiftLoader`'s.
        only: Names of checks; all by default.
        samples: How many are looked at closely; fewer where they take long.
        seconds: About how long it may take in all. What there was no time for is told as not looked at.
        **settings: As `SwiftLoader`'s: collate_fn, worker_init, ragged, share_dataset, start_method, ...

    Raises:
        ConfigError: if an argument is wrong, or is no map-style dataset.

    Example:
        >>> from swift_loader.testing import check_dataset
        >>> check_dataset(Images, {"folder": "train"}).assert_ok()  # doctest: +SKIP
    """
    wanted = _wanted(only)
    if not samples > 0 or not seconds > 0:
        raise ConfigError(f"samples and seconds must be above 0, not {samples!r} and {seconds!r}")
    subject = Subject.of(Source.of(dataset, dataset_kwargs), batch_size, settings)
    begun = monotonic()
    lab = Lab(subject, samples, seconds)
    findings: list[Finding] = []
    for place, name in enumerate(wanted):
        _tell(f"{subject.name}: {name} ({place + 1} of {len(wanted)})")
        found = list(_found(name, lab))
        lab.told |= {one.check for one in found if one.verdict == "problem"}
        findings += found
    _tell("")
    return Report(subject.name, tuple(findings), monotonic() - begun)


def _found(name: str, lab: Lab) -> Iterator[Finding]:
    try:
        yield from CHECKS[name](lab)
    except NotInTime:
        yield Finding(name, "skipped", "it takes longer to build than there was time left: raise seconds=")
    except CannotStart:
        yield Finding(name, "skipped", "it cannot be built")
    except Blocked as reason:
        yield Finding(name, "skipped", str(reason))


def _wanted(only: str | Collection[str]) -> list[str]:
    names = [only] if isinstance(only, str) else list(only)
    for name in names:
        if name not in CHECKS:
            raise ConfigError(f"there is no check {name!r}{meant(name, CHECKS)} There are: {', '.join(CHECKS)}")
    return [name for name in CHECKS if name in names or not names]


def _tell(words: str) -> None:
    """One line that is written over, where somebody looks at it."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{words[:79]}")
        sys.stderr.flush()
