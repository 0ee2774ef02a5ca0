"""Whether threads may ask the dataset for samples at the same time, as ``worker_threads`` has them do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from swift_loader.testing.determinism import differing, told
from swift_loader.testing.lab import THREADS, Lab, failures
from swift_loader.testing.report import Finding, Verdict
from swift_loader.testing.walk import Blocked, told_failure

NAME = "threads"
_LOCK = "give each thread its own (threading.local), read with os.pread, or hold a lock; or leave worker_threads at 1"


def check(lab: Lab) -> Iterator[Finding]:
    """Compares what threads make with what one thread makes, in what does not depend on chance."""
    alone, walk = lab.closely(), lab.threaded()
    threads = f"worker_threads={THREADS}"
    # Not asked for here, it may stay as it is.
    verdict: Verdict = "problem" if lab.subject.config.worker_threads > 1 else "advice"
    if walk.losses:
        text = f"with {threads} a worker {walk.losses[0].how}"
        yield Finding(NAME, verdict, text, _LOCK, walk.losses[0].detail)
        return
    before = failures([alone, *lab.made("apart")])
    raised = {index: one for index, one in failures([walk]).items() if index not in before}
    if raised:
        index, one = next(iter(raised.items()))
        assert one.failure is not None
        text = f"with {threads} sample {index} raises {told_failure(one.failure)}"
        yield Finding(NAME, verdict, text, _LOCK, one.failure.traceback)
        return
    together = walk.of(0)
    if not together:
        raise Blocked("no sample came")
    by_chance = {**differing(alone.of(0), alone.of(0)), **differing(alone.of(0), alone.of(1))}
    with contextlib.suppress(Blocked):  # what differs from worker to worker does so whoever asks
        by_chance |= differing(alone.of(0), lab.apart().of(0))
    other = {path: at for path, at in differing(alone.of(0), together).items() if path not in by_chance}
    if other:
        yield Finding(NAME, verdict, f"{told(other)}: not the same with {threads}", _LOCK)
    elif drawn := sorted({name for one in alone.of(0) for name in one.drew_from}):
        yield Finding(
            NAME, "problem" if verdict == "problem" else "ok",
            f"the same with {threads}, but for what it draws from {' and '.join(drawn)}, which threads share",
            "with worker_threads, draw from worker_info().rng instead",
        )  # fmt: skip
    elif by_chance:
        yield Finding(NAME, "ok", f"with {threads} the same, but for what depends on chance anyway")
    else:
        yield Finding(NAME, "ok", f"the same bytes with {threads} ({len(together)} samples)")
