"""One fault after the other, done to torch's DataLoader and to swift_loader alike, and judged by the tests' oracle.

A row runs in a process of its own, which may hang, crash or leave orphans: whoever started it sees that. It prints one
JSON line for each verdict; the last one counts. Both loaders have two workers and give samples in their order.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from benchmarks import trainer
from benchmarks.apart import adopt_orphans, all_gone, children, end_all, workers
from benchmarks.fault_data import Hit, Pictures, Worked, keep_extras
from benchmarks.fault_workers import kill_one
from tests.fault.oracle import BATCH, Delivered, World, delivered, record
from tests.leak_check import Residue, leaks_since

COUNT = 20 * BATCH
TIMEOUT_S = 3.0
SHORT_QUEUES = World("forkserver", 2, in_thread=False).settings


@dataclass(frozen=True)
class Verdict:
    """What a loader did."""

    fine: bool
    words: str

    def say(self) -> Verdict:
        """Prints it, as the verdict until there is a later one."""
        print(json.dumps({"fine": self.fine, "words": self.words}), flush=True)
        return self


@dataclass(frozen=True)
class Row:
    """A fault, by its number and in words."""

    number: str
    fault: str
    run: Callable[[str], Verdict]
    #: A command that runs the row's process, where it needs other surroundings.
    within: tuple[str, ...] = ()
    deadline_s: float = 18.0


@contextmanager
def loading(side: str, dataset: type, /, nb_workers: int = 2, **settings: Any) -> Iterator[Any]:
    """A loader of either side; ``data`` are the dataset's arguments, ``timeout_s`` and ``collate_fn`` as ours are."""
    data = settings.pop("data", {})
    if side == "swift":
        from swift_loader import SwiftLoader

        settings = {"shuffle": False, "seed": 1, **SHORT_QUEUES, "worker_per_consumer": nb_workers, **settings}
        with SwiftLoader(dataset, data, settings.pop("batch_size"), 1, **settings) as loader:
            yield loader
    else:
        import torch
        from torch.utils.data import DataLoader

        settings["timeout"] = settings.pop("timeout_s", 0) if nb_workers else 0
        generator = torch.Generator()
        generator.manual_seed(1)
        size = settings.pop("batch_size", BATCH)
        yield DataLoader(dataset(**data), size, num_workers=nb_workers, generator=generator, **settings)


# Judging --------------------------------------------------------------------------------------------------------------


def judged(
    side: str, dataset: type, data: dict[str, Any], act: Callable[[int], None] | None = None, **settings: Any
) -> Verdict:
    """An epoch with a fault, against one of the same side without workers and faults."""
    way = {key: settings[key] for key in settings if key == "collate_fn"}
    with loading(side, Worked, 0, data={"count": data["count"], "augment": False}, **way) as reference:
        expected = record(reference)
    begun = time.monotonic()
    with loading(side, dataset, data=data, **settings) as loader:
        found, error = _through(loader, data, act)
        took_s = time.monotonic() - begun
    return _verdict(found, expected, error, took_s).say()


def _through(
    loader: Any, data: dict[str, Any], act: Callable[[int], None] | None
) -> tuple[list[Delivered], str | None]:
    """All that comes, also after a first error, which is told in words."""
    found: list[Delivered] = []
    words: str | None = None
    begun = time.monotonic()
    batches = iter(loader)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return found, words
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            if words is not None:
                return found, words
            words = _words_of(error, time.monotonic() - _hit_at(data, begun), data.get("how"))
            Verdict(False, words).say()  # what comes next may be nothing at all
            continue
        found.append(delivered(0, len(found), batch))
        if act is not None:
            act(len(found) - 1)


def _hit_at(data: dict[str, Any], begun: float) -> float:
    """When the dataset did it for the first time."""
    path = Path(data.get("folder", "")) / "0"
    return float(path.read_text()) if path.is_file() else begun


