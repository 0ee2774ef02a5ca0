"""Ticket -> batch in a slot, by the default collate, the user's, the user's encoder, or the dataset itself."""

import collections
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from swift_loader.errors import DataError, LayoutError
from swift_loader.wire.page import FETCHES
from swift_loader.worker.unmade import MakeFailed, TakenBack
from tests.unit.batch.samples import collated, examples, same
from tests.unit.worker.making import Berth, Listed, Making

LARGE = 20_000


def _fails(making, step=0):
    with pytest.raises(MakeFailed) as caught:
        making.made(step)
    return caught.value.report


@examples
@given(st.lists(st.integers(0, 5), min_size=1, max_size=14), st.integers(1, 5))
def test_whatever_the_layouts_of_batches_each_is_what_its_samples_make_it(kinds, batch_size):
    """A batch is a function of its samples: what this worker made before does not matter."""
    shapes = [np.zeros(3, np.float32), np.zeros(4, np.float32), 7, 7.5, "text", {"x": torch.ones(2)}]
    of_step = [kinds[start : start + batch_size] for start in range(0, len(kinds), batch_size)]
    making = Making(Listed([shapes[kind] for kind in kinds]), batch_size)
    for step, kinds_of_step in enumerate(of_step):
        samples = [shapes[kind] for kind in kinds_of_step]
        alike = len(set(kinds_of_step)) == 1 or set(kinds_of_step) == {2, 3}
        if alike:
            assert same(making.batch(step), collated(samples))
        else:
            assert _fails(making, step).stage == "collate"


def test_batches_that_mix_numbers_alike_share_one_layout():
    making = Making(Listed([1, 2.5] * 8))
    specs = {id(making.made(step).spec) for step in range(4)}
    assert len(specs) == 1


def test_only_so_many_layouts_are_kept():
    making = Making(Listed([np.zeros(n) for n in range(200)]), 1)
    for step in range(200):
        assert making.batch(step).shape == (1, step)
    assert len(making.maker._rows._specs) <= 32
    assert len(making.berth.slot.views) <= 32


def test_objects_beside_columns_go_with_the_parcel_or_behind_the_columns():
    for length in (3, 100_000):
        making = Making(Listed([(np.full(10, i), "x" * length, np.array([str(i)])) for i in range(4)]))
        made = making.made(0)
        assert (made.stream is None) == (length > 3)
        assert same(making.batch(0), collated(list(making.dataset.samples)))


def test_large_objects_lie_in_the_slot_and_do_not_overlap_the_columns():
    records = [np.full(LARGE, i, [("a", "i4"), ("b", "f4")]) for i in range(4)]
    making = Making(Listed([(np.full(LARGE, i), record) for i, record in enumerate(records)]))
    numbers, again = making.batch(0)
    assert numbers[:, -1].tolist() == [0, 1, 2, 3]
    assert all(np.array_equal(one, other) for one, other in zip(again, records, strict=True))
    assert making.berth.made == 2  # a larger slot in the middle of a batch keeps what was written


def test_a_slot_that_is_large_enough_is_not_made_again():
    making = Making(Listed([np.zeros(LARGE)] * 12))
    for step in range(3):
        making.batch(step)
    assert making.berth.made == 1


def test_the_users_collate_may_return_anything():
    Batch = collections.namedtuple("Batch", "x ids")  # noqa: PYI024 - known to no module

    def collate(samples):
        return Batch(torch.stack(samples), {"ids": {len(samples)}, "call": lambda: "called"})

    making = Making(Listed([torch.full((LARGE,), i) for i in range(6)]), collate_fn=collate)
    for step, rows in ((0, 4), (1, 2)):
        made = making.made(step)
        assert made.rows == rows
        assert sum(nbytes for _, nbytes in made.spans) == rows * LARGE * 8
        batch = making.batch(step)
        assert batch.x[:, 0].tolist() == list(range(4 * step, 4 * step + rows))
        assert batch.ids["call"]() == "called"


