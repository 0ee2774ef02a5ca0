"""Which stage serves which device; and what is said of a device that is not there, before anything was started."""

import types

import numpy as np
import pytest
import torch

from swift_loader.device.choose import stage_for
from swift_loader.device.cuda import CudaStage
from swift_loader.device.driver import NAMES
from swift_loader.device.host import HostStage
from swift_loader.device.plain import PlainStage
from swift_loader.errors import ConfigError


def module(*names, available=True, count=2):
    """What a device's package offers."""
    made = types.SimpleNamespace(is_available=lambda: available, device_count=lambda: count, synchronize=print)
    for name in names:
        setattr(made, name, print)
    return made


@pytest.fixture
def offers(monkeypatch):
    """Has torch offer a device's package."""
    remembered = torch.get_device_module.cache_clear  # torch keeps what it found

    def offer(name, package):
        monkeypatch.setattr(torch, name, package)
        remembered()

    yield offer
    monkeypatch.undo()
    remembered()


def chosen(device, to_device=None):
    return type(stage_for(device, to_device, None, 1))


@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu")])
@pytest.mark.parametrize("to_device", [None, print])
def test_the_host_needs_no_copies(device, to_device):
    assert chosen(device, to_device) is HostStage


@pytest.mark.parametrize("device", [0, np.int64(0)])
def test_a_number_without_cuda_is_told_what_it_means(device):
    with pytest.raises(ConfigError, match=r"device 0 means cuda:0, and no CUDA is here.*Here is only device=\"cpu\""):
        stage_for(device, None, None, 1)


def test_shapes_alone_are_moved_plainly():
    assert chosen("meta") is PlainStage


@pytest.mark.parametrize("name", ["cuda", "cuda:1", torch.device("cuda", 1)])
def test_a_device_with_streams_and_page_locks_is_served_ahead_unless_the_user_moves_batches(offers, name):
    offers("cuda", module(*NAMES))
    assert chosen(name) is CudaStage
    assert chosen(name, print) is PlainStage


@pytest.mark.parametrize("missing", NAMES)
def test_a_device_that_lacks_any_of_it_is_served_plainly(offers, missing):
    offers("xpu", module(*(name for name in NAMES if name != missing)))
    assert chosen("xpu:0") is PlainStage


def test_a_device_with_events_alone_is_served_plainly(offers):
    offers("mps", types.SimpleNamespace(is_available=lambda: True, Event=print))
    assert chosen("mps") is PlainStage


def test_an_index_beyond_the_last_device_is_refused(offers):
    offers("cuda", module(*NAMES))
    with pytest.raises(ConfigError, match="device cuda:2 was asked for, and there are 2 of 'cuda', counted from 0"):
        stage_for("cuda:2", None, None, 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda", 3)])
def test_a_device_that_this_machine_lacks_is_refused(device):
    with pytest.raises(ConfigError, match=r"device cuda\S* is not available to this torch .* Here is only device=.cpu"):
        stage_for(device, None, None, 1)


def test_a_device_whose_package_was_not_imported_is_refused():
    with pytest.raises(ConfigError, match=r"device hpu is not known to this torch .* import the package"):
        stage_for("hpu", None, None, 1)


@pytest.mark.parametrize("device", ["gpu9", object(), 1.5, "cuda:-1", "cpu:x"])
def test_what_names_no_device_is_refused(device):
    with pytest.raises(ConfigError, match=r"device must be a torch\.device, its name or its index"):
        stage_for(device, None, None, 1)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator that an index means")
def test_an_index_means_nothing_where_there_is_no_accelerator():
    with pytest.raises(ConfigError):
        stage_for(0, None, None, 1)
