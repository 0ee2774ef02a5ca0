"""One measurement in a process of its own, which is told what by words and JSON, and answers by a line of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_ERROR_LINES = 12
#: A killed process is gone by then.
_END_S = 5.0


class NoAnswer(Exception):
    """The process did not come to its end; says why."""


def answer_of(words: Sequence[str], told: Any, timeout_s: float, folder: Path | None = None) -> dict[str, Any]:
    """What a Python that is started with ``words`` answers.

    It leads a session of its own, all of which is killed afterwards: workers may have outlived it, or been stopped.

    Args:
        words: Of its command line.
        told: Its standard input, as JSON.
        timeout_s: For so long it is waited for.
        folder: Where it runs.

    Raises:
        NoAnswer: if it does not answer.
    """
    child = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, *words],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = child.communicate(json.dumps(told), timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"it was still running after {timeout_s:.0f} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # whoever left its session may hold its pipes
            child.communicate(timeout=_END_S)
    lines = out.strip().splitlines()
    if child.returncode or not lines:
        tail = "\n".join(err.strip().splitlines()[-_ERROR_LINES:])
        raise NoAnswer(f"exit code {child.returncode}\n{tail}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer
