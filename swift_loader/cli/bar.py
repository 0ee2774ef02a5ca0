"""Progress bars, which leave no thread behind."""

from __future__ import annotations

import sys
from typing import Any

#: Of a line of 80: behind it a terminal writes ^C, and on the next line if there is no room.
WIDTH = 78


def bars() -> Any:
    """What makes a progress bar: tqdm, without the thread by which it watches itself.

    That one lives as long as the process, and where threads run no worker may be forked.

    Example:
        >>> with bars()(total=3, disable=True) as bar:
        ...     _ = bar.update()
    """
    from tqdm import tqdm

    tqdm.monitor_interval = 0
    return tqdm


def wipe() -> None:
    """Clears the line on which a bar was when it was stopped by Ctrl-C.

    Example:
        >>> wipe()
    """
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
