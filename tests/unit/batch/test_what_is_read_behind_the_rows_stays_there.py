"""Arrays in the spare room of a slot are sent from where they lie; all others are copied there."""

import numpy as np
import torch

from swift_loader.batch.codec import decode, encode
from swift_loader.batch.collate import RowWriter, column_views, spec_of
from swift_loader.batch.layout import ALIGNMENT
from swift_loader.batch.spare import Spare
from tests.unit.batch.samples import written

LARGE = 70_000
"""Bytes that do not go along in the pickle."""


def test_large_arrays_of_lists_lie_side_by_side_until_there_is_no_room():
    memory = np.zeros(ALIGNMENT + 250_000, np.uint8)
    spare = Spare(memory, ALIGNMENT, {0, 2})
    one, two = spare.empty(0, (250, 75), "float32"), spare.empty(2, (LARGE,), "uint8")
    assert [spare.place_of(one), spare.place_of(two), spare.end] == [64, 75_072, 145_088]
    for leaf, shape in (
        (1, (LARGE,)),
        (0, (1000,)),
        (2, (0, 4)),
        (0, (105_000,)),
    ):  # for a row, small, empty, large
        other = spare.empty(leaf, shape, "uint8")
        assert (other.shape, spare.place_of(other), spare.end) == (shape, None, 145_088)
    last = spare.empty(0, (104_000,), "uint8")
    assert (spare.place_of(last), spare.end) == (145_088, 249_088)
    one[...], two[...], last[...] = 1, 2, 3
    assert memory[64:68].tolist() == np.ones(1, np.float32).view(np.uint8).tolist()
    assert (memory[75_072], memory[145_088], memory[249_087], memory[249_088]) == (2, 3, 3, 0)
    assert spare.place_of(torch.from_numpy(last).numpy()[5:]) == 145_093


def test_what_lies_there_is_neither_copied_to_a_list_nor_on_sending():
    spec = spec_of(np.zeros(LARGE, np.uint8), 4)
    memory = np.zeros(spec.nbytes + 3 * 80_000, np.uint8)
    spare = Spare(memory, spec.nbytes, {0})
    writer = RowWriter(spec, memory, ragged=True)
    ours = [spare.empty(0, (LARGE + n,), "uint8") for n in (1, 2)]
    theirs = np.full(LARGE + 3, 3, np.uint8)
    for n, array in enumerate(ours):
        array[...] = n + 1
    writer.begin(spare)
    for row, sample in enumerate([np.zeros(LARGE, np.uint8), ours[0], theirs, torch.from_numpy(ours[1])]):
        writer.write(row, sample)
    _, (values,) = writer.finish()
    assert [np.shares_memory(value, memory) for value in values] == [False, True, False, True]
    assert not np.shares_memory(values[2], theirs)

    encoded = encode(values)
    spans, end = encoded.spans(spare.end, spare)
    assert [place for place, _ in spans] == [spare.end, spec.nbytes, spare.end + 70_016, spec.nbytes + 70_016]
    whole = np.zeros(end, np.uint8)
    whole[: len(memory)] = memory  # as where the slot had to be made larger
    encoded.lay(whole, spans, spare.end)
    landed = decode(encoded.stream, [whole[place : place + nbytes] for place, nbytes in spans])
    assert [(len(value), set(value.tolist())) for value in landed] == [
        (LARGE, {0}), (LARGE + 1, {1}), (LARGE + 3, {3}), (LARGE + 2, {2}),
    ]  # fmt: skip


def test_a_batch_that_has_none_copies_as_before():
    sample = np.zeros(3)
    writer = RowWriter(spec_of(sample, 2), np.zeros(1 << 10, np.uint8), ragged=True)
    writer.begin(Spare(np.zeros(100, np.uint8), 0, {0}))
    _, (values,) = written(writer, [np.zeros(2), sample])
    assert not np.shares_memory(values[1], sample)


def test_a_column_that_has_become_wider_lies_behind_what_lies_there():
    spec = spec_of((np.zeros(3, np.uint8), np.float32(0)), 3)
    memory = np.zeros(spec.nbytes + 80_000, np.uint8)
    spare = Spare(memory, spec.nbytes, {0})
    writer = RowWriter(spec, memory, ragged=True)
    large = spare.empty(0, (LARGE,), "uint8")
    large[...] = 7
    writer.begin(spare)
    for row, sample in enumerate([(np.zeros(3, np.uint8), np.float32(0.5)), (large, 0.1), (large, 3)]):
        writer.write(row, sample)
    wide, (values,) = writer.finish()
    assert writer.is_apart
    assert (writer.end, wide.offsets[1]) == (spare.end, spare.end)
    assert wide.nbytes >= spare.end + 3 * 8
    whole = np.zeros(wide.nbytes, np.uint8)
    whole[: writer.end] = memory[: writer.end]
    writer.lay(whole)
    assert column_views(wide, whole)[1].tolist() == [0.5, 0.1, 3.0]
    assert values[1] is large
    assert set(whole[spec.nbytes : spec.nbytes + LARGE].tolist()) == {7}
    writer.begin()
    assert not writer.is_apart