def _words_of(error: BaseException, after_s: float, how: str | None) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error without words
        text = ""
    # What a collate function made is no sample's any more: there it is the place in the batch that can be named.
    thing, pattern = ("place", "extra") if how == "generator" else ("sample", rf"\b(sample|index) {Hit.BAD}\b")
    named = f"names the {thing}" if re.search(pattern, text) else f"names no {thing}"
    size = f", {len(text) / 1e6:.0f} MB of text" if len(text) > 1e6 else ""
    return f"{type(error).__name__} after {spoken(after_s)}, {named}{size}"


def _verdict(found: list[Delivered], expected: list[Delivered], error: str | None, took_s: float) -> Verdict:
    wanted = {one.indices: one.crc for one in expected}
    lost = sum(one.indices not in {other.indices for other in found} for one in expected)
    wrong = sum(one.indices not in wanted or wanted[one.indices] != one.crc for one in found)
    doubled = len(found) - len({one.indices for one in found})
    places = [one.indices for one in found]
    out_of_order = places != sorted(places)
    flaws = [f"{wrong} batches with other bytes"] * bool(wrong) + [f"{doubled} twice"] * bool(doubled)
    flaws += ["out of order"] * out_of_order
    if error is None:
        flaws += [f"{lost} of {len(expected)} batches are lost without a word"] * bool(lost)
        return Verdict(not flaws, "; ".join(flaws) or f"E1, {took_s:.2f} s")
    others = "the other batches come" if lost <= 1 else f"{lost} of {len(expected)} batches are lost"
    fine = lost <= 1 and not flaws and "names the" in error and "MB of text" not in error
    return Verdict(fine, "; ".join([error, others, *flaws]))


def spoken(seconds: float) -> str:
    """A time with two or three digits."""
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


# Workers and samples --------------------------------------------------------------------------------------------------


def hit(how: str, side: str, /, times: int = 1 << 30, **settings: Any) -> Verdict:
    """A sample does it."""
    with TemporaryDirectory() as folder:
        return judged(side, Hit, {"how": how, "folder": folder, "times": times, "count": COUNT}, **settings)


def signalled(number: int, side: str) -> Verdict:
    """A worker gets a signal in the middle of the epoch."""

    def act(step: int) -> None:
        if step == 3:
            os.kill(workers()[0], number)

    return judged(side, Worked, {"count": COUNT, "work_s": 0.001, "augment": False}, act)


def storm(side: str) -> Verdict:
    """A kill every 75 ms."""
    chance, stop = random.Random(1), threading.Event()

    def run() -> None:
        while not stop.wait(0.075):
            kill_one(chance)

    thread = threading.Thread(target=run, name="nemesis")
    thread.start()
    try:
        return judged(side, Worked, {"count": 10 * COUNT, "work_s": 0.002, "augment": False})
    finally:
        stop.set()
        thread.join(5)


def odd_errors(side: str) -> Verdict:
    """Errors that do not travel well, one after the other."""
    each = {how: hit(how, side) for how in ("odd error", "wordless error", "huge error")}
    words = "; ".join(f"{how}: {verdict.words.split(';')[0]}" for how, verdict in each.items())
    return Verdict(all(verdict.fine for verdict in each.values()), words).say()


def larger(side: str) -> Verdict:
    """A batch of one sample that is three times as large as the others; its own bytes are looked at apart."""
    with (
        TemporaryDirectory() as folder,
        loading(
            side, Hit, data={"how": "large", "folder": folder, "times": 1 << 30, "count": 40}, batch_size=1
        ) as loader,
    ):
        begun = time.monotonic()
        sizes = [tuple(batch["pixels"].shape[1:]) for batch in loader]
        took_s = time.monotonic() - begun
    right = sizes == [(9, 8) if index == Hit.BAD else (3, 8) for index in range(40)]
    return Verdict(right, f"E1, {took_s:.2f} s" if right else f"other shapes than expected: {sizes}").say()


def streams(side: str) -> Verdict:
    """The same seed with one worker and with three."""
    runs = []
    for count in (1, 3):
        with loading(side, Worked, count, data={"count": COUNT}) as loader:
            runs.append([(one.indices, one.crc) for one in record(loader)])
    same = runs[0] == runs[1]
    return Verdict(same, "the same bytes" if same else "other random numbers").say()


