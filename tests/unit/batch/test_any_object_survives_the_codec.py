"""What a collate_fn returns goes through pickle, its large buffers beside it; dill comes in where pickle cannot."""

import collections
import copyreg
import enum
import functools
import pickle
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.batch.codec import INLINE_NBYTES, decode, encode
from swift_loader.batch.layout import ALIGNMENT
from tests.unit.batch.samples import Box, Pair, examples, same, structures

LARGE = INLINE_NBYTES // 4 + 1


def _through_a_slot(value, before=7):
    """The value after it was laid into memory and taken from there, and that memory."""
    encoded = encode(value)
    spans, end = encoded.spans(before * ALIGNMENT)
    memory = np.zeros(end, np.uint8)
    encoded.lay(memory, spans, before * ALIGNMENT)
    assert all(start % ALIGNMENT == 0 and start >= before * ALIGNMENT for start, _ in spans)
    buffers = [memory[start : start + nbytes] for start, nbytes in spans]
    return decode(encoded.stream, buffers), memory


DTYPES = ("float32", "int64", "bool", "bfloat16", "float8_e5m2", "complex64", "complex128", "uint16")
dtypes = st.sampled_from([getattr(torch, name) for name in DTYPES])
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
tensors = st.builds(lambda dtype, shape: torch.ones(shape).to(dtype), dtypes, shapes)
arrays = st.builds(np.ones, shapes, st.sampled_from(["f4", ">i8", "?", "U3", "M8[s]"]))
plain = st.one_of(st.integers(), st.text(), st.binary(), st.none(), st.floats(allow_nan=False))


@examples
@given(structures(st.one_of(tensors, arrays, plain)))
def test_what_was_encoded_is_decoded(value):
    assert same(_through_a_slot(value)[0], value)


@examples
@given(st.lists(st.integers(0, 3 * INLINE_NBYTES), max_size=4))
def test_large_buffers_lie_beside_the_pickle_and_do_not_overlap(sizes):
    value = [np.full(size, i, np.uint8) for i, size in enumerate(sizes)]
    encoded = encode(value)
    assert len(encoded.buffers) == sum(size > INLINE_NBYTES for size in sizes)
    assert len(encoded.stream) < 1000 + sum(size for size in sizes if size <= INLINE_NBYTES)
    assert same(_through_a_slot(value)[0], value)


large_ones = {
    "an array": np.arange(LARGE, dtype=np.int32),
    "a Fortran-ordered array": np.asfortranarray(np.arange(2.0 * LARGE).reshape(2, -1)),
    "a tensor": torch.arange(LARGE, dtype=torch.int32),
    "a strided tensor": torch.arange(2 * LARGE, dtype=torch.int32)[::2],
    "a tensor of bfloat16": torch.ones(2 * LARGE, dtype=torch.bfloat16),
    "a transposed tensor": torch.arange(2 * LARGE).reshape(2, -1).T,
    "a conjugated tensor": torch.ones(LARGE, dtype=torch.complex64).conj(),
}


@pytest.mark.parametrize("value", large_ones.values(), ids=large_ones)
@pytest.mark.parametrize("beside", [None, lambda: 1], ids=["pickle", "dill"])
def test_what_is_large_is_a_view_of_the_slot_and_can_be_written_to(value, beside):
    (again, _), memory = _through_a_slot((value, beside))
    assert same(again, value)
    again.reshape(-1)[:] = 3
    assert (memory != 0).any()
    memory[:] = 0
    assert not again.any()


def test_what_is_small_is_a_copy():
    again, memory = _through_a_slot(torch.ones(4))
    memory[:] = 9
    assert again.tolist() == [1, 1, 1, 1]
    again += 1


def test_one_tensor_named_twice_stays_one():
    tensor = torch.ones(3)
    one, other = _through_a_slot([tensor, tensor])[0]
    assert one is other


