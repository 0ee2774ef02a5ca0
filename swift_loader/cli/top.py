"""`swift-loader top`: the loaders of this user that run on this machine, all ranks, as they are now."""

from __future__ import annotations

import argparse
import contextlib
import json
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
    while True:
        width, height = shutil.get_terminal_size((_WIDTH, 24))
        loaders = boards.find()
        lines = [_heading(len(loaders), width), "", *panel.lines_of(loaders, perf_counter_ns(), width)]
        if len(lines) > height:
            lines = [*lines[: height - 1], f"... {len(lines) - height + 1} lines more"[:width]]
        frame = "\n".join(line + _REST_OF_LINE for line in lines)
        sys.stdout.write(f"{_HOME}{frame}{_REST_OF_SCREEN}")
        sys.stdout.flush()
        if _is_asked_to_leave(interval_s):
            return


def _heading(count: int, width: int) -> str:
    left = f"swift-loader top  {count} loader{'' if count == 1 else 's'} on {panel.plain(socket.gethostname())}"
    right = time.strftime("%H:%M:%S  q quits")
    return f"{left[: max(0, width - len(right) - 1)]:<{max(0, width - len(right))}}{right}"[:width]


def _is_asked_to_leave(patience_s: float) -> bool:
    if not sys.stdin.isatty():
        time.sleep(patience_s)
        return False
    ready, _, _ = select.select([sys.stdin], [], [], patience_s)
    return bool(ready) and sys.stdin.read(1) in ("q", "Q", "")


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
