"""What an error says in words it has as attributes too."""

import pytest

from swift_loader import DataError, LayoutError, NoRoom, PoisonedTicket, WorkerDied, WorkerHung, WorkerStartFailed
from tests.datasets import CannotBeBuilt, Deadly, DiesWhenBuilt, Failing, Hangs, Pictures, Ragged
from tests.loaders import made, started

HERE = {"shuffle": False, "validate": False, "batch_size": 4}


def _raised(kind, dataset_class, kwargs, **settings):
    with started(dataset_class, kwargs, **{**HERE, **settings}) as loader, pytest.raises(kind) as caught:
        list(loader)
    return caught.value


def _place(error):
    return error.consumer, error.epoch, error.step, error.index, error.stage


@pytest.mark.parametrize("workers", [0, 1])
def test_of_a_sample_that_fails_where_and_which(workers):
    error = _raised(DataError, Failing, {"bad": (5,)}, worker_per_consumer=workers)
    assert _place(error) == (0, 0, 1, 5, "fetch")
    assert error.worker == 0
    assert type(error.__cause__) is OSError


def test_of_samples_that_do_not_fit_the_first_that_does_not():
    error = _raised(LayoutError, Ragged, {}, worker_per_consumer=0)
    assert _place(error) == (0, 0, 0, 1, "collate")


@pytest.mark.parametrize("workers", [0, 1])
def test_of_a_batch_that_is_too_large_how_large(workers):
    error = _raised(NoRoom, Pictures, {}, worker_per_consumer=workers, max_batch_nbytes=1000)
    assert error.needed > error.allowed == 1000
    assert isinstance(error, MemoryError)
    assert (error.consumer, error.worker, error.epoch, error.step) == (0, 0, 0, 0)


@pytest.mark.parametrize(("how", "ended"), [("segfault", (None, "SIGSEGV")), ("exit 7", (7, None))])
def test_of_a_sample_that_ends_workers_how_they_ended(how, ended, tmp_path):
    settings = {"worker_per_consumer": 1, "max_attempts": 2}
    error = _raised(PoisonedTicket, Deadly, {"folder": str(tmp_path), "how": how, "bad": 6}, **settings)
    assert (error.exit_status, error.signal) == ended
    assert error.how == ("was killed by SIGSEGV" if how == "segfault" else "exited with code 7")
    assert ("__getitem__" in error.stack) is (how == "segfault")
    assert _place(error) == (0, 0, 1, 6, "make the batch")


@pytest.mark.filterwarnings("ignore:.*made no progress:RuntimeWarning")
def test_of_a_sample_that_hangs_that_it_did(tmp_path):
    settings = {"worker_per_consumer": 1, "max_attempts": 1, "timeout_s": 0.5}
    error = _raised(PoisonedTicket, Hangs, {"folder": str(tmp_path), "bad": 6}, **settings)
    assert error.how.startswith("made no progress for ")
    assert error.index == 6


def _not_started(kind, dataset_class, kwargs, **settings):
    with made(dataset_class, kwargs, worker_per_consumer=1, **settings) as loader, pytest.raises(kind) as caught:
        loader.start(0)
    return caught.value


def test_of_a_dataset_that_cannot_be_built_in_which_worker():
    error = _not_started(WorkerStartFailed, CannotBeBuilt, {})
    assert (error.consumer, error.worker, error.stage) == (0, 0, "build the dataset")


def test_of_workers_that_never_get_anywhere_how_the_last_one_ended(tmp_path):
    error = _not_started(WorkerDied, DiesWhenBuilt, {"folder": str(tmp_path)})
    assert (error.consumer, error.worker, error.exit_status, error.signal) == (0, 0, 9, None)
    assert not isinstance(error, WorkerHung)
