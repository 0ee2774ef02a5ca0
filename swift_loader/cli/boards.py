"""Finds the loaders that run on this machine as this user: the boards that their trainers hold open.

What is not this user's is not looked at: neither another's process, nor a page that another has made. A child that a
trainer has forked holds the board too, and is known by its number not being the one on it. Everything may end while it
is being read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from swift_loader.telemetry import board
from swift_loader.telemetry.board import Shown, WorkerShown
from swift_loader.wire.page import Cell, cell_words_of

_LINK = f"/memfd:{board.NAME} (deleted)"
_CONTROL_LINK = "/memfd:swift-control (deleted)"
#: Takes over whose parent has gone.
_INIT = 1


@dataclass(frozen=True, slots=True)
class Found:
    """One loader."""

    pid: int
    """Its trainer, by the number that it has here."""
    number: int
    """The board's descriptor there: a trainer may have several loaders."""
    shown: Shown
    job: int = 0
    """What ranks of one job have in common: the process that has started them, or their group where that is gone."""


def find() -> list[Found]:
    """All loaders of this user, by job and consumer."""
    return in_order(one for folder in Path("/proc").iterdir() if folder.name.isdigit() for one in _of_process(folder))


def in_order(found: Iterable[Found]) -> list[Found]:
    """One job after the other, and in it one consumer after the other."""
    return sorted(found, key=lambda one: (one.job, one.shown.consumer_count, one.shown.consumer, one.pid, one.number))


def _of_process(folder: Path) -> Iterator[Found]:
    try:
        if folder.stat().st_uid != os.geteuid():
            return
        places = [place for place in (folder / "fd").iterdir() if _leads_to(place, _LINK)]
        if not places:
            return
        number_inside, job = _number_inside(folder), _job_of(folder)
    except OSError:  # gone meanwhile, or not for us to see
        return
    for place in places:
        shown = _read(place)
        if shown is not None and shown.pid == number_inside:
            yield Found(int(folder.name), int(place.name), _as_now(folder, shown), job)


def _leads_to(place: Path, link: str) -> bool:
    try:
        return str(place.readlink()) == link
    except OSError:  # it was closed since it was listed
        return False


def _read(place: Path) -> Shown | None:
    try:
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return board.read(fd) if os.fstat(fd).st_uid == os.geteuid() else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(fd)


def _as_now(folder: Path, shown: Shown) -> Shown:
    """With what the workers themselves write they are at, where their page can be had: the board may be stale."""
    place = folder / "fd" / str(shown.control_fd)
    if not _leads_to(place, _CONTROL_LINK):
        return shown
    try:
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return shown
    try:
        return replace(shown, workers=[_at_work(worker, fd) for worker in shown.workers])
    except (OSError, ValueError, IndexError):
        return shown
    finally:
        os.close(fd)


def _at_work(worker: WorkerShown, fd: int) -> WorkerShown:
    cell = Cell(cell_words_of(fd, worker.number))
    index = cell.index
    return replace(worker, stage=cell.stage, index=-1 if index is None else index)


def _number_inside(folder: Path) -> int:
    """The number that a process knows itself by; another one where it lives in a container."""
    return int(_status(folder, "NSpid").split()[-1])


def _job_of(folder: Path) -> int:
    parent = int(_status(folder, "PPid"))
    return parent if parent > _INIT else os.getpgid(int(folder.name))


def _status(folder: Path, name: str) -> str:
    for line in (folder / "status").read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value
    return folder.name
