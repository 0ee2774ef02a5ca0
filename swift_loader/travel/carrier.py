"""What pickles a dataset and its settings for processes that have another main module.

What workers can import goes by name, all else by value: classes and functions of ``__main__`` (which a process that
multiprocessing has spawned calls ``__mp_main__``), those made inside of functions, those of modules without a file.
cloudpickle does that; what it lacks stands in `anew`, and what lies beside the pickle in `bulk`.
"""

from __future__ import annotations

import errno
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import CodeType, FunctionType, ModuleType
from typing import IO, Any, TypeVar

import cloudpickle
import numpy as np

from swift_loader.settings.secret import Secret, for_a_worker
from swift_loader.travel import anew, arrival, elsewhere
from swift_loader.travel.bulk import Bulk, Piece
from swift_loader.travel.payload import Destination, Unsendable
from swift_loader.travel.preload import names_in
from swift_loader.travel.trail import told

#: cloudpickle marks each class with a random number, to find it again in the process that it came from. There it would
#: write over the class that it was made of, and no two files of the same recipe would be alike.
_MARK = re.compile(r"[0-9a-f]{32}")
_NO_ROOM = (errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EDQUOT)


class Carrier(cloudpickle.Pickler):  # type: ignore[misc] # it has no types
    """Pickles one value, and notes what whoever loads it will need."""

    def __init__(self, file: IO[bytes], to: Destination) -> None:
        self.bulk = Bulk(outlives=to != "worker")
        self.is_by_value = False
        self.mentioned: set[str] = set()
        self.named: dict[int, Any] = {}
        self.submodules: set[str] = set()
        self.places, self._nowhere = elsewhere.unfindable()
        self._kinds: set[type] = set()
        self._last: Any = None
        self._own: dict[type, Any] = {
            np.ndarray: self.bulk.array,
            np.memmap: self.bulk.array,
            Piece: self.bulk.piece,
            ModuleType: self._module,
            TypeVar: self._type_var,
            type(anew.an_lru_cache): self._lru_cache,
            **anew.REDUCERS,
        }
        if to != "disk":
            self._own[Secret] = for_a_worker
        if "torch" in sys.modules:
            self._own[sys.modules["torch"].Tensor] = self.bulk.tensor
        # As a dict: cloudpickle's chain of dicts would be asked in Python for every object.
        self.dispatch_table = dict(cloudpickle.Pickler.dispatch_table)
        for kind in anew.NAMED:
            by_value = anew.NAMED[kind]
            self._own[kind] = lambda obj, by_value=by_value: NotImplemented if is_importable(obj) else by_value(obj)
        super().__init__(file, protocol=5, buffer_callback=self.bulk.keeps_inline)

    def carry(self, value: Any) -> None:
        """Writes it.

        Raises:
            Unsendable: if some part of it cannot be pickled.
        """
        try:
            with _by_value(self._nowhere):
                self.dump(value)
        except MemoryError:
            raise
        except Exception as error:  # a class may raise anything here
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise
            raise Unsendable(told(value, self._last, error)) from error
        finally:
            self._last = None

    def reducer_override(self, obj: Any) -> Any:
        """See `pickle.Pickler`: asked for all that is no number, text or plain container."""
        self._last = obj
        kind = type(obj)
        if kind not in self._kinds:
            self._kinds.add(kind)
            self._mention(kind)
        own = self._own.get(kind)
        if own is not None:
            return own(obj)
        if issubclass(kind, type) or kind is FunctionType:
            return self._class_or_function(obj)
        return NotImplemented

    def _class_or_function(self, obj: Any) -> Any:
        made = super().reducer_override(obj)
        if made is NotImplemented:
            self.named[id(obj)] = obj
            self._mention(obj)
            return made
        if not isinstance(made, tuple) or len(made) <= 2:  # the type of None, say
            return made
        self.is_by_value = True
        if isinstance(obj, FunctionType):
            self._note_code(obj)
            return made
        return _mended(obj, made)

    def _mention(self, obj: Any) -> None:
        home = getattr(obj, "__module__", None)
        if isinstance(home, str):
            self.mentioned.add(home.partition(".")[0])

    def _module(self, module: ModuleType) -> Any:
        self.mentioned.add(module.__name__.partition(".")[0])
        return NotImplemented

    def _type_var(self, variable: TypeVar) -> Any:
        return _unmarked(*self.dispatch_table[TypeVar](variable))

    def _lru_cache(self, obj: Any) -> Any:
        if is_importable(obj):
            return NotImplemented
        made = self._class_or_function(obj.__wrapped__)
        if made is NotImplemented:
            return arrival.cached, (obj.__wrapped__, (), obj.cache_parameters())
        make, args, state, _, _, fill = made
        return arrival.cached, (make, args, obj.cache_parameters()), (fill, state), None, None, arrival.fill_cached

    def _note_code(self, function: FunctionType) -> None:
        """What its code imports; and the parts of packages that are used in functions inside of it, where cloudpickle
        does not look.
        """
        names = set(names_in(function.__code__))
        self.mentioned.update(name.partition(".")[0] for name in names)
        if not any(isinstance(part, CodeType) for part in function.__code__.co_consts):
            return
        used = (function.__globals__.get(name) for name in names)
        packages = {each.__name__ for each in used if isinstance(each, ModuleType) and hasattr(each, "__path__")}
        for name in list(sys.modules) if packages else ():
            top, *parts = name.split(".")
            if parts and top in packages and names.issuperset(parts):
                self.submodules.add(name)


def is_importable(obj: Any) -> bool:
    """Whether a worker finds it by its name."""
    home = obj.__module__
    if home in elsewhere.MAINS or home not in sys.modules:
        return False
    found: Any = sys.modules[home]
    for name in getattr(obj, "__qualname__", getattr(obj, "__name__", "")).split("."):
        found = getattr(found, name, None)
    return found is obj and home not in cloudpickle.list_registry_pickle_by_value()


def _mended(kind: Any, made: tuple[Any, ...]) -> tuple[Any, ...]:
    """With its whole name, by which it is known in the trainer; and without the mark."""
    make, args = _unmarked(*made[:2])
    state, items, pairs, fill = made[2:]
    state[0]["__qualname__"] = kind.__qualname__
    if not issubclass(kind, Enum):
        return make, args, state, items, pairs, fill
    # cloudpickle makes the members without what the class has made of their values, and only those with one name each.
    names = kind.__members__
    for name in names:
        state[0].pop(name, None)
    members = {name: member.value for name, member in names.items()}
    args = tuple(members if isinstance(arg, dict) else arg for arg in args)
    more = {name: vars(member) for name, member in names.items()}
    return make, args, (fill, state, more), items, pairs, arrival.fill_enum


def _unmarked(make: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    return make, tuple(None if isinstance(arg, str) and _MARK.fullmatch(arg) else arg for arg in args)


_lock = threading.Lock()
#: How many are pickling by value what is of a module, and which of those modules cloudpickle knows of by us alone.
_pickling: Counter[str] = Counter()
_ours: set[str] = set()


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    """What is theirs goes by value meanwhile. Other threads may pickle too."""
    for module in modules:
        _begin(module)
    try:
        yield
    finally:
        for module in modules:
            _end(module)


def _begin(module: ModuleType) -> None:
    with _lock:
        _pickling[module.__name__] += 1
        if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            _ours.add(module.__name__)


def _end(module: ModuleType) -> None:
    with _lock:
        _pickling[module.__name__] -= 1
        if not _pickling[module.__name__] and module.__name__ in _ours:
            cloudpickle.unregister_pickle_by_value(module)
            _ours.remove(module.__name__)
