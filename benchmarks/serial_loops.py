"""Ceiling: processes that fetch and collate in a loop and send nothing, as workers would that nobody asks for data."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import default_collate

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from benchmarks.sides import Work


def serial_batches_per_s(work: Work, seconds: float, processes: int = 2) -> float:
    """Batches per second that so many forked processes make at the same time, each for itself."""
    dataset = work.dataset_class(**work.dataset_kwargs)
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes)
    answers = context.SimpleQueue()

    def answer(number: int) -> None:
        answers.put(_loop(dataset, work, number, seconds, barrier))

    children = [context.Process(target=answer, args=(number,)) for number in range(processes)]
    for child in children:
        child.start()
    total: float = sum(answers.get() for _ in children)
    for child in children:
        child.join()
    return total


def _loop(dataset: Any, work: Work, number: int, seconds: float, barrier: Barrier) -> float:
    torch.set_num_threads(1)  # as torch's own workers do
    collate = work.collate_fn or default_collate
    fetch_all = getattr(dataset, "__getitems__", None)
    order = np.random.default_rng(number).permutation(len(dataset)).tolist()
    batches = [order[first : first + work.batch_size] for first in range(0, len(order), work.batch_size)]
    barrier.wait()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        indices = batches[done % len(batches)]
        collate(fetch_all(indices) if fetch_all else [dataset[index] for index in indices])
        done += 1
    return done / (time.perf_counter() - began)