def test_the_users_encoder_and_decoder_are_each_others_inverse():
    def encode(batch):
        x, text = batch
        return x.tobytes() + "".join(text).encode()

    making = Making(Listed([(i, "ab"[i % 2]) for i in range(4)]), batch_encoder=encode, batch_decoder=bytes)
    assert making.batch(0) == np.arange(4).tobytes() + b"abab"
    empty = Making(Listed([1]), batch_encoder=lambda batch: b"", batch_decoder=bytes)
    assert empty.batch(0) == b""


def test_an_encoder_sees_dtypes_of_torchs_alone_as_tensors():
    seen = []

    def encode(batch):
        seen.append(batch)
        return b""

    samples = [(torch.full((2,), i).to(torch.bfloat16), torch.zeros(i).to(torch.bfloat16), i) for i in range(3)]
    Making(Listed(samples), ragged="list", batch_encoder=encode, batch_decoder=bytes).batch(0)
    fixed, ragged, numbers = seen[0]
    assert fixed.dtype == torch.bfloat16
    assert fixed[:, 0].tolist() == [0, 1, 2]
    assert [(one.dtype, len(one)) for one in ragged] == [(torch.bfloat16, n) for n in range(3)]
    assert isinstance(numbers, np.ndarray)


def test_an_encoder_and_a_collate_may_work_together():
    making = Making(Listed(list(range(4))), collate_fn=sum, batch_encoder=lambda n: b"%d" % n, batch_decoder=int)
    assert making.batch(0) == 6


class Direct(Listed):
    """Writes its rows itself."""

    def read_into(self, indices, rows):
        for row, index in enumerate(indices):
            rows["x"][row], rows["y"][row] = index, -index
        assert len(rows["x"]) == len(indices)
        self.calls = getattr(self, "calls", 0) + 1


def test_a_dataset_may_write_its_rows_itself_once_the_layout_is_known():
    dataset = Direct([{"x": np.full(3, i), "y": -i} for i in range(10)])
    making = Making(dataset)
    for step in range(3):
        batch = making.batch(step)
        assert same(batch, collated(dataset.samples[4 * step : 4 * step + 4]))
    assert dataset.calls == 2


class Growing:
    """A plan whose batches grow."""

    def step_count(self, epoch, consumer):
        return 3

    def indices(self, epoch, consumer, first, count):
        return [list(range((step + 1) * 3)) for step in range(first, first + count)]

    def fingerprint(self):
        return {}


def test_a_batch_larger_than_the_layout_gets_a_layout_of_its_own():
    for dataset in (Direct([{"x": np.full(3, i), "y": -i} for i in range(9)]), Listed([1.5] * 9)):
        making = Making(dataset, plan=Growing())
        for step in range(3):
            assert same(making.batch(step), collated(dataset.samples[: 3 * step + 3]))


def test_errors_name_the_sample_that_does_not_fit_and_the_ways_out():
    report = _fails(Making(Listed([1, 2, np.zeros(3), 4])))
    assert report.index == 2
    assert isinstance(report.exception(), LayoutError)
    for text in ("sample 2", "sample, 0", "(3,)", "collate_fn", "ragged='list'"):
        assert text in report.text
    assert "ragged" not in _fails(Making(Listed([1, "a"]), ragged="list")).text


PAD, LISTS, RAGGED = "pad_sequence", "make arrays of them", "ragged='list'"


@pytest.mark.parametrize(
    ("first", "later", "says", "says_not"),
    [
        (np.zeros(2), np.zeros(3), (RAGGED,), ()),
        ({"input_ids": [1, 2]}, {"input_ids": [1, 2, 3]}, (PAD, LISTS, RAGGED, "3 items", "2 items"), ()),
        (np.uint16(1), 1, ("No dtype is for both",), (RAGGED,)),
        (np.zeros((2, 2), np.uint16), np.zeros(3, int), ("Of one dtype", RAGGED), ()),
        (np.zeros(2), None, ("has None", "stands for it"), (RAGGED,)),
        (None, 1, ("has None", "stands for it"), (RAGGED, "tensor of")),
        ({"a": 1}, {"a": 1, "b": 2}, ("the keys ['a', 'b']", "same keys", "torch's collate leaves out"), (RAGGED,)),
        ({"a": 1}, {"b": 1}, ("the keys ['b']", "same keys"), (RAGGED,)),
        (
            dict.fromkeys(range(20), 1),
            dict.fromkeys(range(21), 1),
            ("21 keys, among them [20]", "has 20 keys."),
            ("19",),
        ),
        ([1], 1, ("same types",), (RAGGED,)),
        (1, [1], ("has a list", "same types"), (RAGGED,)),
        ("a", np.zeros(2), ("same types",), (RAGGED,)),
        (0.5, (1 << 53) + 1, ("9007199254740993, which float64 cannot hold", "one dtype"), (RAGGED,)),
        (1, 1 << 70, ("an integer of 71 bits", "smaller"), (RAGGED,)),
    ],
)
def test_an_error_advises_what_can_help(first, later, says, says_not):
    text = _fails(Making(Listed([first, first, later]))).text
    assert "sample 2" in text
    assert "collate_fn" in text
    for part in says:
        assert part in text
    for part in says_not:
        assert part not in text


