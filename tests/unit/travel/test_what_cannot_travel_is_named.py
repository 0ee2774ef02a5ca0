"""The error for what cannot be sent says where in the dataset it lies, and which function brings it along."""

import os
import re
import threading
from functools import partial

import pytest

from swift_loader import ConfigError, SwiftLoader
from swift_loader.travel.payload import Unsendable, pack, unpack
from tests.datasets import Numbers
from tests.unit.batch.samples import Box


class Slotted:
    __slots__ = ("inner", "other")

    def __init__(self, inner):
        self.inner = inner


def _generator():
    return (n for n in ())


def _function(held):
    return lambda x: (held, x)


def _method(held):
    class Local:
        def __getitem__(self, index):
            return held[index]

    return Local()


deep = {
    "content.content": lambda thing: Box(Box(thing)),
    "content[1]['a']": lambda thing: Box([0, {"a": thing}]),
    "inner.content": lambda thing: Slotted(Box(thing)),
    "content.args[0]": lambda thing: Box(partial(int, thing)),
    "held, which _function.<locals>.<lambda> of test_what_cannot_travel_is_named.py:N (content) uses,": lambda thing: (
        Box(_function(thing))
    ),
    "held['a'], which _method.<locals>.Local.__getitem__ of test_what_cannot_travel_is_named.py:N "
    "(content.__getitem__) uses,": lambda thing: Box(_method({"a": thing})),
}


@pytest.mark.parametrize(
    ("place", "nest"), deep.items(), ids=["attribute", "item", "slot", "partial", "cell", "method"]
)
def test_the_place_of_what_cannot_be_pickled_is_told(place, nest):
    with pytest.raises(Unsendable) as caught:
        pack(nest(_generator()))
    told = str(caught.value)
    before, _, reason = told.partition(" is a generator")
    assert re.sub(r"py:\d+", "py:N", before) == place
    assert "cannot pickle 'generator' object" in reason


class Module:
    """As people write them: the function that makes the dataset knows what holds the loader."""

    def __init__(self):
        self.count = 8

    def loader(self, worker_count):
        return SwiftLoader(lambda: Numbers(self.count), {}, 4, 1, worker_count, start_method="forkserver")


def test_a_function_that_brings_a_started_loader_along_is_named():
    module = Module()
    with module.loader(worker_count=0) as module.training:
        module.training.start(0)
        with pytest.raises(ConfigError) as caught, module.loader(worker_count=1) as other:
            other.start(0)
    told = str(caught.value)
    assert "self.training, which Module.loader.<locals>.<lambda> of test_what_cannot_travel_is_named.py" in told
    assert "(dataset_class) uses, is a SwiftLoader" in told
    assert "start_method='fork', which sends nothing, with allow_fork=True" in told


def test_what_was_made_only_to_be_pickled_is_told_by_what_it_raised():
    class Makes:
        def __reduce__(self):
            return list, ([_generator()],)

    with pytest.raises(Unsendable, match=r"^TypeError: cannot pickle 'generator' object$"):
        pack(Makes())


class Delegates:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_a_getattr_that_asks_itself_while_it_is_loaded_is_told():
    packed = pack(Delegates([1]))
    with pytest.raises(RecursionError, match="a class has a __getattr__ that asks for an attribute of its own"):
        unpack(packed.fd)


def test_no_room_is_no_fault_of_the_dataset():
    class Full:
        def __reduce__(self):
            raise OSError(28, os.strerror(28))

    with pytest.raises(OSError, match="No space left"):
        pack(Full())


def test_a_class_that_comes_back_is_another_and_leaves_its_own_alone():
    class Local:
        def get(self):
            return self.lock

        lock = threading.RLock()

    before = dict(vars(Local))
    first, second = (unpack(pack(Local).fd) for _ in range(2))
    assert dict(vars(Local)) == before
    assert len({Local, first, second}) == 3
    assert first.__qualname__ == Local.__qualname__


def test_the_same_value_is_packed_as_the_same_bytes():
    class Local:
        def get(self) -> int:
            return 1

    def written():
        packed = pack([Local(), lambda: Local])
        with open(packed.fd, "rb") as file:
            file.seek(0)
            return file.read()

    assert written() == written()
