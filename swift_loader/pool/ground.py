"""The files in which samples in rotation lie: made by the trainer, which keeps them open.

So a worker that takes another's place finds what was kept. They have no name, so nothing can be left behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from swift_loader.errors import ConfigError
from swift_loader.pool.memfile import memory_file
from swift_loader.pool.rotation import ground_at, told
from swift_loader.telemetry.outfile import trusted

if TYPE_CHECKING:
    from swift_loader.pool.recipe import Recipe
    from swift_loader.reuse.carousel import Ground


def ground_of(recipe: Recipe, tell: Callable[[str], None]) -> Ground | None:
    """Where the samples of one consumer lie between their uses; None where there are none, or they cannot be kept."""
    setting = recipe.config.rotation_setting
    if setting is None:
        return None
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
    return ground_at([index_fd, data_fd], recipe)


def nameless_file(prefix: str) -> int:
    """A file on the disk of ``prefix``, for this user alone, whose name is gone already; gives back its descriptor.

    Raises:
        OSError: if there cannot be one.
    """
    real = trusted(Path(prefix).absolute())
    with NamedTemporaryFile(prefix=f"{real.name}-", suffix=".rotation", dir=real.parent) as file:
        return os.dup(file.fileno())
