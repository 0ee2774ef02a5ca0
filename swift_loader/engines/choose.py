"""Which engine serves which lines of a loader, as data. What it takes is loaded only here: other systems lack it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from swift_loader.errors import ConfigError
from swift_loader.wire.remote_samples import RemoteSamples

if TYPE_CHECKING:
    from swift_loader.pool.process import Site
    from swift_loader.settings.loader import LoaderConfig
    from swift_loader.wire.recipe import Recipe


def sites_for(recipe: Recipe) -> list[Site]:
    """Where the workers of a loader will live: how many lines which engine serves. The first of them starts first.

    Raises:
        ConfigError: if this system has no place for them.
    """
    if sys.platform != "linux":
        raise ConfigError(
            f"worker processes need Linux (memory files, pidfds), and this is {sys.platform}: set worker_per_consumer=0"
        )
    from swift_loader.engines.local import LocalEngine  # noqa: PLC0415
    from swift_loader.pool.process import Site  # noqa: PLC0415

    config = recipe.config
    lines, dataset = config.worker_count, recipe.dataset
    local = [Site(LocalEngine(recipe, config.start_method), lines)] if lines else []
    if isinstance(dataset, RemoteSamples):
        servers = tuple(dataset.server_of(line) for line in range(lines))
        local = [local[0]._replace(width=dataset.width, servers=servers)]
    if config.engine == "local":
        return local
    from swift_loader.engines.cluster import RayWorkers  # noqa: PLC0415 - ray is an extra

    cluster = RayWorkers(recipe, config.engine)
    actors = zip(cluster.widths, cluster.names, strict=True)
    return [*local, *(Site(cluster, 1, width, is_far=True, servers=(name,)) for width, name in actors)]


def begin_early(config: LoaderConfig, dataset_class: Any) -> None:
    """A loader was constructed and will be started soon: what takes time begins, and nothing is waited for.

    Where there is an accelerator the script will have begun to use it by then, so that no copy of it can be made.
    """
    if config.worker_count == 0 or sys.platform != "linux" or config.start_method not in ("auto", "forkserver"):
        return
    from swift_loader.engines import copied  # noqa: PLC0415
    from swift_loader.engines.nursery import shared  # noqa: PLC0415
    from swift_loader.travel.preload import modules_of_class  # noqa: PLC0415
    from swift_loader.worker import guard  # noqa: PLC0415

    if config.start_method == "forkserver" or copied.has_accelerator() or copied.harm() is not None:
        guard.have_standard_streams()
        shared.begin(modules_of_class(dataset_class))
