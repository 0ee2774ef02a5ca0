"""`swift-loader top`: the loaders of this user that run on this machine, all ranks, as they are now."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from time import perf_counter_ns

from swift_loader.cli import boards, panel

_WIDTH = 80
_OPEN, _CLOSE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
#: What a terminal sends for one key.
_KEYS = re.compile(rb"\033[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_LINES = {b"j": 1, b"\033[B": 1, b"\033OB": 1, b"k": -1, b"\033[A": -1, b"\033OA": -1}
_PAGES = {b" ": 1, b"\033[6~": 1, b"b": -1, b"\033[5~": -1}
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\033[H", "\033[K", "\033[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--once", action="store_true", help="print once; also where the output is no terminal")
    parser.add_argument("--json", action="store_true", help="print once, as JSON")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between looks (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Prints, or shows until Ctrl-C or q."""
    if not Path("/proc/self/fd").is_dir():
        print("swift-loader top needs Linux's /proc, which is not there", file=sys.stderr)
        return 1
    if arguments.json:
        now_ns = perf_counter_ns()
        told = [{**asdict(one), **asdict(panel.figures_of(one.shown, now_ns))} for one in boards.find()]
        print(json.dumps({"loaders": told}, indent=2))
    elif arguments.once or not sys.stdout.isatty():
        print("\n".join(panel.lines_of(boards.find(), perf_counter_ns(), _WIDTH)))
    else:
        with _screen():
            _show(max(0.1, arguments.interval))
    return 0


def _show(interval_s: float) -> None:
    first = 0
    while True:
        width, height = shutil.get_terminal_size((_WIDTH, 24))
        loaders, room = boards.find(), max(1, height - 2)
        part, first = panel.part_of(panel.lines_of(loaders, perf_counter_ns(), width, room), first, room, width)
        lines = [_heading(len(loaders), width), "", *part][:height]
        frame = "\n".join(line + _REST_OF_LINE for line in lines)
        sys.stdout.write(f"{_HOME}{frame}{_REST_OF_SCREEN}")
        sys.stdout.flush()
        move = _asked_move(interval_s, room)
        if move is None:
            return
        first += move


def _heading(count: int, width: int) -> str:
    left = f"swift-loader top  {count} loader{'' if count == 1 else 's'} on {panel.plain(socket.gethostname())}"
    right = time.strftime("%H:%M:%S  q quits")
    return f"{left[: max(0, width - len(right) - 1)]:<{max(0, width - len(right))}}{right}"[:width]


def _asked_move(patience_s: float, page: int) -> int | None:
    """How many lines to scroll by, as keys ask within that time; None if we are to leave."""
    if not sys.stdin.isatty():
        time.sleep(patience_s)
        return 0
    ready, _, _ = select.select([sys.stdin], [], [], patience_s)
    if not ready:
        return 0
    return _move_of(os.read(sys.stdin.fileno(), 1024), page)


def _move_of(typed: bytes, page: int) -> int | None:
    keys = _KEYS.findall(typed)
    if not keys or {b"q", b"Q"} & set(keys):
        return None
    return sum(_LINES.get(key, 0) + page * _PAGES.get(key, 0) for key in keys)


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    """The terminal, which is given back as it was, however this ends but by SIGKILL."""
    before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    handler = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        if before is not None:
            tty.setcbreak(sys.stdin)
        sys.stdout.write(_OPEN)
        yield
    finally:
        sys.stdout.write(_CLOSE)
        sys.stdout.flush()
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, handler)
