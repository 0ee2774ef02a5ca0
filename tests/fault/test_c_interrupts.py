"""Rows C4 and C5 of the faults: Ctrl-C, once, twice and thrice, at any moment; a thousand of them: ``-m soak``.

The trainers are forked in a nursery (tests/fault/interrupted.py), which draws the moments from a seed.
"""

from __future__ import annotations

import json
import signal
import statistics
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fault.soaked import Soak
from tests.slow import slow
from tests.watching import told_by, warm_python

#: Promised: 1 s. A test on a busy machine fails later.
BOUND_S = 5.0
#: What our side would say if it had noticed: tracebacks of workers and servers, errors in finalizers, leaks.
OURS = ("swift-worker", "in _become_worker", "in serve", "Exception ignored", "leaked", "resource_tracker", "Fatal")


def trainers(*words: str) -> Iterator[dict[str, Any]]:
    """What became of interrupted trainers, one by one."""
    return told_by("-m", "tests.fault.interrupted", *words)


def wrong(one: dict[str, Any]) -> list[str]:
    """What should not be so about one that was interrupted, in words."""
    words, said, times = [], one["said"], one["case"][-1]
    # One that comes while an error is handled, as in `Path.exists`, is told by Python together with that error.
    last = said.rpartition("\nDuring handling of the above exception, another exception occurred:\n\n")[2]
    if one["code"] != -signal.SIGINT:
        words.append(f"its exit code is {one['code']}")
    if one["seconds"] > BOUND_S:
        words.append(f"it ended after {one['seconds']} s")
    is_one = last.count("Traceback") == said.count("KeyboardInterrupt\n") == 1 and said.endswith(
        "\nKeyboardInterrupt\n"
    )
    if times == 1 and not is_one:
        words.append("it did not say one KeyboardInterrupt, and nothing else")
    # After the second one Python itself has something to say of what it was in the middle of.
    words += [f"it speaks of {word!r}" for word in OURS[: 3 if times > 1 else None] if word in said]
    return words


def check(one: dict[str, Any]) -> None:
    assert not wrong(one), f"{one['case']} interrupted at {one['at_s']}: {wrong(one)}\n{one['said']}"


@pytest.mark.parametrize("rounds", [2, slow(12)])
def test_c4_c5_ctrl_c_gives_one_traceback_and_ends_all_at_any_moment(rounds: int):
    said = warm_python("-m", "tests.fault.interrupted", "--seed", "3", "--rounds", str(rounds))
    told = list(map(json.loads, said.splitlines()))
    assert len(told) == rounds
    for one in told:
        check(one)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"code": 0}, "exit code"),
        ({"said": "KeyboardInterrupt\n"}, "did not say one"),
        ({"said": "Traceback\nException ignored in x\nKeyboardInterrupt\n"}, "Exception ignored"),
        ({"said": "Traceback\nKeyboardInterrupt\nTraceback\nKeyboardInterrupt\n"}, "did not say one"),
        ({"seconds": 9.0}, "ended after"),
    ],
)
def test_c4_the_judgement_of_an_interrupted_trainer_can_fail(changed: dict[str, Any], word: str):
    well = {"case": ["fork", "quick", "loop", 1], "code": -2, "seconds": 0.1, "said": "Traceback\nKeyboardInterrupt\n"}
    assert not wrong(well)
    handled = "Traceback\nOSError\n\nDuring handling of the above exception, another exception occurred:\n\n"
    assert not wrong({**well, "said": handled + well["said"]})
    assert word in " ".join(wrong({**well, **changed}))


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_c4_c5_soak_interrupts():
    soak = Soak("interrupts", "Ctrl-C once, twice and thrice at random moments: seconds until all were gone", seed=4)
    told = []
    for one in trainers("--seed", str(soak.seed), "--rounds", "1000"):
        check(one)
        told.append(one)
        soak.progress(f"{len(told)} trainers interrupted")
        if soak.seconds > 1400:
            break
    seconds = sorted(one["seconds"] for one in told)
    soak.keep(
        trainers=len(told),
        interrupted_once=sum(one["case"][-1] == 1 for one in told),
        median_s=statistics.median(seconds),
        p99_s=seconds[int(len(seconds) * 0.99)],
        most_s=seconds[-1],
    )
