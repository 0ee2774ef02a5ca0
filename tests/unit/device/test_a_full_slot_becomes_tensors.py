"""Landing without a device: small leaves are copied out, large ones hold their slot; structures stay what they are."""

import collections
import gc

import numpy as np
import pytest
import torch

from swift_loader.batch.codec import encode
from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.batch.layout import ENCODED, OBJECT
from swift_loader.device.host import COPY_NBYTES, HostStage
from swift_loader.device.stage import Cargo
from tests.unit.batch.samples import Box, Pair, written

SMALL, LARGE = 100, COPY_NBYTES // 4 + 1


class Slot:
    """Memory that knows which of its arrays live."""

    def __init__(self, nbytes=1 << 22):
        self.memory = np.zeros(nbytes, np.uint8)
        self.held = []
        self.views = {}

    def hold(self, shape, dtype, offset):
        self.held.append((shape, dtype, offset))
        return np.ndarray(shape, dtype, self.memory, offset)


def laid(encoded, memory, start):
    spans, _ = encoded.spans(start)
    encoded.lay(memory, spans, start)
    return spans


def _cargo(slot, samples, capacity=None, *, ragged=False):
    spec = spec_of(samples[0], capacity or len(samples))
    spec, objects = written(RowWriter(spec, slot.memory, ragged=ragged), samples)
    encoded = encode(objects) if objects else None
    spans = laid(encoded, slot.memory, spec.nbytes) if encoded else []
    return Cargo(spec, len(samples), slot.memory, slot.views, encoded.stream if encoded else None, spans, slot.hold)


def _land(slot, samples, *settings, **more):
    return HostStage(None, *(settings or (None, None))).land(_cargo(slot, samples, **more))


def test_a_small_leaf_is_copied_out():
    slot = Slot()
    batch = _land(slot, [np.full(SMALL, i, np.float32) for i in range(4)])
    slot.memory[:] = 0xFF
    assert batch[:, 0].tolist() == [0, 1, 2, 3]
    assert slot.held == []


def test_a_large_leaf_holds_its_slot_and_can_be_written_to():
    slot = Slot()
    batch = _land(slot, [np.full(LARGE, i, np.float32) for i in range(4)])
    assert len(slot.held) == 1
    batch += 1
    assert slot.memory[:4].view(np.float32)[0] == 1.0


