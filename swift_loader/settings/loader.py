"""The settings of a loader: the only place where user input is checked.

`LoaderConfig.parse` takes what the public constructor was given, under its public names, and gives back a frozen
record under the house's names. Whatever it lets through, the other rooms trust. Knows nothing of how it is used.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, get_args

from swift_loader.errors import ConfigError
from swift_loader.settings.cache import CacheSetting
from swift_loader.settings.keywords import refuse_unknown
from swift_loader.settings.log import LogSetting
from swift_loader.settings.rotation import RotationSetting

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan

Even = Literal["balance", "pad", "drop", "none"]
RandomPer = Literal["batch", "sample"]
StartMethod = Literal["auto", "forkserver", "spawn", "fork"]
OnError = Literal["raise", "skip"]
Ragged = Literal["error", "list"]
Engine = Literal["local"]

#: Batches that nobody has asked to keep ready take no more memory than this: ten of 38 MB would be much of what a job
#: has.
_AHEAD_NBYTES = 256 << 20


class Settings(TypedDict, total=False):
    """The keywords of `SwiftLoader`, all optional; docs/arguments.md tells their meaning."""

    seed: int | None
    seed_numer: int | None
    seed_number: int | None
    data_queue_size: int | None
    message_queue_size: int
    max_buffer_size: int | None
    collate_fn: Callable[[list[Any]], Any] | None
    batch_encoder: Callable[[Any], bytes] | None
    batch_decoder: Callable[[bytes], Any] | None
    logger: str | dict[str, Any] | None
    nearby_shuffle: int | None
    nearby_mix: int
    benchmark: bool
    benchmark_file: str | None
    validate: bool
    multithread: bool
    max_nb_batch_on_device: int
    even: Even | None
    drop_last: bool
    elastic: bool
    plan: Plan | None
    in_order: bool
    random_per: RandomPer
    worker_threads: int
    worker_init: Callable[[Any], object] | None
    share_dataset: bool
    start_method: StartMethod
    allow_fork: bool
    on_error: OnError
    max_skipped: int
    retries: int
    max_attempts: int
    timeout_s: float
    ragged: Ragged
    check_finite: bool
    max_worker_nbytes: int | None
    memory_budget: int | None
    max_batch_nbytes: int | None
    trace_file: str | None
    replay_file: str | None
    engine: Engine
    rotation_setting: RotationSetting | Mapping[str, Any] | None
    cache_setting: CacheSetting | dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderConfig:
    """Everything that was set, checked, under the house's names."""

    batch_size: int
    consumer_count: int
    worker_count: int
    shuffle: bool
    seed: int | None
    data_queue_size: int
    ahead_nbytes: int | None
    """So much memory batches may take ahead of their use, where ``data_queue_size`` was not given."""
    message_queue_size: int
    max_buffer_size: int
    collate_fn: Callable[[list[Any]], Any] | None
    batch_encoder: Callable[[Any], bytes] | None
    batch_decoder: Callable[[bytes], Any] | None
    log: LogSetting | None
    window: int
    mix: int
    benchmark: bool
    benchmark_file: str | None
    validate: bool
    multithread: bool
    device_batches: int
    even: Even
    drop_last: bool
    elastic: bool
    plan: Plan | None
    in_order: bool
    random_per: RandomPer
    worker_threads: int
    worker_init: Callable[[Any], object] | None
    share_dataset: bool
    start_method: StartMethod
    allow_fork: bool
    on_error: OnError
    max_skipped: int
    retries: int
    max_attempts: int
    timeout_s: float
    ragged: Ragged
    check_finite: bool
    max_worker_nbytes: int | None
    memory_budget: int | None
    max_batch_nbytes: int | None
    trace_file: str | None
    replay_file: str | None
    engine: Engine
    rotation_setting: RotationSetting | None
    cache_setting: CacheSetting | None

    @property
    def measures(self) -> bool:
        """Whether anybody wants to know what batches cost."""
        return self.benchmark or self.trace_file is not None

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
        given = _Given(settings)
        rows = _whole("batch_size", batch_size, least=1)
        consumers = _whole("nb_consumer", nb_consumer, least=1)
        workers = _whole("worker_per_consumer", worker_per_consumer, least=0)
        shuffled = _flag("shuffle", shuffle)
        queue_size = given.whole("data_queue_size", 10, least=1)
        elastic = given.flag("elastic", default=False)
        encoder = given.function("batch_encoder")
        decoder = given.function("batch_decoder")
        if (encoder is None) != (decoder is None):
            raise ConfigError("batch_encoder and batch_decoder undo each other: give both or none, not one alone")
        config = cls(
            batch_size=rows,
            consumer_count=consumers,
            worker_count=workers,
            shuffle=shuffled,
            seed=_seed(settings),
            data_queue_size=queue_size,
            ahead_nbytes=_AHEAD_NBYTES if settings.get("data_queue_size") is None else None,
            message_queue_size=given.whole("message_queue_size", 10, least=1),
            max_buffer_size=given.whole("max_buffer_size", max(2, queue_size // max(1, workers)), least=0),
            collate_fn=given.function("collate_fn"),
            batch_encoder=encoder,
            batch_decoder=decoder,
            log=LogSetting.parse(settings.get("logger")),
            window=given.whole("nearby_shuffle", 5 * rows * (consumers if elastic else 1), least=0),
            mix=given.whole("nearby_mix", 16, least=1),
            benchmark=given.flag("benchmark", default=True),
            benchmark_file=given.path("benchmark_file"),
            validate=given.flag("validate", default=True),
            multithread=given.flag("multithread", default=True),
            device_batches=given.whole("max_nb_batch_on_device", 1, least=1),
            even=given.choice("even", Even, "balance" if shuffled else "none"),
            drop_last=given.flag("drop_last", default=False),
            elastic=elastic,
            plan=_plan(settings.get("plan")),
            in_order=given.flag("in_order", default=True),
            random_per=given.choice("random_per", RandomPer, "batch"),
            worker_threads=given.whole("worker_threads", 1, least=1),
            worker_init=given.function("worker_init"),
            share_dataset=given.flag("share_dataset", default=False),
            start_method=given.choice("start_method", StartMethod, "auto"),
            allow_fork=given.flag("allow_fork", default=False),
            on_error=given.choice("on_error", OnError, "raise"),
            max_skipped=given.whole("max_skipped", 100, least=0),
            retries=given.whole("retries", 0, least=0),
            max_attempts=given.whole("max_attempts", 3, least=1),
            timeout_s=given.seconds("timeout_s", 300.0),
            ragged=given.choice("ragged", Ragged, "error"),
            check_finite=given.flag("check_finite", default=False),
            max_worker_nbytes=given.maybe_whole("max_worker_nbytes", least=1),
            memory_budget=given.maybe_whole("memory_budget", least=1),
            max_batch_nbytes=given.maybe_whole("max_batch_nbytes", least=1),
            trace_file=given.path("trace_file"),
            replay_file=given.path("replay_file"),
            engine=given.choice("engine", Engine, "local"),
            rotation_setting=RotationSetting.parse(settings.get("rotation_setting")),
            cache_setting=CacheSetting.parse(settings.get("cache_setting")),
        )
        config._refuse_contradictions()
        return config

    def _refuse_contradictions(self) -> None:
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


class _Given:
    """The named keywords, with a reader for each sort of value. None stands for the default."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings

    def whole(self, name: str, default: int, *, least: int) -> int:
        value = self._settings.get(name)
        return default if value is None else _whole(name, value, least=least)

    def maybe_whole(self, name: str, *, least: int) -> int | None:
        value = self._settings.get(name)
        return None if value is None else _whole(name, value, least=least)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._settings.get(name)
        return default if value is None else _flag(name, value)

    def choice(self, name: str, kind: Any, default: str) -> Any:
        value = self._settings.get(name)
        if value is None:
            return default
        if value not in (allowed := get_args(kind)):
            raise ConfigError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
        return value

    def function(self, name: str) -> Callable[..., Any] | None:
        value = self._settings.get(name)
        if value is not None and not callable(value):
            raise ConfigError(f"{name} must be callable, not {_described(value)}")
        return value

    def path(self, name: str) -> str | None:
        value = self._settings.get(name)
        if value is not None and not isinstance(value, str | Path):
            raise ConfigError(f"{name} must be a path, not {_described(value)}")
        return None if value is None else str(value)

    def seconds(self, name: str, default: float) -> float:
        value = self._settings.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
            raise ConfigError(f"{name} must be a number of seconds above 0, not {_described(value)}")
        return float(value)


_TAKEN_BY_POSITION = ("dataset_class", "dataset_kwargs", "batch_size", "nb_consumer", "worker_per_consumer", "shuffle")
_SEED_SPELLINGS = ("seed", "seed_numer", "seed_number")


def _seed(settings: Mapping[str, Any]) -> int | None:
    given = [name for name in _SEED_SPELLINGS if settings.get(name) is not None]
    if len(given) > 1:
        raise ConfigError(f"the seed was given twice, as {' and '.join(given)}: keep one")
    if not given:
        return None
    seed = _whole(given[0], settings[given[0]], least=0)
    if seed >= 1 << 64:
        raise ConfigError(f"{given[0]} must be below 2**64, not {seed}")
    return seed


def whole_number(value: Any) -> int | None:
    """The whole number that ``value`` is, one of numpy's too; None for floats, text and bool."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _whole(name: str, value: object, *, least: int) -> int:
    number = whole_number(value)
    if number is None:
        raise ConfigError(f"{name} must be a whole number, not {_described(value)}")
    if number < least:
        raise ConfigError(f"{name} must be at least {least}, not {number}")
    return number


def _flag(name: str, value: object) -> bool:
    if value is True or value is False:
        return value
    raise ConfigError(f"{name} must be True or False, not {_described(value)}")


def _described(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def _plan(plan: Any) -> Plan | None:
    if plan is None:
        return None
    missing = [name for name in ("step_count", "indices", "fingerprint") if not callable(getattr(plan, name, None))]
    if missing:
        raise ConfigError(
            f"plan= needs the methods step_count, indices and fingerprint; {_described(plan)} lacks {missing}"
        )
    return plan  # type: ignore[no-any-return] # its methods were just looked for


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


def checked_kwargs(kwargs: Any) -> dict[str, Any]:
    """The keyword arguments of a dataset; raises `ConfigError` for what are none."""
    if kwargs is None:
        return {}
    if not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        raise ConfigError(f"dataset_kwargs must be a dict of keyword arguments, not {kwargs!r}")
    return dict(kwargs)
