"""Whole loaders that land ahead: real workers, real slots, the real thread; only the device is a recording one."""

import gc
import itertools
import subprocess
import sys
import threading
import warnings

import pytest
import torch

from swift_loader import ConfigError, DataError
from swift_loader.device import choose
from swift_loader.device.cuda import CudaStage
from swift_loader.device.host import HostStage
from swift_loader.plan.position import Position
from tests.datasets import Deadly, Failing, Growing, Pictures, Records
from tests.loaders import made, started
from tests.slow import slow
from tests.torch_datasets import Wrapped
from tests.unit.device.recording_driver import RecordingDriver
from tests.watching import ROOT, until, workers


@pytest.fixture
def driver(monkeypatch):
    """A device that works late; every loader of the test lands on it."""
    made_driver = RecordingDriver(seed=1)

    def stage_for(device, to_device, decoder, ahead):
        return CudaStage(made_driver, decoder, ahead)

    monkeypatch.setattr(choose, "stage_for", stage_for)
    return made_driver


@pytest.fixture
def quick_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def tensors(batch):
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else [batch]
    return [value for value in values if isinstance(value, torch.Tensor)]


def on_host(dataset, kwargs, epochs, **settings):
    """Each epoch's batches as they are without a device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "stage_for", lambda device, to_device, decoder, ahead: HostStage(decoder, None, None))
        with started(dataset, kwargs, **settings) as loader:
            return [[[tensor.clone() for tensor in tensors(batch)] for batch in loader] for _ in range(epochs)]


def use_all(driver, batch, expected):
    for tensor, value in zip(tensors(batch), expected, strict=True):
        assert (tensor.dtype, tensor.shape) == (value.dtype, value.shape)
        driver.use(tensor, value)


def is_well(driver):
    """After the loader was closed: what was computed held what it should, and nothing is left on the device."""
    driver.synchronize()
    gc.collect()
    assert driver.wrong == []
    assert driver.live_count == 0
    assert driver.locked == {}
    return True


@pytest.mark.parametrize(
    ("dataset", "kwargs", "ahead"),
    [
        (Records, {"count": 60}, 3),
        (Pictures, {"count": 96}, 1),
        (Growing, {"count": 40}, 3),
        slow(Records, {"count": 60}, 1),
        slow(Pictures, {"count": 96}, 3),
        slow(Growing, {"count": 40}, 1),
    ],
)
def test_batches_are_those_of_the_host(driver, quick_switches, dataset, kwargs, ahead):
    settings = {"max_nb_batch_on_device": ahead, "batch_size": 1 if dataset is Growing else 8}
    expected = on_host(dataset, kwargs, 2, **settings)
    with started(dataset, kwargs, **settings) as loader:
        for epoch in expected:
            for batch, values in zip(loader, epoch, strict=True):
                use_all(driver, batch, values)
                del batch
    assert driver.staged_copies == 0
    assert is_well(driver)


def test_epochs_that_are_left_early_leave_nothing_to_the_next(driver, quick_switches):
    expected = on_host(Pictures, {"count": 64}, 12, max_nb_batch_on_device=2)
    with started(Pictures, {"count": 64}, max_nb_batch_on_device=2) as loader:
        for number, epoch in enumerate(expected):
            for batch, values in itertools.islice(zip(loader, epoch, strict=True), number % 5 + 1):
                use_all(driver, batch, values)
                del batch
    assert is_well(driver)


def test_a_delivery_that_is_taken_while_the_iteration_is_left_is_void():
    class Race:
        """Restarts after the delivery was taken from here, and before the lock is."""

        def get(self, timeout_s):
            delivery = ready.get(timeout_s)
            exchange.ready = ready
            exchange.restart(Position())
            return delivery

    expected = on_host(Pictures, {}, 1)[0]
    with started(Pictures, {}) as loader:
        exchange = loader._runtime._source._exchange
        until(lambda: exchange.dispatch.stock.ready_count > 0)
        ready, exchange.ready = exchange.ready, Race()
        assert exchange.take(0.0) is None
        assert exchange.dispatch.stock.ready_count >= 0
        for batch, values in zip(loader, expected, strict=True):
            assert all(torch.equal(tensor, value) for tensor, value in zip(batch, values, strict=True))
        del batch
        until(lambda: loader.statistics()["slots_leased"] == 0)


def test_a_run_goes_on_where_its_state_was_taken(driver):
    expected = on_host(Records, {"count": 80}, 1)[0]
    with started(Records, {"count": 80}, max_nb_batch_on_device=3) as loader:
        for batch, values in itertools.islice(zip(loader, expected, strict=True), 4):
            use_all(driver, batch, values)
        state = loader.state_dict()
    del batch
    with started(Records, {"count": 80}, max_nb_batch_on_device=3) as loader:
        next(iter(loader))  # what was landed after this one is void
        loader.load_state_dict(state)
        for batch, values in zip(loader, expected[4:], strict=True):
            use_all(driver, batch, values)
        del batch
    assert is_well(driver)


def test_a_worker_that_dies_changes_no_batch(driver, tmp_path):
    expected = on_host(Deadly, {"folder": str(tmp_path), "times": 0}, 1)[0]
    with started(Deadly, {"folder": str(tmp_path), "times": 1}) as loader:
        for batch, values in zip(loader, expected, strict=True):
            use_all(driver, batch, values)
        del batch
    assert is_well(driver)


def test_a_batch_that_cannot_be_made_raises_at_its_step_and_the_others_come(driver):
    settings = {"batch_size": 2, "shuffle": False, "validate": False}
    with started(Failing, {"count": 16, "bad": (5,)}, **settings, max_nb_batch_on_device=3) as loader:
        epoch = iter(loader)
        seen = [next(epoch) for _ in range(2)]
        with pytest.raises(DataError, match="disc error at 5"):
            next(epoch)
        seen += epoch
        driver.synchronize()
        seen = [batch.tolist() for batch in seen]
        assert seen == [[2 * step, 2 * step + 1] for step in range(8) if step != 2]
    assert is_well(driver)


def test_few_slots_are_enough(driver):
    budget = 4 * 600_000  # of batches that take 524,352 bytes
    expected = on_host(Pictures, {"count": 96}, 1)[0]
    with started(Pictures, {"count": 96}, memory_budget=budget, max_nb_batch_on_device=3) as loader:
        for batch, values in zip(loader, expected, strict=True):
            use_all(driver, batch, values)
            del batch
        assert loader.statistics()["slot_bytes"] <= budget
    assert is_well(driver)


def test_no_more_batches_are_on_the_device_than_were_asked_for(driver):
    with started(Pictures, {"count": 160}, max_nb_batch_on_device=2) as loader:
        for batch in loader:
            del batch
    # Of two leaves each: two batches ahead, one that is handed over, and one that the loop has yet to drop.
    assert driver.peak_count <= 2 * 4
    assert is_well(driver)


def landing_threads():
    return [thread.name for thread in threading.enumerate() if "landing" in thread.name]


def test_the_thread_begins_with_the_first_iteration_and_ends_with_the_loader(driver):
    with made(Records, {}, nb_consumer=2) as loader:
        loader.start(1)
        epoch = iter(loader)
        assert landing_threads() == []
        next(epoch)
        assert landing_threads() == ["swift-landing-c1"]
    assert landing_threads() == []


def test_a_loader_that_was_forgotten_ends_its_thread(driver):
    loader = made(Pictures, {})
    loader.start(0)
    next(iter(loader))
    with pytest.warns(ResourceWarning, match="was not closed"):
        del loader
    until(lambda: not landing_threads())


def test_a_loader_is_closed_from_its_own_loop(driver):
    with started(Pictures, {}) as loader:
        for batch in loader:
            del batch
            loader.close()
            break
    assert is_well(driver)


@pytest.mark.parametrize("dataset", [Records, Pictures])
def test_without_workers_nothing_is_landed_ahead(driver, dataset):
    expected = on_host(dataset, {}, 1)[0]
    with started(dataset, {}, worker_per_consumer=0) as loader:
        for batch, values in zip(loader, expected, strict=True):
            use_all(driver, batch, values)
            del batch
            assert landing_threads() == []
        assert driver.log == ["open"]
    assert is_well(driver)


def test_a_refused_page_lock_is_told_once_on_the_users_line(driver):
    driver.refuses = "out of memory (error 2)"
    expected = on_host(Pictures, {}, 1)[0]
    with started(Pictures, {}) as loader, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for batch, values in zip(loader, expected, strict=True):
            use_all(driver, batch, values)
            del batch
    assert [(one.category, one.filename) for one in told] == [(RuntimeWarning, __file__)]
    assert is_well(driver)


def test_objects_that_stay_on_the_host_may_be_kept(driver):
    with started(Pictures, {}, collate_fn=Wrapped) as loader:
        kept = list(loader)
    assert [batch.pictures.shape[0] for batch in kept] == [8] * 4
    assert all((batch.pictures[:, 0] == batch.pictures[:, -1]).all() for batch in kept)
    assert len({int(batch.pictures[0, 0]) for batch in kept}) == 4
    del kept
    assert is_well(driver)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_check_for_gpus_says_in_one_line_that_there_is_none():
    run = _gpu_check()
    assert (run.returncode, run.stderr) == (2, "")
    assert len(run.stdout.splitlines()) == 1


@pytest.mark.soak
def test_the_check_for_gpus_can_be_rehearsed_without_one():
    run = _gpu_check("--rehearse")
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    verdicts = [line[:4] for line in run.stdout.splitlines() if not line.startswith(" ")]
    assert verdicts.count("pass") >= 7
    assert "FAIL" not in verdicts


def _gpu_check(*words):
    command = [sys.executable, "-m", "benchmarks.gpu_check", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", torch.device("cuda", 1)])
def test_a_device_that_is_not_there_is_refused_before_anything_is_started(device):
    with made(Records) as loader, pytest.raises(ConfigError, match="is not available to this torch"):
        loader.start(0, device)
    assert workers() == []
