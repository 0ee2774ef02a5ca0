"""All that a worker is told once: how to get the dataset, and how batches are made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from swift_loader.plan.plan import EpochPlan, Plan
from swift_loader.settings.loader import LoaderConfig
from swift_loader.wire.facts import Facts, checked_length, facts_of, wants_runs, with_runs

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
        config = dataclasses.replace(config, benchmark=measures, engine="local")
        return dataclasses.replace(self, config=config)

    def with_dataset(self) -> Self:
        """With the dataset built, for those who fork."""
        return dataclasses.replace(self, dataset=self.build())

    def with_workers(self, count: int) -> Self:
        """With so many workers, wherever they are."""
        return dataclasses.replace(self, config=dataclasses.replace(self.config, worker_count=count))

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

    def plan(self, facts: Facts) -> Plan:
        """Which samples make which batch, once it is known what there is."""
        config = self.config
        if config.plan is not None:
            return with_runs(config.plan, facts.runs)
        rotation = config.rotation_setting
        in_runs = None if config.runs_mix is None else facts.runs
        return EpochPlan(
            sample_count=facts.sample_count,
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

    def facts_of(self, dataset: Any) -> Facts:
        """What the plan depends on: of a dataset that tells its runs, those too where the order asks for them.

        Raises:
            ConfigError: if it is no map-style dataset, or its ``runs()`` are not those of its samples.
        """
        asks = self.config.runs_mix is not None or wants_runs(self.config.plan)
        return facts_of(dataset) if asks else Facts(checked_length(dataset))