@pytest.mark.parametrize(
    ("first", "later", "says", "says_not"),
    [
        ([1, 2], [1, 2, 3], ("make arrays of them, which ragged='list' is for", PAD), ("set ragged",)),
        (np.zeros(2, np.uint16), np.zeros(3, int), ("one dtype",), ("set ragged", "Make them alike")),
        (np.zeros(2), None, ("stands for it",), ("ragged",)),
        ({"a": 1}, {}, ("same keys",), ("ragged",)),
    ],
)
def test_with_ragged_lists_it_advises_what_can_help_then(first, later, says, says_not):
    text = _fails(Making(Listed([first, later]), ragged="list")).text
    for part in says:
        assert part in text
    for part in says_not:
        assert part not in text


@pytest.mark.parametrize(
    ("leaf", "says"),
    [
        ({1, 2}, "is a set, which the default collate cannot batch.*Convert it in the dataset, or give a collate_fn"),
        (np.ma.array([1]), "MaskedArray, whose mask would be lost.*data and its mask as two leaves"),
        (torch.eye(2).to_sparse(), "to_dense()"),
        (Image.new("L", (2, 2)), "is a PIL Image.*np.asarray"),
    ],
    ids=["set", "masked", "sparse", "picture"],
)
def test_what_cannot_be_batched_is_told_with_what_helps(leaf, says):
    assert re.search(says, _fails(Making(Listed([(1, leaf)]), 1)).text)


@examples
@given(
    st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 4), st.sampled_from([dict, collections.UserDict])
)
def test_the_order_of_keys_is_that_of_the_batchs_first_sample(turned, batch_size, kind):
    """Whatever batches were made before, quickly or not."""
    samples = [kind({"x": {"b": i, "a": -i}, "y": 1} if one else {"y": 1, "x": {"a": -i, "b": i}})
               for i, one in enumerate(turned)]  # fmt: skip
    making = Making(Listed(samples), batch_size)
    for step, start in enumerate(range(0, len(samples), batch_size)):
        batch, first = making.batch(step), samples[start]
        assert (list(batch), list(batch["x"])) == (list(first), list(first["x"]))
        assert batch["x"]["b"].tolist() == list(range(start, start + len(batch["y"])))


@examples
@given(
    st.lists(st.sampled_from([0, 0.5, np.float32(0.5), np.int32(3), True, torch.tensor(2.0)]), min_size=1, max_size=20)
)
def test_batches_that_promote_are_what_their_samples_make_them(leaves):
    making = Making(Listed([(np.full(3, i), leaf, f"{i}") for i, leaf in enumerate(leaves)]), 3)
    for step, start in enumerate(range(0, len(leaves), 3)):
        assert same(making.batch(step), collated(making.dataset.samples[start : start + 3]))


def test_a_wide_column_lies_behind_large_ones():
    samples = [(np.full(LARGE, i, np.float32), np.full(LARGE, i, np.uint8)) for i in range(3)]
    samples.append((np.full(LARGE, 3.5), np.full(LARGE, 3.5, np.float32)))
    making = Making(Listed([*samples, *samples[:3]]))
    wide, also_wide = making.batch(0)
    assert (wide.dtype, also_wide.dtype) == (torch.float64, torch.float32)
    assert wide[:, -1].tolist() == also_wide[:, 0].tolist() == [0, 1, 2, 3.5]
    assert [one.dtype for one in making.batch(1)] == [torch.float32, torch.uint8]


