"""Samples in rotation, as a pool sees them: where they lie, and what stands in front of a worker's dataset.

The trainer makes the files and keeps them open, so that a worker which takes another's place finds what was kept.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from swift_loader.errors import ConfigError
from swift_loader.plan.plan import EpochPlan
from swift_loader.pool.memfile import memory_file
from swift_loader.pool.memory import LEFT_NBYTES, free_nbytes
from swift_loader.reuse.carousel import UNPICKLABLE, Carousel, Ground, nameless_file
from swift_loader.reuse.repeated import MADE, REUSED, Repeated, Surroundings

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan
    from swift_loader.pool.control import Cell
    from swift_loader.pool.info import WorkerInfo
    from swift_loader.pool.recipe import Recipe


def ground_of(recipe: Recipe, note: Callable[[str], None]) -> Ground | None:
    """Where the samples of one consumer lie between their uses; None where there are none, or they cannot be kept."""
    setting = recipe.config.rotation
    if setting is None:
        return None
    try:
        data_fd = memory_file("swift-rotation") if setting.prefix is None else _file_of(setting.prefix)
        try:
            index_fd = memory_file("swift-rotation-index")
        except BaseException:
            os.close(data_fd)
            raise
    except (OSError, ConfigError, AttributeError) as error:  # the last one where there are no memory files at all
        note(_why_not(getattr(error, "strerror", None) or str(error), setting.prefix))
        return None
    return ground_at([index_fd, data_fd], recipe)


def ground_at(fds: list[int], recipe: Recipe) -> Ground:
    """The same, of descriptors that came from the trainer."""
    config, setting = recipe.config, recipe.config.rotation
    assert setting is not None
    index_fd, data_fd = fds
    return Ground(index_fd, data_fd, setting.room(config.consumer_count), checks=setting.medium == "disk")


def repeated(recipe: Recipe, dataset: Any, plan: Plan, ground: Ground | None, info: WorkerInfo, cell: Cell) -> Any:
    """The dataset, with what is kept of it for further uses in front of it."""
    setting = recipe.config.rotation
    if setting is None or ground is None or not isinstance(plan, EpochPlan):
        return dataset
    is_in_memory = setting.medium == "memory"
    try:
        carousel = Carousel(ground, _has_memory if is_in_memory else _has_always)
    except OSError as error:  # this process may not open its own descriptor anew
        ground.tell(error.errno or errno.EIO)
        return dataset
    around = Surroundings(plan, recipe.consumer, cell.counts, info.making, partial(_class_of, dataset))
    return Repeated(dataset, carousel, around)


def told_of_rotation(ground: Ground | None, recipe: Recipe) -> str | None:
    """Why samples are not kept any more, in words, if that is so."""
    if ground is None or not (trouble := ground.trouble):
        return None
    setting = recipe.config.rotation
    why = "they cannot be pickled" if trouble == UNPICKLABLE else os.strerror(trouble)
    return _why_not(why, None if setting is None else setting.prefix)


def rotation_statistics(cells: Iterable[Cell]) -> dict[str, float]:
    """How many samples were made, and how many were used again without that."""
    counts = [(int(cell.counts[MADE]), int(cell.counts[REUSED])) for cell in cells]
    made, reused = (sum(numbers) for numbers in zip(*counts, strict=True))
    return {
        "rotation_made": made,
        "rotation_reused": reused,
        "rotation_hit_rate": reused / max(1, made + reused),
    }


def _file_of(prefix: str | os.PathLike[str]) -> int:
    return nameless_file(os.fspath(prefix))


def _why_not(why: str, prefix: Any) -> str:
    where = "" if prefix is None else f" on the disk of {prefix}"
    return (
        f"rotation_setting: samples cannot be kept{where} between their uses ({why}). They are made again for each use: "
        "the epoch is the same, but slower"
    )


def _has_memory(nbytes: int) -> bool:
    return free_nbytes() > nbytes + LEFT_NBYTES


def _has_always(_: int) -> bool:
    return True


def _class_of(dataset: Any, qualname: str) -> Any:
    """A class of the trainer's ``__main__``, which came here with the dataset's own code."""
    first, *rest = qualname.split(".")
    for home in (type(dataset), *type(dataset).__mro__):
        for function in vars(home).values():
            found = getattr(function, "__globals__", {}).get(first)
            if found is not None:
                for name in rest:
                    found = getattr(found, name)
                return found
    return getattr(sys.modules["__main__"], first)
