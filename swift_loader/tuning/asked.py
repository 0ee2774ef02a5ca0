"""From a loader's settings to what is to be found out about them; checks what `tune` was asked for."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from swift_loader.errors import ConfigError
from swift_loader.host import cores
from swift_loader.host.memory import free_nbytes
from swift_loader.settings import checks
from swift_loader.settings.loader import LoaderConfig
from swift_loader.tuning.looks import Choice
from swift_loader.tuning.physics import Machine
from swift_loader.tuning.policy import Task
from swift_loader.tuning.rig import Running
from swift_loader.tuning.tuner import Progress, Tuner
from swift_loader.tuning.tuning import Subject, Tuning

if TYPE_CHECKING:
    import torch

_LEAST_MOST, _MOST = 8, 64


class Wishes(TypedDict, total=False):
    """What else `SwiftLoader.tune` may be asked for."""

    seconds: float
    """It ends after so long (100 by default), or earlier."""
    max_workers: int | None
    """No more are tried. By default four for each core, at least 8 and at most 64."""
    threads: bool
    """False has no `worker_threads` tried, for a dataset that does not bear them."""
    device: torch.device | str | int | None
    """Where batches should be, as for `start`."""
    on_progress: Callable[[Progress], object]
    """Called before each run."""


class Startable(Running, Protocol):
    """A loader that was not started."""

    def start(self, consumer_index: int, device: Any = None) -> None: ...


def tuned(
    config: LoaderConfig,
    subject: Subject,
    make: Callable[[LoaderConfig], Startable],
    consumer_ms: float,
    wishes: Wishes,
) -> Tuning:
    """Finds counts for a loader with this ``config``; ``make`` makes loaders with others.

    Raises:
        ConfigError: if an argument is wrong.
        SwiftLoaderError: what the loader raises with one worker, or for samples that cannot be had.
        KeyboardInterrupt: with a note of what was found so far.
    """
    _refuse_unknown(wishes)
    seconds = checks.number("seconds", wishes.get("seconds", 100.0), least=1)
    consumer_s = checks.number("consumer_ms", consumer_ms, least=0) / 1e3
    # Where a launcher says how many ranks are on this host, it knows better than the number of all consumers.
    consumers = int(os.environ.get("LOCAL_WORLD_SIZE") or config.consumer_count)

    def start(choice: Choice) -> Running:
        loader = make(config_for(config, choice))
        loader.start(0, wishes.get("device"))
        return loader

    with cores.confined(consumers):
        count = cores.usable(consumers)
        task = Task(
            machine=Machine(count, free_nbytes()),
            base=Choice(1, 1, config.data_queue_size, config.message_queue_size),
            consumer_s=consumer_s,
            batch_size=config.batch_size,
            most_workers=_most_workers(wishes.get("max_workers"), count),
            may_thread=wishes.get("threads", True),
        )
        watch = wishes.get("on_progress")
        tuner = Tuner(start, task, subject._replace(consumers=config.consumer_count))
        return tuner.run(seconds, watch, compares=config.in_order)


def _refuse_unknown(wishes: Wishes) -> None:
    unknown = sorted(set(wishes) - Wishes.__optional_keys__)
    if unknown:
        known = ", ".join(sorted(Wishes.__optional_keys__))
        raise ConfigError(f"tune() has no argument {unknown[0]!r}; it takes consumer_ms, {known}")


def _most_workers(asked: object, cores: float) -> int:
    if asked is None:
        return int(min(_MOST, max(_LEAST_MOST, 4 * cores)))
    return checks.whole("max_workers", asked, least=1)


def config_for(config: LoaderConfig, choice: Choice) -> LoaderConfig:
    """The same settings, for one consumer with these counts, measured and silent."""
    usual = _usual_buffer(config.data_queue_size, config.worker_count)
    own = config.max_buffer_size
    return dataclasses.replace(
        config,
        seed=config.seed or 0,  # one for all, so that they make the same batches
        consumer_count=1,
        worker_count=choice.workers,
        worker_threads=choice.threads,
        data_queue_size=choice.data_queue,
        ahead_nbytes=config.ahead_nbytes if choice.data_queue == config.data_queue_size else None,
        message_queue_size=choice.message_queue,
        max_buffer_size=_usual_buffer(choice.data_queue, choice.workers) if own == usual else own,
        benchmark=True,
        benchmark_file=None,
        trace_file=None,
        replay_file=None,
        log=None,
    )


def _usual_buffer(data_queue: int, workers: int) -> int:
    return max(2, data_queue // max(1, workers))