# The trainer ----------------------------------------------------------------------------------------------------------


def trainer_killed(state: str, side: str) -> Verdict:
    """SIGKILL to the trainer."""
    adopt_orphans()
    took_ms = trainer.killed_ms(side, state, 1.0 if state == "C loop" else 0.1)
    if took_ms is None:
        return Verdict(False, f"workers live on, for more than {trainer.DEADLINE_S:.0f} s").say()
    fine = took_ms <= 1000
    return Verdict(fine, f"all gone after {took_ms:.0f} ms" if fine else f"gone after {took_ms / 1000:.1f} s").say()


def interrupted(side: str) -> Verdict:
    """Ctrl-C, five times; the worst is told."""
    adopt_orphans()
    worst = max(_interrupt(side, 0.1 * number) for number in range(1, 6))
    tracebacks, took_s = worst
    many = "one traceback" if tracebacks == 1 else f"{tracebacks} tracebacks"
    return Verdict(tracebacks == 1 and took_s < 5, f"{many}, all gone after {spoken(took_s)}").say()


def _interrupt(side: str, after_s: float) -> tuple[int, float]:
    with TemporaryFile() as err:
        words = [sys.executable, "-m", "benchmarks.trainer", side, "train"]
        script = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=err, start_new_session=True)
        assert script.stdout is not None
        with script.stdout:
            script.stdout.readline()
            time.sleep(after_s)
            begun = time.monotonic()
            os.killpg(script.pid, signal.SIGINT)
            ended = all_gone(trainer.DEADLINE_S)
        if ended is None:
            end_all(children())
        script.returncode = 0  # reaped above
        err.seek(0)
        return err.read().count(b"Traceback (most recent"), (ended or time.monotonic()) - begun


def terminated(side: str) -> Verdict:
    """SIGTERM to the whole group, ten times."""
    adopt_orphans()
    chance = random.Random(1)
    kept = sum(trainer.checkpoint_kept(side, chance.uniform(0, 0.3)) for _ in range(10))
    return Verdict(kept == 10, f"the checkpoint is kept in {kept} of 10 runs").say()


def dropped(side: str) -> Verdict:
    """The iterator and the loader go out of scope."""
    warnings.simplefilter("ignore", ResourceWarning)

    loader: Any = _unclosed(side)
    batches = iter(loader)
    next(batches)
    begun = time.monotonic()
    del batches, loader
    while workers() and time.monotonic() < begun + 10:
        time.sleep(0.001)
    took_s = time.monotonic() - begun
    return Verdict(took_s < 1, f"workers gone after {spoken(took_s)}").say()


def _unclosed(side: str) -> Any:
    if side == "swift":
        from swift_loader import SwiftLoader

        return SwiftLoader(Worked, {"count": COUNT, "work_s": 0.001}, BATCH, 1, 2)
    from torch.utils.data import DataLoader

    return DataLoader(Worked(COUNT, 0.001), BATCH, num_workers=2)


def cycled(side: str) -> Verdict:
    """Fifty loaders, one after the other."""

    def once() -> None:
        with loading(side, Worked, data={"count": COUNT}) as loader:
            next(iter(loader))

    once()
    before, begun = Residue.take(), time.monotonic()
    for _ in range(50):
        once()
    each_s = (time.monotonic() - begun) / 50
    left = leaks_since(before)
    words = f"nothing grows, {spoken(each_s)} each" if not left else f"{len(left)} things are left: {left[0]}"
    return Verdict(not left, words).say()


# The machine ----------------------------------------------------------------------------------------------------------


def small_shared_memory(side: str) -> Verdict:
    """Batches of 4 MB, where /dev/shm has 8 MB."""
    with loading(side, Pictures, data={"count": COUNT}) as loader:
        return _counted(loader)


