"""What is said to whoever gives an argument that there is not, or leaves one out that must be there.

Most of those come from torch's DataLoader, whose words have a way here: the sentences are those of
docs/coming_from_torch.md, and a test compares them. Knows nothing of what the arguments do.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, ParamSpec, TypeVar

from swift_loader.errors import ConfigError
from swift_loader.settings.checks import meant

P = ParamSpec("P")
R = TypeVar("R")


class Way(NamedTuple):
    """What stands here in the place of a word that others have."""

    here: tuple[str, ...] = ()
    """Arguments of `SwiftLoader`."""
    told: str = ""


#: Of torch's DataLoader: what has another name here, or none.
OF_TORCH = {
    "dataset": Way(("dataset_class", "dataset_kwargs"), "or SwiftLoader.from_dataset(dataset, ...)"),
    "sampler": Way(("plan",), "an order is a function of (epoch, step) instead of an iterator"),
    "batch_sampler": Way(("plan",), "BucketedPlan makes batches of similar lengths"),
    "num_workers": Way(("worker_per_consumer",), "of one rank in both; 0 makes batches in your own process"),
    "pin_memory": Way(told="given by the device in loader.start(rank, device); nothing to set"),
    "pin_memory_device": Way(told="given by the device in loader.start(rank, device)"),
    "timeout": Way(("timeout_s",), "a worker without progress for so long is replaced and its batch made again"),
    "worker_init_fn": Way(("worker_init",), "called with worker_info() instead of the worker's number"),
    "multiprocessing_context": Way(
        ("start_method",), "workers are forked from a copy of your script where that is harmless"
    ),
    "generator": Way(("seed",), "your process's generators are neither read nor moved on"),
    "prefetch_factor": Way(
        ("data_queue_size", "max_buffer_size", "message_queue_size"),
        "by default ten batches are kept ready, whatever the number of workers, or as many as 256 MB hold",
    ),
    "persistent_workers": Way(told="workers always live until close(); nothing to set"),
}

_IN_START = Way(told="SwiftLoader.start(consumer_index, device, to_device) takes it")
_WORKERS = Way(("worker_per_consumer",), "child processes for each consumer")
#: Other words that are heard: of the documents, of `DataLoader` and `AsyncDataLoader`, of habit.
_ELSEWHERE = {
    **dict.fromkeys(("device", "to_device", "consumer_index", "rank"), _IN_START),
    **dict.fromkeys(("nb_worker_per_consumer", "nb_worker", "nb_workers", "nb_servers", "workers"), _WORKERS),
    **dict.fromkeys(("world_size", "nb_gpu", "num_consumers", "num_replicas"), Way(("nb_consumer",), "GPUs, or ranks")),
    "dataset_params": Way(("dataset_kwargs",)),
    "max_queue_size": Way(("data_queue_size",), "of all workers of a consumer together"),
    "max_minibatch_length": Way(("max_batch_nbytes",)),
    "use_threading": Way(("multithread",)),
    "gpu_indices": Way(("worker_init",), "which DataLoader sets for you"),
    "prefetch_time": Way(told="workers make batches from start() on"),
}

#: What must be given, and what it is.
_REQUIRED = {
    "dataset_class": "what each worker builds",
    "dataset_kwargs": "its keyword arguments, {} for none",
    "dataset_params": "its keyword arguments, {} for none",
    "dataset": "what samples are asked of",
    "batch_size": "samples in one consumer's batch",
    "nb_consumer": "GPUs, or ranks: 1 for a script of one process",
    "worker_per_consumer": "processes for each of them, as torch's num_workers",
    "nb_worker": "worker processes",
    "nb_servers": "worker processes",
}

#: All others, by what they are about, for whoever has found no name that is near.
_ABOUT = {
    "workers": "worker_threads, worker_init, share_dataset, start_method, allow_fork, engine, max_worker_nbytes",
    "order": "shuffle, seed, nearby_shuffle, nearby_mix, even, drop_last, elastic, plan, in_order, random_per",
    "batches": "collate_fn, ragged, check_finite, batch_encoder, batch_decoder, validate, max_nb_batch_on_device",
    "queues and memory": (
        "data_queue_size, message_queue_size, max_buffer_size, multithread, memory_budget, max_batch_nbytes"
    ),
    "failures": "on_error, max_skipped, retries, max_attempts, timeout_s",
    "reuse": "cache_setting, rotation_setting",
    "watching": "logger, benchmark, benchmark_file, trace_file, replay_file",
}
_OPTIONAL = {*", ".join(_ABOUT.values()).split(", "), "seed_numer", "seed_number"}


def refuse_unknown(whose: str, names: Iterable[str], known: Collection[str]) -> None:
    """Says of each name that is not known what was probably meant.

    Args:
        whose: Which constructor was called.
        names: What it was given.
        known: What it takes.

    Raises:
        ConfigError: if there is one.
    """
    told = _unknown(whose, names, known, {})
    if told:
        raise ConfigError("\n".join(told))


def explained(
    known: Collection[str] = (), words: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Has a constructor say what is missing, and what was meant, where Python would only count arguments.

    Args:
        known: Keywords that it takes beside those of its signature.
        words: What `SwiftLoader` calls otherwise, and how it is called there.
    """

    def around(constructor: Callable[P, R]) -> Callable[P, R]:
        whose = constructor.__qualname__.removesuffix(".__init__")
        kinds = inspect.Parameter
        _, *parameters = inspect.signature(constructor).parameters.values()  # the first is the object, or its class
        named = [one for one in parameters if one.kind is kinds.POSITIONAL_OR_KEYWORD]
        required = [one.name for one in named if one.default is kinds.empty]
        all_known = {*known, *(one.name for one in named)}

        @functools.wraps(constructor)
        def with_words(*args: P.args, **kwargs: P.kwargs) -> R:
            told = _unknown(whose, kwargs, all_known, words or {})
            missing = [name for name in required[max(0, len(args) - 1) :] if name not in kwargs]
            if missing:
                told.append(_lacking(whose, missing, args[1:]))
            if told:
                raise ConfigError("\n".join(told))
            return constructor(*args, **kwargs)

        return with_words

    return around


