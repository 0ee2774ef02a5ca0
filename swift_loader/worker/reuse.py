"""What stands in front of a worker's dataset, so that samples are made less often: a cache, rotation, or both.

All of it is imported by those only who asked for it: a worker is lean, and xxhash may not be installed.
"""

from __future__ import annotations

import dataclasses
import errno
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_loader.host.memory import LEFT_NBYTES, free_nbytes
from swift_loader.plan.plan import EpochPlan
from swift_loader.reuse.cached import Cached

if TYPE_CHECKING:
    from swift_loader.plan.ahead import Ahead
    from swift_loader.reuse.carousel import Carousel
    from swift_loader.reuse.carousel import Ground as Places
    from swift_loader.reuse.files import Ground
    from swift_loader.reuse.kept import Kept
    from swift_loader.reuse.repeated import Repeated
    from swift_loader.settings.cache import CacheSetting
    from swift_loader.wire.page import Cell
    from swift_loader.wire.recipe import Recipe
    from swift_loader.worker.info import WorkerInfo

#: A sample that others make is waited for so long at most, and never so long that the worker seems to hang.
_WAIT_S = 10.0


def as_kept(dataset: Any) -> Kept | None:
    """The dataset itself, if samples of it are kept in a cache."""
    return dataset if _is(dataset, "kept", "Kept") else None


def as_repeated(dataset: Any) -> Repeated | None:
    """What knows of a sample's further uses, if there are any: the dataset itself, or what a cache falls back on."""
    kept = as_kept(dataset)
    if kept is not None:
        return kept.rotation
    return dataset if _is(dataset, "repeated", "Repeated") else None


def have_follow(dataset: Any, plan: Any, consumer: int) -> None:
    """Tells the user's dataset whose steps of which plan will be made of it here, if it wants to know."""
    stands_in_front = _is(dataset, "kept", "Kept") or _is(dataset, "repeated", "Repeated")
    part = dataset.dataset if stands_in_front else Cached.apart(dataset)[0]
    follow = getattr(part, "follow", None)
    if callable(follow):
        follow(plan, consumer)
    elif (within := _subset_of(part)) is not None:
        within.follow(plan, consumer, part.indices)


def turn_to_of(dataset: Any) -> Callable[[int, int], object] | None:
    """Tells the user's dataset, and what a `Cached` does afresh, of each step; None where neither wants to know."""
    stands_in_front = _is(dataset, "kept", "Kept") or _is(dataset, "repeated", "Repeated")
    parts = (dataset.dataset, dataset.then) if stands_in_front else Cached.apart(dataset)
    told = [turn_to for part in parts if callable(turn_to := getattr(_subset_of(part) or part, "turn_to", None))]
    if len(told) < 2:
        return told[0] if told else None

    def turn_to_both(epoch: int, step: int) -> None:
        for turn_to in told:
            turn_to(epoch, step)

    return turn_to_both


def _subset_of(dataset: Any) -> Any:
    """What torch's Subset, which does not want to know, is of, if that does; else None."""
    within = getattr(dataset, "dataset", None)
    is_subset = hasattr(dataset, "indices") and not hasattr(dataset, "follow")
    return within if is_subset and getattr(within, "follows_parts", False) else None


def _is(dataset: Any, module: str, name: str) -> bool:
    loaded = sys.modules.get(f"swift_loader.reuse.{module}")
    return loaded is not None and isinstance(dataset, getattr(loaded, name))


