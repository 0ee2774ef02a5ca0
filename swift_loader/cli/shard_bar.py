"""How far a command is that goes through many samples: a bar where somebody looks, else a line every ten seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, NamedTuple, Self

from swift_loader.cli import bar
from swift_loader.telemetry.words import counted, duration, number
from swift_loader.telemetry.words import nbytes as in_bytes

_EVERY_S = 10.0
#: A terminal is written to so often at most.
_SHOWN_S = 0.1
_BAR = "{desc} |{bar}| {percentage:3.0f} %{postfix}"


class Far(NamedTuple):
    """How far it is."""

    done: int
    total: int
    unit: str
    shards: int
    nbytes: int
    more: str = ""


class ShardBar:
    """Shows it on standard error; to be called as often as one likes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = self._told_s = time.monotonic()
        self._first: Far | None = None
        self._before: int | None = None
        self._bar: Any = None

    def __call__(self, far: Far) -> None:
        """Shows this, if it is time to."""
        now = time.monotonic()
        if self._before is None:
            self._before = far.done
        if self._first is None or self._first.done == self._before:  # until the first is done workers are starting
            self._first, self._began = far, now
        if sys.stderr.isatty():
            if now - self._told_s >= _SHOWN_S or self._bar is None:
                self._told_s = now
                self._show(far, now)
        elif now - self._told_s >= _EVERY_S:
            self._told_s = now
            said = f"{self._name}: {far.done:,} of {far.total:,} {far.unit}s, {self._rest(far, now)}"
            print(said, file=sys.stderr, flush=True)

    def _show(self, far: Far, now: float) -> None:
        if self._bar is None:
            self._bar = bar.bars()(total=far.total, leave=False, ncols=bar.WIDTH, bar_format=_BAR, desc=self._name)
        self._bar.n = far.done
        self._bar.set_postfix_str(self._rest(far, now))

    def _rest(self, far: Far, now: float) -> str:
        assert self._first is not None
        passed = now - self._began
        done, nbytes = far.done - self._first.done, far.nbytes - self._first.nbytes
        parts = [] if far.unit == "shard" else [counted(far.shards, "shard")]
        parts.append(in_bytes(far.nbytes))
        if done and passed > 0:
            parts.append(f"{number(done / passed)} {far.unit}s/s, {in_bytes(nbytes / passed)}/s")
            parts.append(f"{duration((far.total - far.done) * passed / done)} left")
        return ", ".join([*parts, far.more] if far.more else parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
