"""Settings and datasets reach other processes: by name where it can be imported, by value else, large arrays shared."""

import functools
import importlib
import os
import socket
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.travel.payload import Unsendable, pack, unpack
from swift_loader.travel.preload import modules_to_preload
from tests.unit.batch.samples import Box, examples, same, structures

LARGE = 64 * 1024


def _travelled(value):
    packed = pack(value)
    return unpack(packed.fd), packed.is_by_value


arrays = st.builds(np.ones, st.lists(st.integers(0, 200), max_size=2), st.sampled_from(["f8", ">i4", "U3"]))


@examples
@given(structures(st.one_of(st.integers(), st.text(), st.none(), arrays)))
def test_what_was_packed_is_unpacked(value):
    again, is_by_value = _travelled(value)
    assert not is_by_value
    assert same(again, value)


@examples
@given(st.lists(st.integers(0, 3 * LARGE), max_size=6))
def test_arrays_of_any_sizes_find_their_places(sizes):
    value = [np.arange(size, dtype=np.uint8) for size in sizes]
    assert same(_travelled(value)[0], value)


def test_thousands_of_large_arrays_find_their_places():
    value = [np.full(LARGE, i % 256, np.uint8) for i in range(1000)]
    again, _ = _travelled(value)
    assert all((array == i % 256).all() for i, array in enumerate(again))


@pytest.mark.parametrize("beside", [None, lambda: 1], ids=["by name", "by value"])
def test_large_arrays_are_shared_until_they_are_written_to(beside):
    array = np.full(LARGE, 5, np.uint8)
    fd = pack({"array": array, "beside": beside}).fd
    first, second = (unpack(os.dup(fd))["array"] for _ in range(2))
    size = os.fstat(fd).st_size
    assert LARGE < size < 2 * LARGE
    first[0] = 1  # a copy of this page, for this reader only
    assert (second[0], array[0]) == (5, 5)
    assert unpack(fd)["array"][0] == 5
    with open("/proc/self/maps") as maps:
        assert sum("memfd:swift-payload" in line for line in maps) >= 2
    assert first.ctypes.data % 64 == second.ctypes.data % 64 == 0


def test_the_descriptor_is_taken_over_and_the_memory_stays_as_long_as_an_array_needs_it():
    before = len(os.listdir("/proc/self/fd"))
    array = unpack(pack(np.arange(LARGE)).fd)
    assert array[LARGE - 1] == LARGE - 1
    del array
    assert len(os.listdir("/proc/self/fd")) == before


def test_lambdas_and_local_classes_travel_by_value():
    offset = 4

    class Local:
        content = 3

        def total(self):
            return self.content + offset

    again, is_by_value = _travelled([lambda x: x + offset, Local(), functools.partial(lambda a, b: a * b, 6)])
    assert is_by_value
    assert (again[0](1), again[1].total(), again[2](7)) == (5, 7, 42)


class Loud:
    def __reduce__(self):
        raise RuntimeError("I stay here")


@pytest.mark.parametrize("make", [Loud, socket.socket, lambda: (n for n in ())], ids=["loud", "socket", "generator"])
def test_what_cannot_travel_is_named_and_nothing_is_left_of_the_try(make):
    value = make()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(Unsendable) as caught:
        pack([np.zeros(LARGE), value])
    assert caught.value.__cause__ is not None
    assert os.listdir("/proc/self/fd") == before
    if isinstance(value, socket.socket):
        value.close()


def test_a_tensor_travels():
    again, is_by_value = _travelled(Box(torch.arange(LARGE)))
    assert not is_by_value
    assert torch.equal(again.content, torch.arange(LARGE))


TRAINER = """
import sys, numpy as np
from swift_loader.travel.payload import pack

FACTOR = 3
def scaled(x):
    return x * FACTOR
class Base:
    def __len__(self):
        return 10
class Dataset(Base):
    def __init__(self, array):
        self.array = array
    def __getitem__(self, i):
        return scaled(int(self.array[i]))

packs = [pack(value) for value in ((Dataset, {"array": np.arange(100_000)}), Dataset(np.arange(100_000)), scaled)]
print(*(packed.is_by_value for packed in packs), flush=True)
import os, subprocess
worker = '''
import sys
from swift_loader.travel.payload import unpack
made, dataset, scaled = (unpack(int(fd)) for fd in sys.argv[1:])
again = made[0](**made[1])
assert len(again) == 10 and not hasattr(sys.modules["__main__"], "Dataset") and "torch" not in sys.modules
print(again[5], dataset[7], scaled(2))
'''
fds = [packed.fd for packed in packs]
subprocess.run([sys.executable, "-c", worker, *map(str, fds)], pass_fds=fds, check=True)
"""


def test_classes_and_functions_of_main_reach_a_process_with_another_main():
    done = subprocess.run([sys.executable, "-c", TRAINER], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["True", "True", "True", "15", "21", "6"], done.stderr


class _OfTorch(torch.utils.data.Dataset):
    pass


def _preloaded(*values):
    packed = pack(values)
    try:
        return modules_to_preload(packed)
    finally:
        os.close(packed.fd)


def test_what_every_worker_would_import_is_imported_once_before():
    assert _preloaded(_OfTorch, {}) == ["torch"]
    assert _preloaded(OrderedDict, {}) == []
    assert _preloaded(OrderedDict, {"x": torch.ones(2)}) == ["torch"]
    assert _preloaded(OrderedDict, lambda: 1) == ["cloudpickle"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from torch import nn\nclass Set: pass", ["torch"]),
        ("class Set:\n def __getitem__(self, index):\n  import torch.nn\n  return torch.nn", ["torch"]),
        ("class Set:\n def __getitem__(self, index):\n  return (lambda: __import__('json'))()", []),
    ],
    ids=["global", "in a method", "not at all"],
)
def test_a_module_that_uses_torch_counts_as_torch(monkeypatch, tmp_path, text, expected):
    (tmp_path / "a_module_that_may_use_torch.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "a_module_that_may_use_torch", raising=False)
    assert _preloaded(importlib.import_module("a_module_that_may_use_torch").Set) == expected
    assert _preloaded(importlib.import_module("a_module_that_may_use_torch").Set()) == expected


def test_code_that_goes_by_value_and_uses_torch_counts_as_torch():
    namespace = {"__name__": "__main__"}
    exec("def plain():\n  return 1\ndef uses():\n  import torch\n  return [torch.ones(1) for _ in range(3)]", namespace)
    assert _preloaded(namespace["plain"]) == ["cloudpickle"]
    assert _preloaded(namespace["uses"]) == ["cloudpickle", "torch"]
