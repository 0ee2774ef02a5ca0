"""Samples in rotation, as a worker has them: what stands in front of its dataset. See `ground` for the files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from swift_loader.plan.plan import EpochPlan
from swift_loader.pool.fronts import as_kept
from swift_loader.pool.memory import LEFT_NBYTES, free_nbytes

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan
    from swift_loader.pool.control import Cell
    from swift_loader.pool.info import WorkerInfo
    from swift_loader.pool.recipe import Recipe
    from swift_loader.reuse.carousel import Carousel, Ground
    from swift_loader.rotating import RotationSetting


def carousel_on(ground: Ground, recipe: Recipe, tell: Callable[[str], None]) -> Carousel | None:
    """What this process has of the samples in rotation; None where it cannot have them."""
    # Imported by those only who keep samples: a worker is lean.
    from swift_loader.reuse.carousel import Carousel  # noqa: PLC0415

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
    return carousel_on(ground_at(fds, recipe), recipe, tell) if fds else None


def repeated(recipe: Recipe, dataset: Any, plan: Plan, carousel: Carousel | None, info: WorkerInfo, cell: Cell) -> Any:
    """The dataset, with what is kept of it for further uses in front of it, or behind its cache if it has one.

    Where nothing can be kept, samples are made for each use as they would be once: the stream is the same.
    """
    if recipe.config.rotation_setting is None or not isinstance(plan, EpochPlan):
        return dataset
    from swift_loader.reuse.repeated import Repeated, Surroundings  # noqa: PLC0415 - see `carousel_on`

    kept = as_kept(dataset)
    made = dataset if kept is None else kept.dataset
    around = Surroundings(plan, recipe.consumer, cell.counts, info.made, partial(_class_of, made))
    rotation = Repeated(made, carousel, around)
    if kept is None:
        return rotation
    kept.rotation = rotation
    return kept


def rotation_statistics(cells: Iterable[Cell]) -> dict[str, float]:
    """How many samples were made, and how many were used again without that."""
    from swift_loader.reuse.repeated import MADE, REUSED  # noqa: PLC0415 - see `carousel_on`

    counts = [(int(cell.counts[MADE]), int(cell.counts[REUSED])) for cell in cells]
    made, reused = (sum(numbers) for numbers in zip(*counts, strict=True))
    return {
        "rotation_made": made,
        "rotation_reused": reused,
        "rotation_hit_rate": reused / max(1, made + reused),
    }


def ground_at(fds: list[int], recipe: Recipe) -> Ground:
    """Where samples lie, of the descriptors of its index and its data."""
    from swift_loader.reuse.carousel import Ground  # noqa: PLC0415 - see `carousel_on`

    config, setting = recipe.config, recipe.config.rotation_setting
    assert setting is not None
    index_fd, data_fd = fds
    return Ground(index_fd, data_fd, setting.room(config.consumer_count), checks=setting.medium == "disk")


def told(setting: RotationSetting, why: str) -> str:
    """What the user is told of samples that are not kept."""
    where = f"with the prefix {setting.prefix}" if setting.medium == "disk" else "in memory"
    return (
        f"rotation_setting: samples cannot be kept {where} between their uses ({why}). They are made again for each "
        "use: the same epoch, but a slower one"
    )


def _has_memory(nbytes: int) -> bool:
    return free_nbytes() > nbytes + LEFT_NBYTES


def _has_always(_: int) -> bool:
    return True


def _class_of(dataset: Any, qualname: str) -> Any:
    """A class of the trainer's ``__main__``, which came here with the dataset's own code."""
    first, _, rest = qualname.partition(".")
    functions = (function for home in type(dataset).__mro__ for function in vars(home).values())
    known = (getattr(function, "__globals__", {}).get(first) for function in functions)
    found = next((each for each in known if each is not None), None)
    found = getattr(sys.modules["__main__"], first) if found is None else found
    return attrgetter(rest)(found) if rest else found
