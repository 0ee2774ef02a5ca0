"""All that a worker is told once: how to get the dataset, and how batches are made of it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from swift_loader.errors import ConfigError
from swift_loader.plan.plan import EpochPlan, Plan
from swift_loader.plan.runs import Runs
from swift_loader.settings.loader import LoaderConfig

if TYPE_CHECKING:
    from swift_loader.reuse.index import Origin


@dataclass(frozen=True, slots=True)
class Recipe:
    """Travels to the workers in a payload, or is inherited by them when they are forked."""

    dataset_class: Callable[..., Any] | None
    dataset_kwargs: dict[str, Any]
    dataset: Any
    """The dataset itself, where one was given or the fork server has built it; else None."""
    config: LoaderConfig
    seed: int
    consumer: int
    origin: Origin | None = None
    """What the samples are of, where they are to be kept."""
    memory: tuple[int, int, int] | None = None
    """Where they are kept in memory: the process that holds it, and its descriptors."""

    def for_worker(self) -> Self:
        """Without what only the trainer needs, which may not be able to travel."""
        measures = self.config.measures
        config = dataclasses.replace(self.config, batch_decoder=None, log=None, benchmark_file=None, trace_file=None)
        config = dataclasses.replace(config, benchmark=measures)
        return dataclasses.replace(self, config=config)

    def with_dataset(self) -> Self:
        """With the dataset built, for those who fork."""
        return dataclasses.replace(self, dataset=self.build())

    def build(self) -> Any:
        """The dataset."""
        if self.dataset is not None or self.dataset_class is None:
            return self.dataset
        return self.dataset_class(**self.dataset_kwargs)

    @property
    def dataset_name(self) -> str:
        """What the dataset is called, in words."""
        named = self.dataset_class if self.dataset is None else type(self.dataset)
        return getattr(named, "__name__", "the dataset")

    def plan(self, sample_count: int, runs: Runs | None = None) -> Plan:
        """Which samples make which batch, once it is known how many there are, and which are read together."""
        config = self.config
        if config.plan is not None:
            return config.plan
        rotation = config.rotation_setting
        in_runs = None if config.runs_mix is None else runs
        return EpochPlan(
            sample_count=sample_count,
            batch_size=config.batch_size,
            consumer_count=config.consumer_count,
            shuffle=config.shuffle,
            seed=self.seed,
            window=config.window,
            mix=config.mix if in_runs is None or config.runs_mix is None else config.runs_mix,
            even=config.even,
            drop_last=config.drop_last,
            elastic=config.elastic,
            rotation=1 if rotation is None else rotation.rotation,
            block=1 if rotation is None else rotation.block(config.consumer_count, elastic=config.elastic),
            runs=in_runs,
        )

    def runs_of(self, dataset: Any, sample_count: int) -> Runs | None:
        """Which of the dataset's neighbours are cheap to read together, where the order asks for them and it says so.

        Raises:
            ConfigError: if they are not all of its samples.
        """
        said = getattr(dataset, "runs", None)
        if self.config.runs_mix is None or not callable(said):
            return None
        runs = Runs(said())
        if runs.sample_count != sample_count:
            raise ConfigError(
                f"the runs() of {type(dataset).__name__} are {runs.sample_count} samples together and its len() is "
                f"{sample_count}: they must be the lengths of all runs, in the order of the dataset"
            )
        return runs


def checked_length(dataset: Any) -> int:
    """The number of samples of a map-style dataset.

    Raises:
        ConfigError: if it is not one.
    """
    name = type(dataset).__name__
    if not hasattr(dataset, "__getitem__"):
        raise ConfigError(
            f"{name} has no __getitem__: SwiftLoader takes map-style datasets, whose samples can be asked for by "
            "index. Write an iterable one into shards once, or put it behind a data server"
        )
    if not hasattr(dataset, "__len__"):
        raise ConfigError(f"{name} has no __len__: give it one that says how many samples there are")
    try:
        return len(dataset)
    except Exception as error:
        raise ConfigError(
            f"the __len__ of {name} raised {type(error).__name__}: {error}. It must give the number of samples, a "
            f"whole number from 0 to {sys.maxsize}"
        ) from error
