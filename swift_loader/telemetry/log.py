"""The loader's log: loguru with a core of its own, so that it and the user's sinks never see each other's lines.

The only file that knows loguru, which is imported when the first log is made. Trusts its settings: `config` checked
them.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_loader.host.outfile import OutFile

if TYPE_CHECKING:
    from loguru import Logger, Message, Record

_MOST_NBYTES = 10_000_000
_TEXT = "{time:YYYY-MM-DD HH:mm:ss.SSS} {level: <7} consumer {extra[consumer]}: {message}{extra[tail]}"
_FIGURES = "is_figures"


class Log:
    """What one consumer's loader has to say, to a file and to standard output.

    Args:
        path: A prefix: consumer 3 writes ``{path}-3.log``. Where it ends in ``.log`` or ``.json`` the number comes
            before that, and ``.json`` files hold one JSON object per line. Folders are made. A full one (10 MB) is put
            aside, and two of these are kept. None: no file.
        stdout: Whether to write to standard output too.
        level: The least level that is written, by loguru's names.
        consumer: Whose log it is.

    Example:
        >>> log = Log(path=None, stdout=True, level="INFO", consumer=0)
        >>> log.warning("worker is slow", worker=3, seconds=1.5)  # doctest: +SKIP
        >>> log.close()
    """

    def __init__(self, path: str | None, *, stdout: bool, level: str, consumer: int) -> None:
        self.path = None if path is None else _file_of(path, consumer)
        self._logger = _private_logger().bind(consumer=consumer, tail="")
        self._file = None if self.path is None else OutFile(self.path, "logger", _MOST_NBYTES)
        self.keeps_fields = self.path is not None and self.path.suffix == ".json"
        """Figures stay figures in its file."""
        least, debug = self._logger.level(level).no, self._logger.level("DEBUG").no
        self.takes_batches = self._file is not None and least <= debug
        """Its file is so detailed that a line per batch belongs into it."""
        sinks: list[tuple[Any, Any, Any]] = [(_write_stdout, _TEXT, _is_for_people)] if stdout else []
        if self._file is not None:
            sinks.append((self._file.write, _json_line if self.keeps_fields else _text_lines, None))
        for sink, form, chosen in sinks:
            # What sinks raise is only a warning that the user has turned into an error: it is to reach him.
            given: dict[str, Any] = {"level": level, "format": form, "filter": chosen}
            self._logger.add(sink, **given, catch=False, backtrace=False, diagnose=False)

    def debug(self, message: str, **fields: object) -> None:
        """Says something that helps to understand a run."""
        self._say("DEBUG", message, fields)

    def info(self, message: str, **fields: object) -> None:
        """Says something that everybody may want to know."""
        self._say("INFO", message, fields)

    def warning(self, message: str, **fields: object) -> None:
        """Says something that should not be so, though the run goes on."""
        self._say("WARNING", message, fields)

    def error(self, message: str, **fields: object) -> None:
        """Says what ends the run, or loses data."""
        self._say("ERROR", message, fields)

    def batch(self, figures: Mapping[str, object]) -> None:
        """What one batch cost, to the file alone; see `takes_batches`."""
        self._say("DEBUG", "batch", {"kind": "batch", **figures}, tail=_tail(figures), **{_FIGURES: True})

    def epoch(self, figures: Mapping[str, object]) -> None:
        """What an epoch was spent on, to the file alone; see `keeps_fields`."""
        self._say("INFO", "epoch", figures, **{_FIGURES: True})

    def close(self) -> None:
        """Lets go of the file; what is said afterwards is dropped. May be called twice."""
        self._logger.remove()
        if self._file is not None:
            self._file.close()

    def __repr__(self) -> str:
        return f"Log(path={str(self.path) if self.path else None!r})"

    def _say(self, level: str, message: str, fields: Mapping[str, object], **extra: object) -> None:
        # Neither the message nor the fields are arguments of loguru's own formatting: braces stay what they are.
        self._logger.bind(**{"tail": _tail(fields), "fields": fields, **extra}).log(level, message)


def _private_logger() -> Logger:
    """A logger that shares nothing with ``loguru.logger``: other handlers, other levels, other lock.

    loguru's documented way to independent loggers is to take all handlers off the global one and to copy that, which
    would take the user's handlers off. So the same two objects are made anew. Their classes are reached through the
    global logger, and what else a logger consists of is taken from it, so that no signature is spelt out here.
    """
    from loguru import logger  # noqa: PLC0415 - only who logs pays for it

    shared: Any = logger
    private: Logger = type(shared)(type(shared._core)(), *shared._options)
    return private


def _file_of(prefix: str, consumer: int) -> Path:
    path = Path(prefix)
    suffix = path.suffix if path.suffix in {".log", ".json"} else ""
    return path.with_name(f"{path.name.removesuffix(suffix)}-{consumer}{suffix or '.log'}")


def _tail(fields: Mapping[str, object]) -> str:
    return "".join(f" {name}={value!r}" for name, value in fields.items())


def _is_for_people(record: Record) -> bool:
    return _FIGURES not in record["extra"]


def _write_stdout(message: Message) -> None:
    # Looked up for every line: notebooks and test runners exchange it. Where nobody reads it any more (a pipe that was
    # closed), or a disk that it goes to is full, the user's own prints tell.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(message)
        sys.stdout.flush()


def _text_lines(record: Record) -> str:
    """Each line of a report, or of an error, says when it was written, how grave it is and whose it is: for `grep`."""
    extra, time = record["extra"], record["time"]
    head = f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03d} {record['level'].name: <7} "
    head += f"consumer {extra['consumer']}: "
    said = f"{record['message']}{extra['tail']}"
    extra["line"] = "\n".join(f"{head}{line}".rstrip() for line in said.split("\n"))
    return "{extra[line]}\n"


def _json_line(record: Record) -> str:
    extra = record["extra"]
    line = {
        "time": record["time"].isoformat(),
        "level": record["level"].name,
        "consumer": extra["consumer"],
        "message": record["message"],
        **extra.get("fields", {}),
    }
    extra["line"] = json.dumps(line, default=repr)
    return "{extra[line]}\n"
