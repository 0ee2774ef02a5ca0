"""Everything that swift_loader raises, by cause, and the report that carries an error out of another process.

    SwiftLoaderError
      ConfigError(ValueError)   a wrong setting, found before anything was started
      LoaderClosed              used after close()
      DataError                 the dataset or the collate raised; the worker's traceback is the cause
      LayoutError               samples do not fit each other
      NoRoom(MemoryError)       memory, descriptors or an allowed size are short
      ShardError                a set of shards is damaged, hostile, or not what was asked for
      WorkerError               WorkerDied, WorkerHung, WorkerStartFailed, PoisonedTicket
      RankMismatch              ranks disagree on plan or seed
      PeerError                 a server, or a client, on this machine or another
        PeerLost                it does not answer, or does not know any more what it was asked for
        ProtocolError           what it says is no word of the protocol: damaged, hostile, or not meant for us
        ProtocolMismatch        it speaks another version, or serves another loader

A message says what happened, where, the number that was needed and the one that was there, and what to do. What it is
made of are attributes too, so nobody has to read sentences: ``except DataError as error: bad.append(error.index)``.
This room knows nothing of the others.
"""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, Self

__all__ = [
    "ConfigError",
    "DataError",
    "FailureReport",
    "LayoutError",
    "LoaderClosed",
    "NoRoom",
    "PeerError",
    "PeerLost",
    "PoisonedTicket",
    "ProtocolError",
    "ProtocolMismatch",
    "RankMismatch",
    "RemoteTraceback",
    "ShardError",
    "SwiftLoaderError",
    "WorkerDied",
    "WorkerError",
    "WorkerHung",
    "WorkerStartFailed",
]


class SwiftLoaderError(Exception):
    """The root of all errors of this package."""

    replay: str | None = None
    """Where a batch could not be made: what to type to make it again, in one process."""
    consumer: int | None = None
    worker: int | None = None
    """Whose: numbers among the consumers, and among the workers of one."""
    epoch: int | None = None
    step: int | None = None
    index: int | None = None
    """The sample, where it is known which."""
    stage: str | None = None
    """What was being done: "build the dataset", "fetch", "collate", "encode"."""

    def sentence(self) -> str:
        """What happened."""
        return super().__str__()

    def __str__(self) -> str:
        hint = "" if self.replay is None else f"\nThe same batch again, in one process: {self.replay}"
        return self.sentence() + hint


class ConfigError(SwiftLoaderError, ValueError):
    """A setting is wrong; nothing was started."""


class LoaderClosed(SwiftLoaderError):
    """The loader was used after ``close()``."""


class DataError(SwiftLoaderError):
    """The dataset, the collate or the encoder raised; its own error is the ``__cause__``."""


class LayoutError(SwiftLoaderError):
    """Samples of one batch do not fit each other."""


class NoRoom(SwiftLoaderError, MemoryError):
    """There is no room for a batch, or for what the loader needs: in memory, in descriptors, or in what is allowed."""

    needed: int | None = None
    allowed: int | None = None
    """In bytes, or descriptors."""

    @classmethod
    def of(cls, text: str, needed: int, allowed: int) -> Self:
        """With its figures."""
        error = cls(text)
        error.needed, error.allowed = needed, allowed
        return error


class ShardError(SwiftLoaderError):
    """A set of shards is damaged, or made to harm, or cannot be written as asked.

    Who finds it knows the place in what it reads; who had it read fills in the shard and the set, and raises it again.
    """

    set: str | None = None
    """The folder or the address of all shards."""
    shard: str | None = None
    """The name of one, or of a catalog."""
    offset: int | None = None
    """The byte in it at which the trouble begins."""
    key: str | None = None
    """The sample's."""
    expected: object = None
    found: object = None
    """What should have been there, and what was."""

    @classmethod
    def at(cls, text: str, offset: int | None = None, expected: object = None, found: object = None) -> Self:
        """With its place."""
        error = cls(text)
        error.offset, error.expected, error.found = offset, expected, found
        return error

    def within(self, shard: str | None = None, set: str | None = None, key: str | None = None) -> Self:  # noqa: A002
        """The same error, whose place is known better now."""
        self.shard = self.shard or shard
        self.set = self.set or set
        self.key = self.key or key
        return self

    def sentence(self) -> str:
        """What happened, and where in which file."""
        place = "/".join(part.rstrip("/") for part in (self.set, self.shard) if part)
        told = [] if self.offset is None else [f"at byte {self.offset}"]
        told += [] if self.key is None else [f"sample {self.key!r}"]
        told += [] if self.expected is None else [f"expected {self.expected}, found {self.found}"]
        return (f"{place}: " if place else "") + super().sentence() + (f" ({'; '.join(told)})" if told else "")


