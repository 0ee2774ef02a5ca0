"""Ranges in torch's profiler, where one is running, and nothing at all where none is."""

from __future__ import annotations

import sys

import torch

from swift_loader.telemetry import ranges
from tests.datasets import Numbers
from tests.loaders import started


def test_a_profiler_that_runs_shows_the_wait_and_the_landing_of_each_batch():
    with started(Numbers, {"count": 32}, worker_per_consumer=0) as loader:
        batches = iter(loader)
        next(batches)  # before the profiler runs
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            next(batches), next(batches)
        next(batches)
    counts = {event.key: event.count for event in profiler.key_averages() if event.key.startswith("swift_loader")}
    assert counts == {"swift_loader: wait for data": 2, "swift_loader: transfer to device": 2}


def test_without_a_profiler_there_is_nothing_and_torch_is_not_needed(monkeypatch):
    assert ranges.profiled("a") is ranges.profiled("b")
    monkeypatch.delitem(sys.modules, "torch.autograd.profiler")
    with ranges.profiled("a"):
        assert "torch.autograd.profiler" not in sys.modules
