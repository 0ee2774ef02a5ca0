"""What a user may say of a loader by name, and what each word means: the one place where that is written.

An editor shows these texts, and docs/arguments.md has them in its tables; a test compares the two. What they come to,
and how they are checked, stands in `settings.loader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from swift_loader.settings.cache import CacheSetting
from swift_loader.settings.ray_engine import RayEngine
from swift_loader.settings.rotation import RotationSetting

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan

Even = Literal["balance", "pad", "drop", "none"]
RandomPer = Literal["batch", "sample"]
StartMethod = Literal["auto", "forkserver", "spawn", "fork"]
OnError = Literal["raise", "skip"]
Ragged = Literal["error", "list"]
Engine = Literal["local", "ray"]


class Settings(TypedDict, total=False):
    """The keywords of `SwiftLoader`, all optional. None stands for the default of each."""

    seed: int | None
    """Ranks that build their own loader agree on it through `torch.distributed`."""
    seed_numer: int | None
    """Other spellings of `seed`."""
    seed_number: int | None
    """Other spellings of `seed`."""
    data_queue_size: int | None
    """Prefetched batches kept ready for the rank. Not given, these, those being made and the one in use take 256 MB at
    most, 128 MB where they take over 10 ms to make; but two more than there are workers may always be there, one more
    where they take over 80 ms.
    """
    message_queue_size: int
    """How many requests may wait at one worker. Not given, up to 32 where batches take less than 0.3 ms to make and
    less than 400 kB."""
    max_buffer_size: int | None
    """How many finished batches one worker may be ahead while an earlier batch of another worker is still missing."""
    collate_fn: Callable[[list[Any]], Any] | None
    """Gets the list of samples; may return anything. The default: what a batch is."""
    batch_encoder: Callable[[Any], bytes] | None
    """Functions from the batch to bytes and back; give both or none."""
    batch_decoder: Callable[[bytes], Any] | None
    """Functions from the batch to bytes and back; give both or none."""
    logger: str | dict[str, Any] | None
    """A file prefix, or a dict of `path`, `stdout`, `level`: the log."""
    nearby_shuffle: int | None
    """Shuffle radius: samples are mixed within groups of `nearby_mix` windows of this many neighbouring samples, which
    keeps reads local. 0 shuffles the whole dataset, like torch. With `elastic=True` the default is `nb_consumer` times
    as many.
    """
    nearby_mix: int
    """Windows whose samples are mixed together. Of a dataset with `runs()` it is how many of those are mixed, 64 where
    it is not given.
    """
    benchmark: bool
    """Measure, for `loader.report()` and `loader.statistics()`."""
    benchmark_file: str | None
    """JSON lines, one per batch and one per epoch."""
    validate: bool
    """Build the dataset in one worker before the others start, and return from `start` when the first batch is good, so
    that errors appear there.
    """
    multithread: bool
    """A thread of the training process for each worker; `False`: one thread for all."""
    max_nb_batch_on_device: int
    """Batches on the device ahead of the one in use."""
    even: Even | None
    """How ranks come to the same number of steps: `"balance"`, `"pad"`, `"drop"`, `"none"`."""
    drop_last: bool
    """Leave out each rank's last batch if it is smaller."""
    elastic: bool
    """The same global batches on any number of ranks, as long as `batch_size * nb_consumer` is the same."""
    plan: Plan | None
    """An order of your own."""
    in_order: bool
    """`False`: batches as soon as they are finished, in any order."""
    random_per: RandomPer
    """Generators in workers are seeded for each batch, or for each `"sample"`: which generators."""
    worker_threads: int
    """Threads in each worker that fetch the samples of a batch, for datasets that wait for a network or a disk. The
    dataset must be thread-safe: `swift-loader check` finds out.
    """
    worker_init: Callable[[Any], object] | None
    """Called in each worker with `worker_info()`, before the dataset is built."""
    share_dataset: bool
    """The dataset is built once, and its memory shared by the workers."""
    start_method: StartMethod
    """Where workers come from: a copy of the script where that is harmless, else a fork server. Or `"forkserver"`,
    `"spawn"`, `"fork"`. `"fork"` raises an error if threads are running or an accelerator is initialised.
    """
    allow_fork: bool
    """`True` lets `"fork"` go ahead all the same."""
    on_error: OnError
    """`"skip"` leaves out samples that fail, and those that crash `max_attempts` workers."""
    max_skipped: int
    """More samples left out than this are an error."""
    retries: int
    """How often a sample that raises is fetched again before it counts as failed."""
    max_attempts: int
    """After this many worker crashes at one sample, `PoisonedTicket` is raised, or the sample is skipped with
    `on_error="skip"`. Workers killed from outside (`kill -9`) count only against the batch, and are tolerated four
    times as often.
    """
    timeout_s: float
    """Seconds without progress before a worker is replaced."""
    ragged: Ragged
    """`"list"`: leaves of different shapes become lists of tensors."""
    check_finite: bool
    """`True`: a sample with a NaN or an infinity counts as failed, as `on_error` says; samples are then fetched one by
    one.
    """
    max_worker_nbytes: int | None
    """A worker that has taken more memory of its own than this is replaced between two batches: for datasets that leak.
    """
    memory_budget: int | None
    """Bytes that shared-memory buffers may take; never more than is free here, control groups counted."""
    max_batch_nbytes: int | None
    """Bytes of the largest batch allowed; a larger one is an error."""
    trace_file: str | None
    """A Chrome trace of the last 5,000 steps for Perfetto: traces."""
    replay_file: str | None
    """Written at the first error of a batch: with it, one command computes that batch again."""
    engine: Engine | RayEngine
    """Where workers run: on this host, and with `"ray"` or a `RayEngine` on a Ray cluster too, or only there."""
    rotation_setting: RotationSetting | Mapping[str, Any] | None
    """Each sample is computed once and used several times in an epoch: `{"medium": "memory", "rotation": 3}`, or
    `{"medium": "disk", "rotation": 3, "prefix": path, "size": samples}`.
    """
    cache_setting: CacheSetting | dict[str, Any] | None
    """A dict or a `CacheSetting`: samples are cached, on disk or in memory."""