class WorkerError(SwiftLoaderError):
    """A worker process failed as a process."""

    how: str = ""
    """How it ended, in words."""
    exit_status: int | None = None
    signal: str | None = None
    """The name of the signal that ended it."""
    stack: str = ""
    """Where its threads were, as far as it could tell."""


class WorkerDied(WorkerError):
    """A worker ended without saying goodbye."""


class WorkerHung(WorkerError):
    """Each worker that was tried made no progress for too long."""


class WorkerStartFailed(WorkerError):
    """A worker could not be started, or could not build its dataset."""


class PoisonedTicket(WorkerError):
    """One batch killed several workers in a row."""


class RankMismatch(SwiftLoaderError):
    """Ranks of one training job were given different settings."""


class PeerError(SwiftLoaderError):
    """Something is wrong with the other end of a connection."""

    peer: str | None = None
    """Its address."""


class PeerLost(PeerError):
    """A server does not answer, does not let this client in, or has forgotten it."""


class ProtocolError(PeerError):
    """What came is no word of the protocol: damaged, hostile, or not meant for us."""


class ProtocolMismatch(PeerError):
    """A server or a client speaks another version, or serves another loader than was expected."""


class RemoteTraceback(Exception):
    """Stands as ``__cause__`` for an error of another process; prints that process's traceback."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


#: So many bytes of an error leave its process, 86 kB in all: its message may be a gigabyte long, or its chain endless.
#: Pickled, one of ours may have the stack of a crash twice: in its message, and for itself.
_TEXT_NBYTES, _TRACEBACK_NBYTES, _PICKLE_NBYTES = 16 * 1024, 30 * 1024, 40 * 1024
#: In a traceback, of each error of a chain: so much of its text, and so many of its first and of its last frames.
_LINK_NBYTES, _FRAMES = 4 * 1024, 40
#: So many errors of a chain, and so many of a group.
_LINKS, _MEMBERS = 12, 6
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


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
        name = _cut(type(error).__qualname__, _LINK_NBYTES)
        return cls(stage, name, _text_of(error, _TEXT_NBYTES), _traceback_of(error), index, _pickle_of(error))

    def exception(self) -> BaseException:
        """The original exception where it could travel (its cause prints the worker's traceback), else a stand-in."""
        remote = RemoteTraceback(self.traceback)
        if self.pickled is None:
            return remote
        try:
            error = pickle.loads(self.pickled)  # noqa: S301 - written by our own worker, over an anonymous socket
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - whatever its class does here, the text still tells what happened
            return remote
        if not isinstance(error, BaseException):
            return remote
        BaseException.__setattr__(error, "__cause__", remote)  # its own class may refuse: a frozen dataclass does
        return error

    def describe(self) -> str:
        """One line: the stage, the sample and the error."""
        where = "" if self.index is None else f" sample {self.index}"
        return f"{self.stage}{where}: {self.type_name}: {self.text}"


def _text_of(error: BaseException, most: int) -> str:
    try:
        return _cut(str(error), most)
    except KeyboardInterrupt:
        raise
    except BaseException as second:  # noqa: BLE001 - a broken __str__ must not hide the error
        return f"(its text cannot be had: {type(second).__name__})"


def _traceback_of(error: BaseException) -> str:
    """As Python prints it, but each part cut before it is put together: Python would copy a huge text several times."""
    return _cut("".join(_told(error, set())), _TRACEBACK_NBYTES)


def _told(error: BaseException, seen: set[int]) -> Iterator[str]:
    chain, joints = [error], [""]
    seen.add(id(error))
    while (link := _before(chain[-1])) is not None and id(link[0]) not in seen:
        if len(chain) == _LINKS:
            yield "... earlier exceptions are left out ...\n\n"
            break
        seen.add(id(link[0]))
        chain.append(link[0])
        joints.append(link[1])
    # Each joint stands between an error and the later one.
    for link_error, joint in zip(reversed(chain), reversed(joints), strict=True):
        yield from _told_alone(link_error, seen)
        yield joint


def _before(error: BaseException) -> tuple[BaseException, str] | None:
    if error.__cause__ is not None:
        return error.__cause__, _CAUSE
    if error.__context__ is not None and not error.__suppress_context__:
        return error.__context__, _CONTEXT
    return None


def _told_alone(error: BaseException, seen: set[int]) -> Iterator[str]:
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):\n"
        yield from _frames_of(error.__traceback__)
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = _text_of(error, _LINK_NBYTES)
    yield f"{_cut(name, _LINK_NBYTES)}: {text}\n" if text else f"{_cut(name, _LINK_NBYTES)}\n"
    notes = getattr(error, "__notes__", None)
    for note in islice(notes, _MEMBERS) if isinstance(notes, list) else ():
        yield f"{_cut(note, _LINK_NBYTES)}\n" if isinstance(note, str) else ""
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for number, member in enumerate(members[:_MEMBERS]):
        if id(member) not in seen:
            told = _cut("".join(_told(member, seen)), _LINK_NBYTES)
            yield f"  +---- {number + 1} of {len(members)} ----\n" + "".join(
                f"  | {line}\n" for line in told.splitlines()
            )


