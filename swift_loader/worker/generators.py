"""The generators that samples draw from, and how they are seeded: from one key, all of them.

    the process's own    random, numpy.random, and those of torch and OpenCV where these are loaded
    those that are held  random.Random, numpy's Generator and RandomState, torch.Generator: by the dataset, or by the
                         collate_fn, by their transforms (as Albumentations and MONAI have it), or by their modules

Whatever is loaded or made only when a worker makes its first batch could not be seeded for it: that batch is made
again.
"""

from __future__ import annotations

import contextlib
import operator
import random
import sys
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.random  # each worker draws from it: loaded before they are forked, and not in each of them

from swift_loader.plan.seeding import derive
from swift_loader.worker.reach import reachable

T = TypeVar("T")
#: A dataset that makes itself new generators at each sample is not followed for ever.
_ATTEMPTS = 4
#: What puts a generator back, and to which state.
States = list[tuple[Callable[[Any], Any], Any]]


class Held(NamedTuple):
    """A generator that is held somewhere."""

    path: str
    value: Any
    purpose: int
    seed: Callable[[int], Any]
    state: Callable[[], Any]
    put_back: Callable[[Any], Any]


class _Known(NamedTuple):
    held: tuple[Held, ...]
    torchs: Any
    opencvs: Any


class Generators:
    """All that one process draws from."""

    def __init__(self) -> None:
        self.held: tuple[Held, ...] = ()
        self._roots: Mapping[str, Any] = {}
        self._is_new = True
        """No batch was made yet: what is made at first use was not there."""
        self._last = _Known(self.held, None, None)
        self._module_count = -1
        """So many modules were loaded when that was found; -1 where it is to be looked for again."""

    def find(self, **roots: Any) -> None:
        """From now on what is held there is seeded too."""
        self._roots = roots
        self.look()

    def look(self) -> None:
        """Looks for what is held."""
        found = tuple(_held_by(self._roots)) if self._roots else ()
        if [(each.path, id(each.value)) for each in found] != [(each.path, id(each.value)) for each in self.held]:
            self.held, self._module_count = found, -1

    def seed(self, key: int) -> None:
        """Seeds them."""
        random.seed(key)
        # numpy's takes an array of words too, for thrice the time: 32 bits only mean that two of a hundred thousand
        # batches may draw alike from it.
        np.random.seed(key & 0xFFFFFFFF)  # noqa: NPY002 - the generator that datasets use
        _, torchs, opencvs = self._last if self._module_count == len(sys.modules) else self._known()
        if torchs is not None:
            torchs.manual_seed(key >> 64)  # torch.manual_seed seeds every device: 70 times slower
        if opencvs is not None:
            opencvs(key >> 97)
        for each in self.held:
            each.seed(derive(key, each.purpose))

    def states(self) -> States:
        """What they are, for `put_back`. OpenCV does not tell."""
        torchs, _ = _libraries()
        states: States = [
            (random.setstate, random.getstate()),
            (np.random.set_state, np.random.get_state()),  # noqa: NPY002 - as above
            (_put_torchs_back, None if torchs is None else torchs.get_state()),
        ]
        return states + [(each.put_back, each.state()) for each in self.held]

    def whole(self, make: Callable[..., T], *given: Any) -> T:
        """What ``make`` gives, which seeds; once more where it has brought generators that it could not seed.

        That happens to the first batches of a worker at most, and for good reasons: an import in ``__getitem__``, files
        or transforms that are opened at first use. What was made without being seeded would be another in each run.
        """
        attempts = 1
        while True:
            known = self._last if self._module_count == len(sys.modules) else self._known()
            try:
                made = make(*given)
            except Exception:
                if self._has_all(known) or attempts == _ATTEMPTS:
                    raise
            else:
                # Nothing was imported, which costs next to nothing to see.
                if known is self._last and self._module_count == len(sys.modules):
                    return made
                if self._has_all(known) or attempts == _ATTEMPTS:
                    return made
            attempts += 1

    def _known(self) -> _Known:
        """What can be seeded now. Looked for where anything was imported or found since."""
        if self._module_count != len(sys.modules):
            known = _Known(self.held, *_libraries())
            self._last = self._last if all(map(operator.is_, known, self._last)) else known
            self._module_count = -1 if self._is_new else len(sys.modules)
        return self._last

    def _has_all(self, known: _Known) -> bool:
        if self._is_new:
            self._is_new = False
            self.look()
        now = self._known()
        if now is known:
            return True
        if now.held is not known.held or now.opencvs is not known.opencvs:
            return False
        # Of torch it can be seen whether anything was drawn: most import it late only to make tensors.
        return now.torchs in (known.torchs, None) or _state_of(now.torchs) == _state_of(type(now.torchs)())


def seed_thread(key: Callable[[], int]) -> None:
    """Seeds what each thread has for itself: the generator of OpenCV."""
    _, opencvs = _libraries()
    if opencvs is not None:
        opencvs(key() >> 97)


def put_back(states: States) -> None:
    """Makes them what they were."""
    for put, state in states:
        put(state)


def _libraries() -> tuple[Any, Any]:
    """Those that are loaded, and not just being loaded by another thread."""
    modules = sys.modules
    torchs = getattr(modules.get("torch"), "default_generator", None)
    return torchs, getattr(modules.get("cv2"), "setRNGSeed", None)


def _state_of(torchs: Any) -> bytes:
    return bytes(torchs.get_state().numpy())


def _put_torchs_back(state: Any) -> None:
    torchs, _ = _libraries()
    if torchs is not None:  # if it was loaded meanwhile, it was as new
        torchs.set_state(type(torchs)().get_state() if state is None else state)


def _held_by(roots: Mapping[str, Any]) -> list[Held]:
    torch = sys.modules.get("torch")
    kinds = (random.Random, np.random.Generator, np.random.RandomState, getattr(torch, "Generator", random.Random))
    common = {id(one) for one in (*_of_the_process(), _libraries()[0])}  # seeded anyway
    found: dict[int, Held] = {}
    for path, value in reachable(roots):
        if not issubclass(type(value), kinds) or id(value) in common:
            continue
        with contextlib.suppress(Exception):  # a kind that has no state, or cannot be seeded
            held = _held(path, value)
            held.put_back(held.state())
            found.setdefault(id(getattr(value, "bit_generator", value)), held)
    return list(found.values())


def _of_the_process() -> tuple[Any, Any]:
    return random.seed.__self__, np.random.mtrand._rand  # type: ignore[attr-defined] # what their functions draw from


def _held(path: str, value: Any) -> Held:
    purpose = zlib.crc32(path.encode())
    if isinstance(value, random.Random):
        return Held(path, value, purpose, value.seed, value.getstate, value.setstate)
    if isinstance(value, np.random.RandomState):
        if not isinstance(value.get_state(), tuple):
            raise TypeError("numpy seeds those of MT19937 alone")
        return Held(path, value, purpose, lambda key: value.seed(key & 0xFFFFFFFF), value.get_state, value.set_state)
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator
        seed, state = lambda key: _set(bits, type(bits)(key).state), lambda: bits.state
        return Held(path, value, purpose, seed, state, partial(_set, bits))
    return Held(path, value, purpose, lambda key: value.manual_seed(key >> 64), value.get_state, value.set_state)


def _set(bits: Any, state: Any) -> None:
    bits.state = state