def _unknown(whose: str, names: Iterable[str], known: Collection[str], words: Mapping[str, str]) -> list[str]:
    return [f"{whose} has no argument {name!r}{_hint(name, known, words)}" for name in names if name not in known]


def _lacking(whose: str, missing: list[str], given: tuple[object, ...]) -> str:
    told = f"{whose} lacks {', '.join(f'{name} ({_REQUIRED[name]})' for name in missing)}"
    if "dataset_kwargs" in missing and given and not callable(given[0]):
        told += (
            ". For a dataset that exists already: SwiftLoader.from_dataset(dataset, batch_size, nb_consumer, "
            "worker_per_consumer)"
        )
    return told


def _hint(name: str, known: Collection[str], words: Mapping[str, str]) -> str:
    way = OF_TORCH.get(name) or _ELSEWHERE.get(name)
    if way is None:
        return _nearest(name, known)
    names = [words.get(here, here) for here in way.here]
    here = ", ".join(one if one in known else f"SwiftLoader's {one}" for one in names)
    told = way.told
    for ours, theirs in words.items():
        told = told.replace(ours, theirs)
    return f": here it is {here}{told and f' ({told})'}" if here else f": {told}"


def _nearest(name: str, known: Collection[str]) -> str:
    if name in _OPTIONAL:
        return ": only SwiftLoader has it"
    if near := meant(name, known):
        return near
    lines = [f"  {about}: {names}" for about, names in _ABOUT.items()]
    return "\n".join([", nor one with a name like it. Beside those that must be given, SwiftLoader has:", *lines])
