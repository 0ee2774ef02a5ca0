"""Datasets that raise: plainly, and in every way that is hard to carry. Imports nothing that workers would wait for."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swift_loader import SwiftLoaderError
from tests.datasets import Numbers
from tests.traced import Traced


class Unreadable(Exception):
    """An error of the dataset's own."""

    def __init__(self, path: str, code: int) -> None:
        super().__init__(path, code)
        self.path, self.code = path, code


class Rotten(Traced):
    """Some samples cannot be read."""

    def __init__(self, bad: tuple[int, ...], count: int = 64) -> None:
        super().__init__(count)
        self.bad = bad

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index in self.bad:
            self.read(index)
        return super().__getitem__(index)

    def read(self, index: int) -> None:
        try:
            raise OSError(5, "the disc is full of holes")
        except OSError as error:
            raise Unreadable(f"/data/{index}", 77) from error


class NeedsTwo(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


class ExitsWhenMade(Exception):
    """Made once by the dataset; made again by pickle."""

    made = False

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        if ExitsWhenMade.made:
            raise SystemExit(3)
        ExitsWhenMade.made = True


class RaisesIn(Exception):
    """One of its methods raises."""

    def __init__(self, method: str, error: type[BaseException] = RuntimeError) -> None:
        super().__init__(method)
        self.method, self.error = method, error

    def _maybe(self, method: str) -> None:
        if method in self.method:
            raise self.error(method)

    def __str__(self) -> str:
        self._maybe("str")
        return "its text"

    def __repr__(self) -> str:
        self._maybe("repr")
        return "its repr"

    def __reduce__(self) -> Any:
        self._maybe("reduce")
        return RaisesIn, (self.method, self.error)


class LoudText(str):
    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError


class Loud(Exception):
    def __str__(self) -> str:
        return LoudText("loud " * 10_000)


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Panic(BaseException):
    """As those of modules written in Rust are."""


class OwnKind(SwiftLoaderError):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def _with_lock() -> Exception:
    error = RuntimeError("holds a lock")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    return error


def _in_a_circle(count: int, *, by_context: bool) -> Exception:
    ring: list[Exception] = [ValueError(f"number {i}") for i in range(count)]
    for one, other in zip(ring, [*ring[1:], ring[0]], strict=True):
        if by_context:
            one.__context__ = other
        else:
            one.__cause__ = other
    return ring[0]


def _in_a_row(count: int) -> Exception:
    last = error = ValueError("the last")
    for number in range(count):
        error.__cause__ = ValueError(f"number {number}")
        error = error.__cause__
    return last


def _group() -> BaseException:
    inner = ExceptionGroup("inner", [OSError("one"), _in_a_circle(2, by_context=False)])
    outer = ExceptionGroup("outer", [inner, *(ValueError(f"number {i} " + "x" * 9000) for i in range(200))])
    inner.__cause__ = outer
    return outer


def _noted(nbytes: int) -> Exception:
    error = ValueError("with a note")
    error.add_note("y" * nbytes)
    return error


def _deep(left: int = 100_000) -> int:
    return _deep(left - 1) + 1


def _warned() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn("as an error", RuntimeWarning, stacklevel=1)


def raised(error: BaseException) -> None:
    raise error


HUGE = 200_000_000

#: What a sample does, and what must be told of it.
ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "a lock in it": (lambda: raised(_with_lock()), "RuntimeError: holds a lock"),
    "odd constructor": (lambda: raised(NeedsTwo("a", "b")), "NeedsTwo: a"),
    "exits when loaded": (lambda: raised(ExitsWhenMade("text")), "ExitsWhenMade: text"),
    "a huge text": (lambda: raised(ValueError("x" * HUGE)), "ValueError: xxxx"),
    "huge bytes": (lambda: raised(TooMuch(bytes(HUGE))), "TooMuch: much"),
    "a huge note": (lambda: raised(_noted(1_000_000)), "ValueError: with a note"),
    "wide characters": (lambda: raised(ValueError("\U0001f600" * 100_000)), "ValueError: \U0001f600"),
    "no characters at all": (lambda: raised(ValueError("\ud800\0")), "ValueError: "),
    "a circle of causes": (lambda: raised(_in_a_circle(3, by_context=False)), "ValueError: number 0"),
    "a circle of contexts": (lambda: raised(_in_a_circle(2, by_context=True)), "ValueError: number 0"),
    "a circle of one": (lambda: raised(_in_a_circle(1, by_context=False)), "ValueError: number 0"),
    "a row of causes": (lambda: raised(_in_a_row(20_000)), "ValueError: the last"),
    "a group": (lambda: raised(_group()), "ExceptionGroup: outer"),
    "no text": (lambda: raised(RaisesIn("str repr")), "RaisesIn: .*cannot be had: RuntimeError"),
    "a text that exits": (lambda: raised(RaisesIn("str", SystemExit)), "RaisesIn: .*cannot be had: SystemExit"),
    "no pickle": (lambda: raised(RaisesIn("reduce")), "RaisesIn: its text"),
    "a pickle that exits": (lambda: raised(RaisesIn("reduce", SystemExit)), "RaisesIn: its text"),
    "a text of its own kind": (lambda: raised(Loud()), "Loud: loud loud"),
    "frozen": (lambda: raised(Frozen(5)), "Frozen: "),
    "Ctrl-C": (lambda: raised(KeyboardInterrupt("from the dataset")), "KeyboardInterrupt: from the dataset"),
    "the end of a generator": (lambda: raised(GeneratorExit("of one")), "GeneratorExit: of one"),
    "a panic": (lambda: raised(Panic("in Rust")), "Panic: in Rust"),
    "the end of an iteration": (lambda: raised(StopIteration(3)), "StopIteration: 3"),
    "an endless recursion": (_deep, "RecursionError: maximum recursion depth"),
    "no memory": (lambda: bytearray(1 << 62), "MemoryError: "),
    "a warning": (_warned, "RuntimeWarning: as an error"),
    "an error of this package": (lambda: raised(OwnKind(1, 2)), "OwnKind: 1 and 2"),
    "bad text": (b"\xff".decode, "UnicodeDecodeError: 'utf-8' codec"),
}


class TooMuch(Exception):
    def __str__(self) -> str:
        return "much"


class Odd(Numbers):
    """Each sample raises something else."""

    def __getitem__(self, index: int) -> int:
        list(ODD.values())[index][0]()
        return index


class Endless(Exception):
    def __str__(self) -> str:
        threading.Event().wait(3600)
        return ""


class TellsNothing(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise Endless
        return index


class Leaves(Numbers):
    def __init__(self, how: str) -> None:
        super().__init__(8)
        self.how = how

    def __getitem__(self, index: int) -> int:
        raise KeyboardInterrupt if self.how == "Ctrl-C" else SystemExit(3)


class NaNAt(Numbers):
    """Sample 5 is NaN, all are quick."""

    def __getitem__(self, index: int) -> float:
        return float("nan") if index == 5 else float(index)

    def __getitems__(self, indices: list[int]) -> list[float]:
        return [self[index] for index in indices]

    def read_into(self, indices: list[int], rows: Any) -> None:
        rows[:] = [self[index] for index in indices]