@pytest.mark.parametrize(("nbytes", "held"), [(COPY_NBYTES // 4, 0), (COPY_NBYTES // 4 + 1, 1)])
def test_what_counts_is_the_size_of_the_rows_that_were_filled(nbytes, held):
    slot = Slot()
    _land(slot, [np.zeros(nbytes, np.uint8)] * 4, capacity=32)
    assert len(slot.held) == held


def test_leaves_have_storages_of_their_own():
    slot = Slot()
    image, label, text = _land(slot, [(np.full(LARGE, i, np.float32), i, "x") for i in range(4)])
    storages = {leaf.untyped_storage().data_ptr() for leaf in (image, label)}
    assert len(storages) == 2
    assert label.untyped_storage().nbytes() == 4 * 8
    assert image.untyped_storage().nbytes() == 4 * LARGE * 4
    assert len(slot.held) == 1
    assert text == ["x"] * 4


@pytest.mark.parametrize("length", [SMALL, LARGE])
def test_a_batch_smaller_than_its_layout_has_only_its_rows(length):
    batch = _land(Slot(), [np.full(length, i, np.float32) for i in range(3)], capacity=8)
    assert batch.shape == (3, length)
    assert batch.is_contiguous()


@pytest.mark.parametrize("length", [SMALL, LARGE])
def test_dtypes_that_numpy_lacks_come_as_they_were(length):
    samples = [torch.full((length,), i).to(torch.bfloat16) for i in range(3)]
    assert torch.equal(_land(Slot(), samples), torch.stack(samples))


def test_large_ragged_leaves_and_objects_hold_the_slot():
    slot = Slot()
    samples = [(np.full(LARGE + i, i, np.float32), np.zeros(LARGE, [("a", "i4")])) for i in range(3)]
    ragged, records = _land(slot, samples, ragged=True)
    assert [len(one) for one in ragged] == [LARGE, LARGE + 1, LARGE + 2]
    assert all(type(one) is torch.Tensor for one in ragged)
    assert all(one.dtype.names == ("a",) for one in records)
    assert len(slot.held) == 6


def test_views_of_a_slot_are_made_once_for_a_layout():
    slot, stage = Slot(), HostStage(None, None, None)
    cargo = _cargo(slot, [np.zeros(SMALL)] * 4)
    stage.land(cargo)
    (kept,) = slot.views.values()
    stage.land(cargo)
    assert list(slot.views.values()) == [kept]


def test_only_so_many_layouts_are_kept_and_none_is_mistaken_for_another():
    slot, stage = Slot(), HostStage(None, None, None)
    for length in range(1, 200):
        batch = stage.land(_cargo(slot, [np.full(length, length)] * 2))
        assert batch.shape == (2, length)
        assert (batch == length).all()
        gc.collect(0)
    assert len(slot.views) <= 64


def test_an_object_of_the_users_collate_lands_whole():
    slot = Slot()
    value = Pair({"x": torch.arange(LARGE)}, [None, "text"])
    encoded = encode([[value]])
    cargo = Cargo(OBJECT, 4, slot.memory, {}, encoded.stream, laid(encoded, slot.memory, 0), slot.hold)
    batch = HostStage(None, None, None).land(cargo)
    assert type(batch) is Pair
    assert torch.equal(batch.left["x"], torch.arange(LARGE))
    assert len(slot.held) == 1


def test_a_pickle_too_large_for_the_parcel_is_found_in_the_slot():
    slot = Slot()
    encoded = encode([[b"x" * 50_000, np.arange(LARGE)]])
    spans = laid(encoded, slot.memory, 0)
    end = max(start + nbytes for start, nbytes in spans)
    slot.memory[end : end + len(encoded.stream)] = np.frombuffer(encoded.stream, np.uint8)
    cargo = Cargo(OBJECT, 1, slot.memory, {}, None, [*spans, (end, len(encoded.stream))], slot.hold)
    assert HostStage(None, None, None).land(cargo) == b"x" * 50_000


def test_bytes_of_the_users_encoder_go_through_the_users_decoder():
    slot = Slot()
    slot.memory[100:103] = np.frombuffer(b"abc", np.uint8)
    cargo = Cargo(ENCODED, 3, slot.memory, {}, None, [(100, 3)], slot.hold)
    assert HostStage(lambda data: data.decode() + "!", None, None).land(cargo) == "abc!"


def test_a_batch_is_moved_by_the_users_function_if_there_is_one():
    samples = [np.zeros(SMALL)] * 2
    assert _land(Slot(), samples, torch.device("meta"), lambda batch, device: (batch.shape, device)) == (
        (2, SMALL),
        torch.device("meta"),
    )
    assert _land(Slot(), samples, None, lambda batch, device: device) is None


def test_a_batch_is_moved_to_the_device_if_one_was_named():
    batch = _land(Slot(), [{"x": Box(np.zeros(SMALL), "name")}] * 2, torch.device("meta"), None)
    assert batch["x"].content.device.type == "meta"
    assert batch["x"].label == ["name", "name"]


def test_containers_stay_what_they_were():
    sample = collections.OrderedDict(a=[1, (2.5,)], b=Pair(np.ones(2), Box("x")))
    batch = _land(Slot(), [sample] * 2)
    assert type(batch) is collections.OrderedDict
    assert (type(batch["a"]), type(batch["a"][1]), type(batch["b"]), type(batch["b"].right)) == (list, tuple, Pair, Box)
