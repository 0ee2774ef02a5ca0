"""What a user says of a cache is checked before anything is started, and a mistake is told with the nearest word."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from swift_loader import Cached, CacheSetting, ConfigError
from swift_loader.reuse.origin import origin_of
from tests.datasets import Numbers, Records
from tests.loaders import made
from tests.watching import warm_python

WRONG = [
    ({}, "needs a prefix"),
    ({"prefix": ""}, "prefix must be a path"),
    ({"prefix": 3}, "prefix must be a path, not 3"),
    ({"prefx": "a"}, "no key 'prefx'; did you mean 'prefix'"),
    ({"prefix": "a", "frequency": 3}, "no key 'frequency'; did you mean 'update_frequency'"),
    ({"prefix": "a", "zzz": 3}, "no key 'zzz': its keys are prefix, update_frequency"),
    ({"prefix": "a", "update_frequency": 1}, "update_frequency must be a whole number of epochs from 2 on, .* not 1"),
    ({"prefix": "a", "update_frequency": 2.5}, "update_frequency must be"),
    ({"prefix": "a", "update_frequency": True}, "update_frequency must be"),
    ({"prefix": "a", "update_frequency": -math.inf}, "update_frequency must be"),
    ({"prefix": "a", "update_frequency": math.nan}, "update_frequency must be"),
    ({"prefix": "a", "update_frequency": "inf"}, "update_frequency must be"),
    ({"prefix": "a", "update_frequency": None}, "update_frequency must be"),
    ({"prefix": "a", "refresh": "sprad"}, "refresh must be 'all' or 'spread', not 'sprad'; did you mean 'spread'"),
    ({"prefix": "a", "medium": "ram"}, "medium must be 'disk' or 'memory', not 'ram'"),
    ({"prefix": "a", "medium": ["disk"]}, "medium must be"),
    ({"medium": "memory"}, "needs nbytes"),
    ({"medium": "memory", "nbytes": 10}, "nbytes must be a whole number of bytes from 65,536 on, not 10"),
    ({"prefix": "a", "nbytes": 1e9}, "nbytes must be a whole number of bytes"),
    ({"prefix": "a", "version": 3}, "version must be a text, not 3"),
]


@pytest.mark.parametrize(("given", "told"), WRONG)
def test_a_wrong_setting_is_refused(given: dict, told: str):
    with pytest.raises(ConfigError, match=told):
        made(Numbers, cache_setting=given)
    if set(given) <= {"prefix", "update_frequency", "refresh", "medium", "nbytes", "version"}:
        with pytest.raises(ConfigError, match=told):
            CacheSetting(**given)


@pytest.mark.parametrize("given", ["a/path", 3, ["prefix"], Path("a")])
def test_what_is_no_setting_is_refused(given):
    with pytest.raises(ConfigError, match="cache_setting must be a dict or a CacheSetting, not a"):
        made(Numbers, cache_setting=given)


def test_a_dict_and_a_typed_setting_say_the_same():
    typed = CacheSetting(Path("a"), np.int64(5), "spread", nbytes=np.int32(100_000), version="3")
    given = {"prefix": "a", "update_frequency": 5, "refresh": "spread", "nbytes": 100_000, "version": "3"}
    assert CacheSetting.parse(given) == typed
    assert CacheSetting("a", np.float32("inf")) == CacheSetting("a")
    assert CacheSetting("a", 5.0) == CacheSetting("a", 5)

    assert CacheSetting.parse(typed) is typed
    assert CacheSetting.parse(None) is None
    assert CacheSetting("a").update_frequency == math.inf


def test_without_xxhash_a_cache_is_refused_and_all_else_works():
    code = (
        "import sys; sys.modules['xxhash'] = None; import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'xxhash' else real(name, *more)\n"
        "from swift_loader import CacheSetting, ConfigError, SwiftLoader\n"
        "assert len(list(SwiftLoader.from_dataset(range(8), 4, 1, 0))) == 2\n"
        "try: SwiftLoader(range, {'stop': 8}, 4, 1, 0, cache_setting={'prefix': 'a'})\n"
        "except ConfigError as error: print(error)\n"
    )
    assert "pip install 'swift-loader[cache]'" in warm_python("-c", code, PYTHONWARNINGS="ignore")


def _origin(kwargs: dict, kind=Numbers) -> str:
    return origin_of(kind, kwargs, None, "").arguments


class Plain:
    def __init__(self, value) -> None:
        self.value = value


ALIKE = [
    ({"a": 1, "b": [2, (3.0, None)]}, {"b": [2, (3.0, None)], "a": 1}),
    ({"x": np.arange(6).reshape(2, 3)}, {"x": np.arange(6).reshape(2, 3).copy(order="F")}),
    ({"s": {"x", "y", "z"}}, {"s": {"z", "y", "x"}}),
    ({"p": Path("a") / "b"}, {"p": Path("a/b")}),
    ({"f": len, "t": int}, {"f": len, "t": int}),
    ({"o": Plain([1])}, {"o": Plain([1])}),
]
DIFFERENT = [
    ({"a": 1}, {"a": 1.0}), ({"a": 1}, {"a": True}), ({"a": "1"}, {"a": b"1"}), ({"a": [1]}, {"a": (1,)}),
    ({"a": ["ab", "c"]}, {"a": ["a", "bc"]}), ({"a": [[1], 2]}, {"a": [[1, 2]]}), ({"a": {}}, {"b": {}}),
    ({"x": np.arange(6)}, {"x": np.arange(6).reshape(2, 3)}), ({"x": np.arange(3)}, {"x": np.arange(3.0)}),
    ({"x": np.arange(3)}, {"x": np.array([0, 1, 3])}), ({"f": len}, {"f": abs}), ({"o": Plain(1)}, {"o": Plain(2)}),
    ({"f": lambda x: x + 1}, {"f": lambda x: x + 2}), ({"f": lambda: [Numbers]}, {"f": lambda: [Records]}),
    ({"f": lambda: [lambda: 1]}, {"f": lambda: [lambda: 2]}), ({"f": lambda *, a=1: a}, {"f": lambda *, a=2: a}),
    ({"f": lambda x: x in (1, 2)}, {"f": lambda x: x in (1, 3)}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_equal_arguments_are_the_same_origin(one: dict, other: dict):
    assert _origin(one) == _origin(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_arguments_are_another_origin(one: dict, other: dict):
    assert _origin(one) != _origin(other)


def test_the_origin_tells_classes_and_datasets_apart():
    assert origin_of(Numbers, {}, None, "") != origin_of(Records, {}, None, "")
    assert origin_of(Numbers, {}, None, "") != origin_of(Numbers, {}, None, "1")
    assert origin_of(list, {}, [1, 2], "") != origin_of(list, {}, [1, 3], "")
    assert origin_of(Numbers, {}, Numbers(5), "") != origin_of(Numbers, {}, Numbers(6), "")


def test_the_origin_is_the_same_in_another_process():
    code = "from tests.unit.reuse.test_settings import _origin, ALIKE\nprint(*[_origin(one) for one, _ in ALIKE[:5]])"
    assert warm_python("-c", code).split() == [_origin(one) for one, _ in ALIKE[:5]]


def test_arguments_that_cannot_be_told_apart_are_refused():
    with pytest.raises(ConfigError, match=r"must know again what .*Numbers is built with"):
        _origin({"lock": __import__("threading").Lock()})


def test_a_cached_that_would_be_taken_apart_is_refused():
    with pytest.raises(TypeError, match="what it does belongs into `then`"):

        class Shaken(Cached):
            def __getitem__(self, index: int):
                return -super().__getitem__(index)