def kept(recipe: Recipe, dataset: Any, count: int, info: WorkerInfo, cell: Cell, tell: Callable[[str], None]) -> Any:
    """The dataset, with what is kept of it in front where that was asked for.

    Args:
        recipe: What this process was told.
        dataset: The dataset, of ``count`` samples.
        count: How many.
        info: Whose generators are seeded.
        cell: Where samples are counted.
        tell: Tells the user; each text is told once.
    """
    setting = recipe.config.cache_setting
    if setting is None or recipe.origin is None:
        return dataset
    # Imported by those only who keep samples: a worker is lean, and xxhash may not be installed.
    from swift_loader.reuse.generation import Generations  # noqa: PLC0415
    from swift_loader.reuse.home import class_of_main_by  # noqa: PLC0415
    from swift_loader.reuse.keeper import Keeper, Surroundings  # noqa: PLC0415
    from swift_loader.reuse.kept import Kept  # noqa: PLC0415

    config = recipe.config
    around = Surroundings(
        tell=tell,
        home=class_of_main_by(dataset),
        is_expendable=config.worker_count > 0,
        wait_s=min(_WAIT_S, config.timeout_s / 4),
    )
    origin = dataclasses.replace(recipe.origin, dataset=_named(recipe, dataset), samples=count)
    keeper = Keeper(setting, lambda: _ground(recipe, setting), origin, around)
    generations = Generations(setting.update_frequency, spread=setting.refresh == "spread")
    return Kept(dataset, keeper, info, cell.counts, generations, threads=config.worker_threads > 1)


def _named(recipe: Recipe, dataset: Any) -> str:
    """A function that makes datasets may make another one next time, though it is the same function."""
    assert recipe.origin is not None
    if recipe.dataset_class is None or isinstance(recipe.dataset_class, type):
        return recipe.origin.dataset
    made = dataset.dataset if isinstance(dataset, Cached) else dataset
    return f"{recipe.origin.dataset} -> {type(made).__qualname__}"


def _ground(recipe: Recipe, setting: CacheSetting) -> Ground:
    from swift_loader.reuse.files import Disk  # noqa: PLC0415 - see `kept`
    from swift_loader.reuse.shared import Memory  # noqa: PLC0415

    if setting.medium == "disk":
        return Disk(str(setting.prefix))
    if recipe.memory is None:
        raise OSError(errno.ENOMEM, "the memory could not be had")
    return Memory(recipe.memory)


def carousel_on(ground: Places, recipe: Recipe, tell: Callable[[str], None]) -> Carousel | None:
    """What this process has of the samples in rotation; None where it cannot have them."""
    # Imported by those only who keep samples: a worker is lean.
    from swift_loader.reuse.carousel import Carousel, told  # noqa: PLC0415

    setting = recipe.config.rotation_setting
    assert setting is not None

    def say(why: str) -> None:
        tell(told(setting, why))

    try:
        return Carousel(ground, _has_memory if setting.medium == "memory" else _has_always, say)
    except OSError as error:  # this process may not open its own descriptor anew
        say(str(error))
        return None


def carousel_at(fds: list[int], recipe: Recipe, tell: Callable[[str], None]) -> Carousel | None:
    """The same, of the descriptors that came from the trainer, if any did."""
    if not fds:
        return None
    from swift_loader.reuse.carousel import ground_at  # noqa: PLC0415 - see `carousel_on`

    return carousel_on(ground_at(fds, recipe.config), recipe, tell)


def repeated(
    recipe: Recipe, dataset: Any, ahead: Ahead, carousel: Carousel | None, info: WorkerInfo, cell: Cell
) -> Any:
    """The dataset, with what is kept of it for further uses in front of it, or behind its cache if it has one.

    Where nothing can be kept, samples are made for each use as they would be once: the stream is the same.
    """
    if recipe.config.rotation_setting is None or not isinstance(ahead.plan, EpochPlan):
        return dataset
    from swift_loader.reuse.home import class_of_main_by  # noqa: PLC0415 - see `carousel_on`
    from swift_loader.reuse.repeated import Repeated, Surroundings  # noqa: PLC0415

    kept = as_kept(dataset)
    made = dataset if kept is None else kept.dataset
    around = Surroundings(ahead, ahead.plan, cell.counts, info.made, class_of_main_by(made))
    rotation = Repeated(made, carousel, around)
    if kept is None:
        return rotation
    kept.rotation = rotation
    return kept


def _has_memory(nbytes: int) -> bool:
    return free_nbytes() > nbytes + LEFT_NBYTES


def _has_always(_: int) -> bool:
    return True
