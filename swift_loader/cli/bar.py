"""Progress bars, which leave no thread behind."""

from __future__ import annotations

from typing import Any


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
