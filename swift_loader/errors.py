"""Everything that swift_loader raises, by cause, and the report that carries an error out of another process.

    SwiftLoaderError
      ConfigError(ValueError)   a wrong setting, found before anything was started
      LoaderClosed              used after close()
      DataError                 the dataset or the collate raised; the worker's traceback is the cause
      LayoutError               samples do not fit each other
      WorkerError               WorkerDied, WorkerHung, WorkerStartFailed, PoisonedTicket
      RankMismatch              ranks disagree on plan or seed
      ShardError, StoreError    corrupt or missing shard or cache entry
      StreamError               AuthRejected, PeerLost, ProtocolMismatch

A message says what happened, where, the number that was needed and the one that was there, and what to do.
This room knows nothing of the others.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import Self

__all__ = [
    "AuthRejected",
    "ConfigError",
    "DataError",
    "FailureReport",
    "LayoutError",
    "LoaderClosed",
    "PeerLost",
    "PoisonedTicket",
    "ProtocolMismatch",
    "RankMismatch",
    "RemoteTraceback",
    "ShardError",
    "StoreError",
    "StreamError",
    "SwiftLoaderError",
    "WorkerDied",
    "WorkerError",
    "WorkerHung",
    "WorkerStartFailed",
]


class SwiftLoaderError(Exception):
    """The root of all errors of this package."""


class ConfigError(SwiftLoaderError, ValueError):
    """A setting is wrong; nothing was started."""


class LoaderClosed(SwiftLoaderError):
    """The loader was used after ``close()``."""


class DataError(SwiftLoaderError):
    """The dataset, the collate or the encoder raised; its own error is the ``__cause__``."""


class LayoutError(SwiftLoaderError):
    """Samples of one batch do not fit each other, or a batch does not fit what is allowed."""


class WorkerError(SwiftLoaderError):
    """A worker process failed as a process."""


class WorkerDied(WorkerError):
    """A worker ended without saying goodbye."""


class WorkerHung(WorkerError):
    """A worker made no progress for too long."""


class WorkerStartFailed(WorkerError):
    """A worker could not be started, or could not build its dataset."""


class PoisonedTicket(WorkerError):
    """One batch killed several workers in a row."""


class RankMismatch(SwiftLoaderError):
    """Ranks of one training job were given different settings."""


class ShardError(SwiftLoaderError):
    """A shard is corrupt or missing."""


class StoreError(SwiftLoaderError):
    """A cache entry is corrupt or missing."""


class StreamError(SwiftLoaderError):
    """Talking to a data server failed."""


class AuthRejected(StreamError):
    """The data server refused the key."""


class PeerLost(StreamError):
    """The other side of a stream went away."""


class ProtocolMismatch(StreamError):
    """The two sides of a stream speak different versions."""


class RemoteTraceback(Exception):
    """Stands as ``__cause__`` for an error of another process; prints that process's traceback."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


#: An error's text is cut to this length before it leaves its process: a message may be a gigabyte long.
MAX_TEXT = 32 * 1024


@dataclass(frozen=True, slots=True)
class FailureReport:
    """An error on its way out of the process where it happened: always sendable, whatever was raised there."""

    stage: str
    """What was being done: "build the dataset", "fetch", "collate", "encode"."""
    type_name: str
    text: str
    traceback: str
    index: int | None = None
    """The sample that was being fetched, where one was."""
    pickled: bytes | None = None
    """The exception itself, where it survives a round trip through pickle."""

    @classmethod
    def of(cls, error: BaseException, stage: str, index: int | None = None) -> Self:
        """Describes ``error``; never raises, even where the error's own methods do."""
        return cls(stage, type(error).__qualname__, _text_of(error), _traceback_of(error), index, _pickle_of(error))

    def exception(self) -> BaseException:
        """The original exception where it could travel (its cause prints the worker's traceback), else a stand-in."""
        remote = RemoteTraceback(self.traceback)
        if self.pickled is None:
            return remote
        try:
            error = pickle.loads(self.pickled)  # noqa: S301 - written by our own worker, over an anonymous socket
        except Exception:  # noqa: BLE001 - whatever its class does here, the text still tells what happened
            return remote
        if not isinstance(error, BaseException):
            return remote
        error.__cause__ = remote
        return error

    def describe(self) -> str:
        """One line: the stage, the sample and the error."""
        where = "" if self.index is None else f" sample {self.index}"
        return f"{self.stage}{where}: {self.type_name}: {self.text}"


def _text_of(error: BaseException) -> str:
    try:
        return _cut(str(error))
    except Exception as second:  # noqa: BLE001 - a broken __str__ must not hide the error
        return f"(its text cannot be had: {type(second).__name__})"


def _traceback_of(error: BaseException) -> str:
    try:
        return _cut("".join(traceback.format_exception(error)))
    except Exception:  # noqa: BLE001 - see _text_of
        frames = "".join(traceback.format_tb(error.__traceback__))
        return _cut(f"Traceback (most recent call last):\n{frames}{type(error).__qualname__}\n")


def _pickle_of(error: BaseException) -> bytes | None:
    try:
        data = pickle.dumps(error)
    except Exception:  # noqa: BLE001 - the text goes instead
        return None
    # Loading happens in the trainer, where it may fail too: that is caught there. A huge one is not sent.
    return data if len(data) <= MAX_TEXT else None


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n... {len(text) - MAX_TEXT} characters left out ...\n{text[-half:]}"