def test_an_encoder_sees_what_numbers_were_promoted_to():
    seen = []

    def encode(batch):
        seen.append(batch)
        return b""

    Making(Listed([np.float32(0.5), 0.1]), batch_encoder=encode, batch_decoder=bytes).batch(0)
    assert (seen[0].dtype, seen[0].tolist()) == (np.float64, [0.5, 0.1])


def test_samples_that_were_left_out_do_not_shift_the_blame():
    bad = ValueError("bad")
    report = _fails(Making(Listed([bad, 1, bad, "odd"]), on_error="skip"))
    assert report.index == 3
    assert "sample, 1" in report.text
    report = _fails(Making(Listed([bad, {1}, 2, 3]), on_error="skip"))
    assert report.index == 1
    assert "set" in report.text


def test_a_leaf_that_cannot_be_batched_is_blamed_on_its_sample():
    assert _fails(Making(Listed([1, 2, {3}, 4]))).index == 2
    assert _fails(Making(Listed([object(), 2]))).index == 0


def test_samples_that_are_left_out_leave_no_hole():
    making = Making(Listed([0, ValueError("x"), 2, KeyError("y"), 4, 5]), on_error="skip")
    made = making.made(0)
    assert made.rows == 2
    assert [index for index, _ in made.skipped] == [1, 3]
    assert making.batch(0).tolist() == [0, 2]
    assert making.batch(1).tolist() == [4, 5]


@pytest.mark.parametrize("settings", [{}, {"collate_fn": list}], ids=["default", "own collate"])
def test_a_batch_of_which_nothing_is_left_is_an_error(settings):
    report = _fails(Making(Listed([ValueError("gone")] * 4), on_error="skip", **settings))
    assert isinstance(report.exception(), DataError)
    assert "gone" in report.text


@pytest.mark.parametrize(
    ("settings", "stage"),
    [
        ({"collate_fn": lambda samples: 1 / 0}, "collate_fn"),
        ({"collate_fn": lambda samples: (n for n in samples)}, "encode"),
        ({"batch_encoder": lambda batch: 1 / 0, "batch_decoder": bytes}, "batch_encoder"),
        ({"batch_encoder": lambda batch: "text", "batch_decoder": bytes}, "batch_encoder"),
    ],
)
def test_errors_of_the_users_functions_name_the_stage(settings, stage):
    assert _fails(Making(Listed([1, 2]), **settings)).stage == stage


def test_after_a_failure_the_next_batch_is_made():
    making = Making(Listed([1, "odd", 3, 4, 5, 6, 7, 8]))
    assert _fails(making).index == 1
    assert making.batch(1).tolist() == [5, 6, 7, 8]


def test_a_batch_that_was_taken_back_is_left_and_the_next_is_whole():
    berth = Berth()

    def take_back():
        berth.word[0] = 0
        return 2

    making = Making(Listed([1, take_back, 3, 4, 5, 6]))
    making.berth = berth
    with pytest.raises(TakenBack):
        making.made(0)
    berth.word[0] = 1
    assert making.batch(1).tolist() == [5, 6]


def test_while_the_user_collates_the_order_stays_in_hand():
    seen = []
    making = Making(Listed([1, 2]), collate_fn=lambda samples: seen.append((making.cell.seq, making.cell.stage)))
    making.made(0, seq=9)
    assert seen == [(9, "collates")]


def test_while_samples_are_fetched_the_cell_tells_the_order_and_the_sample():
    seen = []
    making = Making(Listed([lambda: seen.append((making.cell.seq, making.cell.index)) or 0] * 3))
    making.made(0, seq=5)
    assert seen == [(5, 0), (5, 1), (5, 2)]
    assert making.cell.words[3] == FETCHES


def test_time_is_counted_by_stage():
    cost = Making(Listed([(np.zeros(LARGE), "text")] * 4)).made(0).cost
    assert cost.fetch_ns >= cost.slowest_ns > 0
    assert cost.collate_ns > 0
    assert cost.encode_ns > 0
    assert cost.slowest_index in range(4)
