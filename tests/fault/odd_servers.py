"""Datasets for workers whose server, streams or end are odd. Nothing here imports torch."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from tests.datasets import Noted, Numbers


class Gated(Noted):
    """Raises when it is built, or takes for ever, while a file of that name is in its folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        if (Path(folder) / "raise").exists():
            raise OSError("no such mount now")
        while (Path(folder) / "wait").exists():
            time.sleep(0.01)


class Printing(Numbers):
    """Prints when it is built."""

    def __init__(self) -> None:
        super().__init__()
        print("built")


class LeavesAThread(Numbers):
    """Starts a thread that never ends and that Python waits for."""

    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=threading.Event().wait, args=(3600,)).start()


class StandardInput(Numbers):
    """Sample i tells what standard input is."""

    def __getitem__(self, index: int) -> Any:
        return os.readlink("/proc/self/fd/0")


class GatedAndSlow(Gated):
    """The same, and each sample takes a while."""

    def __init__(self, folder: str, count: int) -> None:
        super().__init__(folder)
        self.count = count

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.005)
        return index