rare_tensors = {
    "that needs a gradient": lambda: torch.ones(2, requires_grad=True),
    "of a module": lambda: torch.nn.Parameter(torch.ones(2)),
    "that is sparse": lambda: torch.eye(3).to_sparse(),
    "that is nested": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.strided),
    "that is quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("make", rare_tensors.values(), ids=rare_tensors)
def test_a_rare_tensor_travels_as_torch_has_it_travel(make):
    tensor = make()
    again = _through_a_slot(tensor)[0]
    assert type(again) is type(tensor)
    assert (again.layout, again.requires_grad, again.dtype) == (tensor.layout, tensor.requires_grad, tensor.dtype)
    assert str(again) == str(tensor)


class Colour(enum.Enum):
    RED = 1


class Odd:
    """Can be pickled, but not with protocol 5's own ways."""

    def __init__(self, content):
        self.content = content

    def __reduce__(self):
        return Odd, (self.content,)

    def __eq__(self, other):
        return type(other) is Odd and other.content == self.content

    __hash__ = None


@pytest.mark.parametrize(
    "value",
    [Odd([1]), Colour.RED, Pair(1, {2}), Box((1, [2])), collections.deque([1, 2]), {1: frozenset({2})}, ..., 2**100],
    ids=lambda value: type(value).__name__,
)
def test_objects_of_any_class_arrive_as_they_were(value):
    again = _through_a_slot(value)[0]
    assert again == value
    assert type(again) is type(value)


def test_functions_without_a_name_arrive_through_dill():
    offset = 3
    again = _through_a_slot(collections.defaultdict(lambda: offset, add=lambda x: x + offset))[0]
    assert again["missing"] == 3
    assert again["add"](4) == 7


def test_a_class_of_a_function_arrives_through_dill():
    class Local:
        content = 5

    assert _through_a_slot(Local())[0].content == 5


class Unwilling:
    def __reduce__(self):
        raise RuntimeError("not me")


@pytest.mark.parametrize("value", [(n for n in ()), Unwilling()], ids=["generator", "unwilling"])
def test_what_cannot_be_sent_is_an_error(value):
    with pytest.raises((TypeError, RuntimeError, pickle.PicklingError)):
        encode([value])


def test_the_error_is_pickles_own_with_dills_as_its_cause():
    with pytest.raises(RuntimeError, match="not me") as caught:
        encode(Unwilling())
    assert caught.value.__cause__ is not None


def test_pickles_registry_is_honoured():
    class Foreign:
        pass

    copyreg.pickle(Foreign, lambda _: (str, ("foreign",)))
    try:
        assert _through_a_slot(Foreign())[0] == "foreign"
    finally:
        copyreg.dispatch_table.pop(Foreign)


WORKER_AND_TRAINER = """
import collections, dataclasses, enum, sys, types
import numpy as np
from swift_loader.batch.codec import decode, encode

Pair = collections.namedtuple("Pair", "left right")
class Colour(enum.Enum):
    RED = 1
class Outer:
    @dataclasses.dataclass
    class Inner:
        content: object

for extra in ([], [lambda: 1]):
    value = [Pair(1, Outer.Inner(Colour.RED)), *extra]
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")  # a worker has another one
    encoded = encode(value)
    sys.modules["__main__"] = main
    pair, *_ = decode(encoded.stream, [])
    assert type(pair) is Pair and type(pair.right) is Outer.Inner and pair.right.content is Colour.RED
print("arrived")
"""


def test_classes_of_main_arrive_as_the_trainers_own():
    done = subprocess.run(
        [sys.executable, "-c", WORKER_AND_TRAINER], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "arrived", done.stderr


def test_without_torch_nothing_of_it_is_asked_for(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    value = {"x": np.ones(LARGE), "text": "a", "part": functools.partial(int, "3"), "space": types.SimpleNamespace(a=1)}
    again = _through_a_slot(value)[0]
    assert again["part"]() == 3
    assert "torch" not in sys.modules
