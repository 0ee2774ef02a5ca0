"""What the trainer holds for samples that are kept: where they lie, what they are of, and how many were used again.

Files of samples in rotation stay open here, so a worker that takes another's place finds what was kept. They have no
name, so nothing can be left behind.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from swift_loader.errors import ConfigError
from swift_loader.host.memfile import memory_file
from swift_loader.host.outfile import trusted
from swift_loader.host.warn import warn_user

if TYPE_CHECKING:
    from swift_loader.reuse.carousel import Ground
    from swift_loader.reuse.index import Origin
    from swift_loader.reuse.shared import HostMemory
    from swift_loader.settings.loader import LoaderConfig
    from swift_loader.wire.page import Cell
    from swift_loader.wire.recipe import Recipe


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
    from swift_loader.reuse.shared import HostMemory  # noqa: PLC0415 - see `kept`

    assert setting.nbytes is not None
    try:
        memory = HostMemory(recipe.origin, None if setting.prefix is None else str(setting.prefix), setting.nbytes)
    except OSError as error:
        warn_user(f"cache_setting: memory for samples cannot be had, training goes on without it: {error.strerror}")
        return recipe, None
    return dataclasses.replace(recipe, memory=memory.place), memory


def kept_statistics(config: LoaderConfig, cells: list[Cell]) -> dict[str, float]:
    """What a consumer's workers have made and used again, where anything is kept."""
    if config.cache_setting is not None:
        return cache_statistics(cells)
    return {} if config.rotation_setting is None else rotation_statistics(cells)


def cache_statistics(cells: Iterable[Cell]) -> dict[str, float]:
    """What a consumer's workers have made and read back."""
    counts = [list(cell.counts) for cell in cells]
    made, reused = (sum(column) for column in list(zip(*counts, strict=True))[:2])
    return {
        "cache_made": made,
        "cache_reused": reused,
        "cache_nbytes": max(count[2] for count in counts),
        "cache_hit_rate": reused / max(1, made + reused),
    }


def ground_of(recipe: Recipe, tell: Callable[[str], None]) -> Ground | None:
    """Where the samples of one consumer lie between their uses; None where there are none, or they cannot be kept."""
    setting = recipe.config.rotation_setting
    if setting is None:
        return None
    # Imported by those only who keep samples.
    from swift_loader.reuse.carousel import ground_at, told  # noqa: PLC0415

    try:
        data_fd = memory_file("swift-rotation") if setting.medium == "memory" else nameless_file(str(setting.prefix))
        try:
            index_fd = memory_file("swift-rotation-index")
        except BaseException:
            os.close(data_fd)
            raise
    except (OSError, ConfigError, AttributeError) as error:  # the last one where there are no memory files at all
        tell(told(setting, getattr(error, "strerror", None) or str(error)))
        return None
    return ground_at([index_fd, data_fd], recipe.config)


def nameless_file(prefix: str) -> int:
    """A file on the disk of ``prefix``, for this user alone, whose name is gone already; gives back its descriptor.

    Raises:
        OSError: if there cannot be one.
    """
    real = trusted(Path(prefix).absolute())
    with NamedTemporaryFile(prefix=f"{real.name}-", suffix=".rotation", dir=real.parent) as file:
        return os.dup(file.fileno())


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
