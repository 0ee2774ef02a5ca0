"""What is kept of a dataset's samples, as a worker has it, or the training process where there are no workers."""

from __future__ import annotations

import dataclasses
import errno
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from swift_loader.callers import users_line
from swift_loader.pool.control import Cell
from swift_loader.pool.rotation import rotation_statistics
from swift_loader.reuse.cached import Cached

if TYPE_CHECKING:
    from swift_loader.caching import CacheSetting
    from swift_loader.config import LoaderConfig
    from swift_loader.pool.info import WorkerInfo
    from swift_loader.pool.recipe import Recipe
    from swift_loader.reuse.files import Ground
    from swift_loader.reuse.host import HostMemory
    from swift_loader.reuse.index import Origin

#: A sample that others make is waited for so long at most, and never so long that the worker seems to hang.
_WAIT_S = 10.0


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
    from swift_loader.reuse.keeper import Keeper, Surroundings, class_of_main_by  # noqa: PLC0415
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


def origin_for(
    config: LoaderConfig, dataset_class: Callable[..., Any] | None, arguments: Mapping[str, Any], dataset: Any
) -> Origin | None:
    """What the samples are of, where they are kept: of a class and its arguments, or of a dataset that is there."""
    setting = config.cache_setting
    if setting is None:
        return None
    from swift_loader.reuse.origin import origin_of  # noqa: PLC0415 - see `kept`

    return origin_of(dataset_class, arguments, dataset, setting.version)


def with_memory(recipe: Recipe) -> tuple[Recipe, HostMemory | None]:
    """The recipe, and what holds the memory that its samples are kept in, if they are kept in memory."""
    setting = recipe.config.cache_setting
    if setting is None or setting.medium == "disk" or recipe.origin is None:
        return recipe, None
    from swift_loader.reuse.host import HostMemory  # noqa: PLC0415 - see `kept`

    assert setting.nbytes is not None
    try:
        memory = HostMemory(recipe.origin, None if setting.prefix is None else str(setting.prefix), setting.nbytes)
    except OSError as error:
        warnings.warn(
            f"cache_setting: memory for samples cannot be had, training goes on without it: {error.strerror}",
            RuntimeWarning,
            stacklevel=users_line(),
        )
        return recipe, None
    return dataclasses.replace(recipe, memory=memory.place), memory


def _ground(recipe: Recipe, setting: CacheSetting) -> Ground:
    from swift_loader.reuse.files import Disk  # noqa: PLC0415 - see `kept`
    from swift_loader.reuse.host import Memory  # noqa: PLC0415

    if setting.medium == "disk":
        return Disk(str(setting.prefix))
    if recipe.memory is None:
        raise OSError(errno.ENOMEM, "the memory could not be had")
    return Memory(recipe.memory)


def kept_statistics(config: LoaderConfig, cells: list[Cell]) -> dict[str, float]:
    """What a consumer's workers have made and used again, where anything is kept."""
    if config.cache_setting is not None:
        return cache_statistics(cells)
    return {} if config.rotation_setting is None else rotation_statistics(cells)


def cache_statistics(cells: Iterable[Cell]) -> dict[str, float]:
    """What a consumer's workers have made and read back."""
    counts = [list(cell.counts) for cell in cells]
    made, reused, evicted = (sum(column) for column in list(zip(*counts, strict=True))[:3])
    return {
        "cache_made": made,
        "cache_reused": reused,
        "cache_evicted": evicted,
        "cache_nbytes": max(count[3] for count in counts),
        "cache_hit_rate": reused / max(1, made + reused),
    }
