"""Training jobs that are killed whole and begun again: do they come to the same end as one that nobody disturbed?

A job is a script, started like a user's: it prints ``step 17`` when it has taken its 17th step of the whole run
(resumed, it counts on), and ``digest <sha256>`` of its weights at its end. With ``--checkpoint PATH`` it writes there
every few steps, and goes on from there if something is there. Knows nothing of frameworks, nor of what a script trains.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.gloo_ranks import free_port
from tests.watching import ROOT, until

#: For a job of two ranks that import torch, on a busy machine.
DEADLINE_S = 150.0
#: What is left of a killed job has so long to vanish. It takes milliseconds on an idle machine.
GONE_WITHIN_S = 30.0

_MARK = "SWIFT_TESTS_JOB"
_STEP = re.compile(r"step (\d+)")
_DIGEST = re.compile(r"digest ([0-9a-f]{64})")


def run(script: Path, *words: str, folder: Path = ROOT) -> str:
    """Runs a job to its end, in ``folder``; gives back the digest that it printed last."""
    return digest_of(lines_of(script, *words, folder=folder))


def lines_of(script: Path, *words: str, folder: Path = ROOT) -> list[str]:
    """Runs a job to its end; gives back all lines that it printed. It must end well and leave no process behind."""
    with _begun(script, *words, folder=folder) as job:
        lines = list(job.lines())
        code = job.launcher.wait(DEADLINE_S)
        assert code == 0, job.told(f"exit code {code}")
        job.check_nothing_is_left()
    return lines


def kill_at(script: Path, *words: str, step: int, folder: Path = ROOT) -> None:
    """Starts a job and kills the whole of it as soon as it has printed ``step``.

    Launcher and ranks get SIGKILL, with all that they started. The loader's own processes get nothing: that they vanish
    by themselves is checked.
    """
    with _begun(script, *words, folder=folder) as job:
        for line in job.lines():
            found = _STEP.fullmatch(line)
            if found is not None and int(found[1]) >= step:
                break
        else:
            raise AssertionError(job.told(f"it ended before step {step}"))
        job.kill()
        job.check_nothing_is_left()


def check_that_it_resumes(script: Path, *words: str, checkpoint: Path, steps: range, seed: int) -> list[str]:
    """A job killed at one of ``steps``, drawn with ``seed``, and begun again ends as one that was left alone.

    Gives back what the undisturbed one printed.
    """
    undisturbed = lines_of(script, *words, folder=checkpoint.parent)
    step = random.Random(seed).choice(steps)
    resumable = (*words, "--checkpoint", str(checkpoint))
    kill_at(script, *resumable, step=step, folder=checkpoint.parent)
    assert checkpoint.exists(), f"killed at step {step}, and there is no checkpoint"
    resumed = lines_of(script, *resumable, folder=checkpoint.parent)
    assert digest_of(resumed) == digest_of(undisturbed), f"other weights after it was killed at step {step}"
    first, whole = steps_of(resumed)[0], steps_of(undisturbed)
    assert first > 1, f"killed at step {step}, it began all over again"
    assert steps_of(resumed) == whole[whole.index(first) :]
    return undisturbed


def digest_of(lines: list[str]) -> str:
    """The digest that was printed last."""
    found = [match[1] for match in map(_DIGEST.fullmatch, lines) if match]
    assert found, f"no digest was printed: {lines[-10:]}"
    return found[-1]


def steps_of(lines: list[str]) -> list[int]:
    """The numbers of the steps that were printed."""
    return [int(match[1]) for match in map(_STEP.fullmatch, lines) if match]


class _Job:
    """A script that runs, and everything that descends from it, known by a mark in the environment."""

    def __init__(self, command: list[str], folder: Path, stderr: IO[bytes]) -> None:
        self._mark = uuid.uuid4().hex
        self._stderr = stderr
        self._seen: list[str] = []
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "MASTER_PORT": str(free_port()),  # Lightning's own choice may be taken before it listens
            _MARK: self._mark,
        }
        self.launcher = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )

    def lines(self) -> Iterator[str]:
        """What the job prints, line by line as it comes, until all that write to it are gone."""
        assert self.launcher.stdout is not None
        fd, rest, deadline = self.launcher.stdout.fileno(), b"", time.monotonic() + DEADLINE_S
        while True:
            readable = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]
            assert readable, self.told(f"not done within {DEADLINE_S} s")
            chunk = os.read(fd, 1 << 16)
            *whole, rest = (rest + chunk).split(b"\n")
            if not chunk and rest:
                whole, rest = [rest], b""
            for line in whole:
                self._seen.append(line.decode(errors="replace").strip())
                yield self._seen[-1]
            if not chunk:
                return

    def kill(self) -> None:
        """SIGKILL for all but the loader's own processes. The launcher is first, or it would see to its ranks."""
        assert self.launcher.poll() is None, self.told("it ended before it could be killed")
        self.launcher.kill()
        until(self._all_others_are_killed, "the end of the launcher and the ranks", GONE_WITHIN_S)

    def _all_others_are_killed(self) -> bool:
        others = [pid for pid in self._living() if not _name(pid).startswith("swift-")]
        for pid in others:
            _kill(pid)
        return not others

    def check_nothing_is_left(self) -> None:
        try:
            until(lambda: not self._living(), "the end of all processes of the job", GONE_WITHIN_S)
        except AssertionError as error:
            left = [f"{pid} {_name(pid)}" for pid in self._living()]
            raise AssertionError(self.told(f"{error}; left are {left}")) from None

    def end(self) -> None:
        """Whatever happened: nothing of the job stays."""
        self.launcher.kill()
        for pid in self._living():
            _kill(pid)
        self.launcher.wait()
        assert self.launcher.stdout is not None
        self.launcher.stdout.close()

    def told(self, what: str) -> str:
        """``what``, and what the job said last."""
        self._stderr.seek(0)
        errors = self._stderr.read().decode(errors="replace")
        out = "\n".join(self._seen[-20:])
        return f"{' '.join(map(str, self.launcher.args))}: {what}\n-- stdout\n{out}\n-- stderr\n{errors[-6000:]}"

    def _living(self) -> list[int]:
        """All processes of the job, orphans too. A zombie has no environment, and so is none of them."""
        mark = f"{_MARK}={self._mark}\0".encode()
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and mark in Path("/proc", name, "environ").read_bytes():
                    found.append(int(name))
        return found


@contextlib.contextmanager
def _begun(script: Path, *words: str, folder: Path) -> Iterator[_Job]:
    with tempfile.TemporaryFile() as stderr:
        job = _Job([sys.executable, str(script), *words], folder, stderr)
        try:
            yield job
        finally:
            job.end()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _name(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "comm").read_text().strip()
    except OSError:
        return ""
