"""Every argument and its default, as swift_loader/docs/arguments.md says: one test compares the page with this table.

Other tests compare the code with it.
"""

from __future__ import annotations

from typing import Any

REQUIRED = ("dataset_class", "dataset_kwargs", "batch_size", "nb_consumer", "worker_per_consumer")


def _max_buffer_size(worker_per_consumer: int, **_: Any) -> int:
    return max(2, 10 // worker_per_consumer)


def _nearby_shuffle(batch_size: int, **_: Any) -> int:
    return 5 * batch_size


def _even(shuffle: bool, **_: Any) -> str:
    return "balance" if shuffle else "none"


#: Name -> default; a function where it follows from other arguments. None: drawn, measured, or nothing.
DESIGNED: dict[str, Any] = {
    "seed": None,
    "seed_numer": None,
    "seed_number": None,
    "data_queue_size": 10,
    "message_queue_size": 10,
    "max_buffer_size": _max_buffer_size,
    "collate_fn": None,
    "batch_encoder": None,
    "batch_decoder": None,
    "logger": None,
    "nearby_shuffle": _nearby_shuffle,
    "nearby_mix": 16,
    "benchmark": True,
    "benchmark_file": None,
    "validate": True,
    "multithread": True,
    "max_nb_batch_on_device": 1,
    "even": _even,
    "drop_last": False,
    "elastic": False,
    "plan": None,
    "in_order": True,
    "random_per": "batch",
    "worker_threads": 1,
    "worker_init": None,
    "share_dataset": False,
    "start_method": "auto",
    "allow_fork": False,
    "on_error": "raise",
    "max_skipped": 100,
    "retries": 0,
    "max_attempts": 3,
    "timeout_s": 300.0,
    "ragged": "error",
    "check_finite": False,
    "max_worker_nbytes": None,
    "memory_budget": None,
    "max_batch_nbytes": None,
    "trace_file": None,
    "replay_file": None,
    "engine": "local",
    "cache_setting": None,
    "rotation_setting": None,
}