def _frames_of(first: TracebackType) -> Iterator[str]:
    try:
        count = sum(1 for _ in traceback.walk_tb(first))
        yield from traceback.StackSummary.extract(traceback.walk_tb(first), limit=_FRAMES).format()
        if count > 2 * _FRAMES:
            yield f"  ... {count - 2 * _FRAMES} frames are left out ...\n"
        if count > _FRAMES:
            last = -min(count - _FRAMES, _FRAMES)
            yield from traceback.StackSummary.extract(traceback.walk_tb(first), limit=last).format()
    except Exception:  # noqa: BLE001 - a module's own loader is asked for its source; the error itself comes behind
        yield "  (the frames cannot be had)\n"


class _TooLarge(Exception):
    """Not sent; the text goes instead."""


class _SmallPickler(pickle.Pickler):
    """Gives up at the first large part, before it is copied; names the classes of `__main__`, which the trainer has."""

    names_main = False

    def persistent_id(self, obj: Any) -> None:
        nbytes = getattr(obj, "nbytes", 0)
        if sys.getsizeof(obj) > _PICKLE_NBYTES or (isinstance(nbytes, int) and nbytes > _PICKLE_NBYTES):
            raise _TooLarge

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and obj.__module__ in ("__main__", "__mp_main__") and "<" not in obj.__qualname__:
            self.names_main = True
            return class_of_main, (obj.__qualname__,)
        return NotImplemented


def class_of_main(qualname: str) -> type:
    """The class of that name in this process's ``__main__``."""
    found: Any = sys.modules["__main__"]
    for name in qualname.split("."):
        found = getattr(found, name)
    return found  # type: ignore[no-any-return] # a class was named


def _pickle_of(error: BaseException) -> bytes | None:
    out = io.BytesIO()
    pickler = _SmallPickler(out, protocol=5)
    try:
        pickler.dump(error)
        # Loaded here first: what its class does then, it should not do to the trainer.
        whole = pickler.names_main or isinstance(pickle.loads(out.getvalue()), BaseException)  # noqa: S301 - just made
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - the text goes instead
        return None
    return out.getvalue() if whole and out.tell() <= _PICKLE_NBYTES else None


def _cut(text: str, most: int) -> str:
    """``text`` as a plain str, without its middle where it would take more than ``most`` bytes."""
    length = str.__len__(text)
    start = str.__getitem__(text, slice(0, most))
    if length <= most and len(start.encode("utf-8", "surrogatepass")) <= most:
        return start
    half = most // 2 - 40
    head = start.encode("utf-8", "surrogatepass")[:half].decode("utf-8", "ignore")
    tail = str.__getitem__(text, slice(max(0, length - half), length)).encode("utf-8", "surrogatepass")[-half:]
    end = tail.decode("utf-8", "ignore")
    return f"{head}\n... {length - len(head) - len(end):,} characters left out ...\n{end}"
