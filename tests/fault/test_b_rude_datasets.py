"""Beside the rows of B: what else the code of users does to the process that runs it, and what holds all the same."""

from __future__ import annotations

from typing import Any

import pytest

from swift_loader import PoisonedTicket
from tests.datasets import calls
from tests.fault.oracle import differences, faultless, record
from tests.fault.rude import RUDE, ClosesAll, Derived, Rude, Whole, Wrapper, polite
from tests.loaders import started
from tests.watching import until


@pytest.mark.parametrize("how", RUDE)
def test_b17_a_dataset_that_is_rude_harms_no_batch(how: str):
    kwargs, seeded = {"how": how, "count": 160}, how == "seeds"
    given = {"random_per": "sample" if seeded else "batch", "data_queue_size": 2}
    expected = faultless(2, dataset=polite, **given)
    with started(Rude, kwargs, **given) as loader:
        assert not differences(record(loader, 2), expected)


def test_b17_a_worker_that_cannot_speak_any_more_is_replaced(tmp_path):
    with started(ClosesAll, {"folder": str(tmp_path), "times": 2}) as loader:
        assert not differences(record(loader), faultless())


def test_b17_a_sample_that_always_closes_our_descriptors_is_poison(tmp_path):
    kwargs, given = {"folder": str(tmp_path), "times": 100}, {"shuffle": False, "max_attempts": 2, "validate": False}
    with started(ClosesAll, kwargs, worker_per_consumer=1, **given) as loader, pytest.raises(PoisonedTicket):
        list(loader)
    until(lambda: len(calls(tmp_path, "closes")) >= 2)


@pytest.mark.parametrize("dataset", [Wrapper, Derived])
@pytest.mark.parametrize("count", [0, 1])
def test_b18_what_a_wrapper_or_a_subclass_does_to_a_sample_is_never_left_out(dataset: Any, count: int):
    with started(dataset, {"count": 16}, worker_per_consumer=count) as loader:
        for batch in loader:
            assert batch["own"].tolist() == (2 * batch["index"]).tolist()


def test_b18_whole_batches_are_asked_for_where_nothing_is_left_out():
    with started(Whole, {"count": 16}, worker_per_consumer=1) as loader:
        assert all(batch["whole"].all() for batch in loader)