def few_descriptors(side: str) -> Verdict:
    """64 descriptors, and all batches are kept."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    try:
        with loading(side, Worked, data={"count": 2 * COUNT}) as loader:
            return _counted(loader)
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        text = str(error)
        return Verdict("64" in text, f"{type(error).__name__}: {text.splitlines()[0][:120]}").say()


def _counted(loader: Any) -> Verdict:
    begun = time.monotonic()
    try:
        kept = list(loader)
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        text = (str(error).splitlines() or [""])[0][:100]
        return Verdict("64" in text, f"{type(error).__name__} after {spoken(time.monotonic() - begun)}: {text}").say()
    seen = [index for batch in kept for index in batch["index"].tolist()]
    right = seen == list(range(len(seen))) and len(seen) >= COUNT
    return Verdict(right, f"E1, {time.monotonic() - begun:.2f} s" if right else "samples are missing").say()


SMALL_SHM = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=8m tmpfs /dev/shm && exec "$@"', "sh")
DEFAULT = "; the timeout as it is by default (torch: none, here 300 s)"
SET = f"; the timeout set to {TIMEOUT_S:g} s"
#: A timeout is for what hangs, not for what dies.
TIMED = {"timeout_s": TIMEOUT_S}

ROWS = (
    Row("A1", "a worker is killed", partial(signalled, signal.SIGKILL)),
    Row("A2", "a worker is killed every 75 ms", storm),
    Row("A5", "a sample calls `os._exit(0)`, once", partial(hit, "exit 0", times=1)),
    Row("A6", "a sample calls `os._exit(1)`, once", partial(hit, "exit 1", times=1)),
    Row("A7", "a sample crashes the process (SIGSEGV), once", partial(hit, "segfault", times=1)),
    Row("A8", "a sample crashes the process each time", partial(hit, "segfault")),
    Row("A9", "a worker is stopped (SIGSTOP)", partial(signalled, signal.SIGSTOP)),
    Row("A11", "a sample sleeps for ever, once" + DEFAULT, partial(hit, "sleep", times=1)),
    Row("A11 t", "a sample sleeps for ever, once" + SET, partial(hit, "sleep", times=1, **TIMED)),
    Row("A12 t", "a sample hangs in a C call, once" + SET, partial(hit, "C loop", times=1, **TIMED)),
    Row("B1", "a sample raises", partial(hit, "raise")),
    Row("B2", "a sample raises an error with a constructor of its own, without words, or of 100 MB", odd_errors),
    Row(
        "B3",
        "a sample cannot be pickled (a generator, let through by a collate function)",
        partial(hit, "generator", collate_fn=keep_extras),
    ),
    Row("B5", "a sample is three times as large as the others", larger),
    Row("B6", "a sample has another shape", partial(hit, "shape")),
    Row("B6 d", "a sample has another dtype", partial(hit, "dtype")),
    Row("C1 i", "the trainer is killed, its workers are idle", partial(trainer_killed, "idle"), deadline_s=45),
    Row("C1 b", "the trainer is killed, its workers are busy", partial(trainer_killed, "busy"), deadline_s=45),
    Row("C1 c", "the trainer is killed, its workers are in a C call", partial(trainer_killed, "C loop"), deadline_s=45),
    Row("C1 s", "the trainer is killed, its workers are stopped", partial(trainer_killed, "stopped"), deadline_s=45),
    Row("C1 o", "the trainer is killed while its loader starts", partial(trainer_killed, "start"), deadline_s=45),
    Row("C1 e", "the trainer is killed while its loader closes", partial(trainer_killed, "close"), deadline_s=45),
    Row("C4", "Ctrl-C", interrupted, deadline_s=90),
    Row("C6", "SIGTERM to the whole job, whose trainer saves a checkpoint", terminated, deadline_s=200),
    Row("C10", "the loader is dropped in mid-epoch", dropped),
    Row("C11", "50 loaders are started and closed", cycled, deadline_s=90),
    Row("D1", "/dev/shm has 8 MB, batches 4", small_shared_memory, within=SMALL_SHM),
    Row("D4", "64 descriptors, 40 batches are kept", few_descriptors),
    Row("R", "one seed, with one worker and with three", streams),
)
