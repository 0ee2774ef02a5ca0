"""The settings of a loader: from what a user said to a record that all other rooms trust.

`LoaderConfig.parse` takes what the public constructor was given, under its public names, and gives back a frozen
record under the house's names: each field says how its word is read, and what it is where nothing was said. Knows
nothing of how it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from swift_loader.errors import ConfigError
from swift_loader.settings import checks
from swift_loader.settings.arguments import Even, OnError, Ragged, RandomPer, Settings, StartMethod
from swift_loader.settings.cache import CacheSetting
from swift_loader.settings.keywords import refuse_unknown
from swift_loader.settings.log import LogSetting
from swift_loader.settings.ray_engine import RayEngine
from swift_loader.settings.rotation import RotationSetting

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan

#: Batches that nobody has asked to keep ready take no more memory than this: ten of 38 MB would be much of what a job
#: has.
_AHEAD_NBYTES = 256 << 20
_TAKEN_BY_POSITION = ("dataset_class", "dataset_kwargs", "batch_size", "nb_consumer", "worker_per_consumer", "shuffle")
_SEED_SPELLINGS = ("seed", "seed_numer", "seed_number")


def _said(read: Callable[[str, Any], Any], usual: Any = None, word: str = "") -> dict[str, Any]:
    """How a field is read: by whom, what it is where nothing was said, and by which word if not by its own name."""
    return {"read": read, "usual": usual, "word": word}


def _plan(_name: str, plan: Any) -> Plan:
    missing = [name for name in ("step_count", "indices", "fingerprint") if not callable(getattr(plan, name, None))]
    if missing:
        raise ConfigError(
            f"plan= needs the methods step_count, indices and fingerprint; {checks.described(plan)} lacks {missing}"
        )
    return plan  # type: ignore[no-any-return] # its methods were just looked for


_count = partial(checks.whole, least=1)
_number = partial(checks.whole, least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderConfig:
    """Everything that was set, checked, under the house's names."""

    batch_size: int
    consumer_count: int
    worker_count: int
    shuffle: bool
    seed: int | None
    ahead_nbytes: int | None
    """So much memory batches may take ahead of their use, where ``data_queue_size`` was not given."""
    deepens_queues: bool
    """More orders may wait at a worker than ``message_queue_size``, which was not given, where batches are quick."""
    runs_mix: int | None
    """So many runs are mixed, if the dataset has any; None where the order does not ask for them."""

    data_queue_size: int = field(metadata=_said(_count, 10))
    message_queue_size: int = field(metadata=_said(_count, 10))
    max_buffer_size: int = field(metadata=_said(_number))
    collate_fn: Callable[[list[Any]], Any] | None = field(metadata=_said(checks.function))
    batch_encoder: Callable[[Any], bytes] | None = field(metadata=_said(checks.function))
    batch_decoder: Callable[[bytes], Any] | None = field(metadata=_said(checks.function))
    log: LogSetting | None = field(metadata=_said(lambda _, given: LogSetting.parse(given), word="logger"))
    window: int = field(metadata=_said(_number, word="nearby_shuffle"))
    mix: int = field(metadata=_said(_count, 16, "nearby_mix"))
    benchmark: bool = field(metadata=_said(checks.flag, usual=True))
    benchmark_file: str | None = field(metadata=_said(checks.path))
    validate: bool = field(metadata=_said(checks.flag, usual=True))
    multithread: bool = field(metadata=_said(checks.flag, usual=True))
    device_batches: int = field(metadata=_said(_count, 1, "max_nb_batch_on_device"))
    even: Even = field(metadata=_said(partial(checks.choice, kind=Even)))
    drop_last: bool = field(metadata=_said(checks.flag, usual=False))
    elastic: bool = field(metadata=_said(checks.flag, usual=False))
    plan: Plan | None = field(metadata=_said(_plan))
    in_order: bool = field(metadata=_said(checks.flag, usual=True))
    random_per: RandomPer = field(metadata=_said(partial(checks.choice, kind=RandomPer), "batch"))
    worker_threads: int = field(metadata=_said(_count, 1))
    worker_init: Callable[[Any], object] | None = field(metadata=_said(checks.function))
    share_dataset: bool = field(metadata=_said(checks.flag, usual=False))
    start_method: StartMethod = field(metadata=_said(partial(checks.choice, kind=StartMethod), "auto"))
    allow_fork: bool = field(metadata=_said(checks.flag, usual=False))
    on_error: OnError = field(metadata=_said(partial(checks.choice, kind=OnError), "raise"))
    max_skipped: int = field(metadata=_said(_number, 100))
    retries: int = field(metadata=_said(_number, 0))
    max_attempts: int = field(metadata=_said(_count, 3))
    timeout_s: float = field(metadata=_said(checks.seconds, 300.0))
    ragged: Ragged = field(metadata=_said(partial(checks.choice, kind=Ragged), "error"))
    check_finite: bool = field(metadata=_said(checks.flag, usual=False))
    max_worker_nbytes: int | None = field(metadata=_said(_count))
    memory_budget: int | None = field(metadata=_said(_count))
    max_batch_nbytes: int | None = field(metadata=_said(_count))
    trace_file: str | None = field(metadata=_said(checks.path))
    replay_file: str | None = field(metadata=_said(checks.path))
    engine: RayEngine | Literal["local"] = field(metadata=_said(RayEngine.parse, "local"))
    """Workers on a Ray cluster, beside those that ``worker_count`` counts."""
    rotation_setting: RotationSetting | None = field(metadata=_said(lambda _, given: RotationSetting.parse(given)))
    cache_setting: CacheSetting | None = field(metadata=_said(lambda _, given: CacheSetting.parse(given)))

    @property
    def measures(self) -> bool:
        """Whether anybody wants to know what batches cost."""
        return self.benchmark or self.trace_file is not None

    @property
    def is_inline(self) -> bool:
        """Whether batches are made in the training process itself."""
        return self.worker_count == 0 and self.engine == "local"

    @classmethod
    def parse(
        cls,
        batch_size: object,
        nb_consumer: object,
        worker_per_consumer: object,
        shuffle: object,
        settings: Mapping[str, Any],
    ) -> Self:
        """Checks the public constructor's arguments; raises `ConfigError` for the first that is wrong."""
        refuse_unknown("SwiftLoader", settings, {*Settings.__optional_keys__, *_TAKEN_BY_POSITION})
        rows = checks.whole("batch_size", batch_size, least=1)
        consumers = checks.whole("nb_consumer", nb_consumer, least=1)
        workers = checks.whole("worker_per_consumer", worker_per_consumer, least=0)
        shuffled = checks.flag("shuffle", shuffle)
        said = {one.name: _read(one, settings) for one in fields(cls) if one.metadata}
        far = 0 if said["engine"] == "local" else said["engine"].workers or 1
        following = {
            "max_buffer_size": max(2, said["data_queue_size"] // max(1, workers + far)),
            "window": 5 * rows * (consumers if said["elastic"] else 1),
            "even": "balance" if shuffled else "none",
        }
        config = cls(
            batch_size=rows,
            consumer_count=consumers,
            worker_count=workers,
            shuffle=shuffled,
            seed=_seed(settings),
            ahead_nbytes=_AHEAD_NBYTES if settings.get("data_queue_size") is None else None,
            deepens_queues=settings.get("message_queue_size") is None,
            runs_mix=_runs_mix(settings, rows * consumers if said["elastic"] else 0) if shuffled else None,
            **said | {name: value for name, value in following.items() if said[name] is None},
        )
        config._refuse_contradictions()
        return config

    def _refuse_contradictions(self) -> None:
        if (self.batch_encoder is None) != (self.batch_decoder is None):
            raise ConfigError("batch_encoder and batch_decoder undo each other: give both or none, not one alone")
        if self.share_dataset and self.start_method == "spawn":
            raise ConfigError(
                "share_dataset=True shares memory with forked workers, start_method='spawn' starts workers that share "
                "nothing: leave out one of the two"
            )
        if self.collate_fn is not None and self.ragged == "list":
            raise ConfigError("ragged='list' is a way of the default collate; with collate_fn, that function decides")
        if self.plan is not None and self.elastic:
            raise ConfigError("elastic=True is a way of the built-in plan; with plan=, that plan decides")
        if self.rotation_setting is not None and self.plan is not None:
            raise ConfigError("rotation_setting is a way of the built-in plan; with plan=, that plan decides")
        if self.rotation_setting is not None and self.engine != "local":
            raise ConfigError(
                "rotation_setting keeps samples where one consumer's workers all are: leave it out, or engine="
            )


def _runs_mix(settings: Mapping[str, Any], global_batch: int) -> int | None:
    """Of all consumers together where batches are cut from global ones: it must not depend on how many there are."""
    if settings.get("nearby_shuffle") is not None or settings.get("plan") is not None:
        return None
    given = settings.get("nearby_mix")
    return max(64, global_batch // 4) if given is None else _count("nearby_mix", given)


def _read(one: Field[Any], settings: Mapping[str, Any]) -> Any:
    word = one.metadata["word"] or one.name
    given = settings.get(word)
    return one.metadata["usual"] if given is None else one.metadata["read"](word, given)


def _seed(settings: Mapping[str, Any]) -> int | None:
    given = [name for name in _SEED_SPELLINGS if settings.get(name) is not None]
    if len(given) > 1:
        raise ConfigError(f"the seed was given twice, as {' and '.join(given)}: keep one")
    if not given:
        return None
    seed = checks.whole(given[0], settings[given[0]], least=0)
    if seed >= 1 << 64:
        raise ConfigError(f"{given[0]} must be below 2**64, not {seed}")
    return seed


def check_dataset_class(dataset_class: Any) -> None:
    """Raises `ConfigError` for what cannot make a map-style dataset."""
    if not callable(dataset_class):
        raise ConfigError(
            "dataset_class must be a class (or a function) that makes the dataset, not a "
            f"{type(dataset_class).__name__}; for a dataset that exists already there is SwiftLoader.from_dataset"
        )
    if not isinstance(dataset_class, type):
        return
    iterable = any(base.__name__ == "IterableDataset" for base in dataset_class.__mro__)
    if iterable or not hasattr(dataset_class, "__getitem__"):
        raise ConfigError(
            f"{dataset_class.__name__} cannot be asked for a sample by index: SwiftLoader takes map-style datasets, "
            "with __getitem__ and __len__. Write an iterable one into shards once, or put it behind a data server"
        )
    if not hasattr(dataset_class, "__len__"):
        raise ConfigError(f"{dataset_class.__name__} has no __len__: give it one that says how many samples there are")


def checked_kwargs(kwargs: Any, name: str = "dataset_kwargs") -> dict[str, Any]:
    """The keyword arguments of a dataset; raises `ConfigError` for what are none."""
    if kwargs is None:
        return {}
    if not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        raise ConfigError(f"{name} must be a dict of keyword arguments, not {kwargs!r}")
    return dict(kwargs)
