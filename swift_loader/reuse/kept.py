"""A dataset with what is kept in front of it: what the loader asks instead.

    __getitem__   a sample: read back, or made and kept; then what is done afresh
    read_into     a whole batch straight to its rows, where all of it is kept and alike

What is made is a function of (seed, generation, index): while a sample is made, the random generators are its own, and
afterwards they are what they were. So a stream has the same bytes whether samples were there already, were made after
a crash, or cannot be kept at all. Knows nothing of batches beyond arrays to be filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from swift_loader.batch.record import MISSING, PICKLED, anywhere
from swift_loader.reuse.cached import Cached
from swift_loader.reuse.generation import Generations

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from swift_loader.batch.layout import BatchSpec
    from swift_loader.batch.record import Empty
    from swift_loader.reuse.entry import Words
    from swift_loader.reuse.keeper import Keeper
    from swift_loader.reuse.repeated import Repeated
    from swift_loader.reuse.store import Store

#: Places of the counts, in the words that are given for them.
MADE, REUSED, NBYTES = range(3)
#: The size of the store is looked at once in so many samples that were made, and at each epoch.
_WEIGHED = 64
#: So many layouts of batches are remembered.
_MANY = 32


class Chance(Protocol):
    """Where random numbers come from while a sample is made."""

    def made(self, epoch: int, index: int, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, with the generators of that epoch and sample, which are then what they were."""
        ...

    def turning_to(self, epoch: int) -> AbstractContextManager[None]:
        """Around the dataset's ``set_epoch``: the generators are those of the epoch, and then what they were."""
        ...


class Kept:
    """The samples of ``dataset``, made once for each generation.

    Args:
        dataset: What makes them; a `Cached` is taken apart.
        keeper: Where they are kept.
        chance: The generators.
        counts: Four words, to which this process adds what it has made and read back.
        generations: How long a sample is used.
        threads: Whether several threads ask at the same time.
    """

    def __init__(
        self,
        dataset: Any,
        keeper: Keeper,
        chance: Chance,
        counts: Any,
        generations: Generations,
        *,
        threads: bool = False,
    ) -> None:
        self.dataset, self.then = Cached.apart(dataset)
        self.rotation: Repeated | None = None
        """Keeps what the store does not, for further uses in the same epoch."""
        self._keeper = keeper
        self._chance = chance
        self._counts = counts
        self._generations = generations
        self._threads = threads
        self._count = len(dataset)
        self._epoch = 0
        self._told: int | None = None
        """The epoch that the dataset was told of last."""
        self._forms: dict[int, tuple[BatchSpec, int]] = {}
        self.empty: Empty | None = None
        """Makes the arrays of samples that are read back."""
        self._set_epoch = getattr(self.dataset, "set_epoch", None)
        self._set_epoch_then = getattr(self.then, "set_epoch", None)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        sample = self._sample(index)
        return sample if self.then is None else self.then(sample)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # nobody is to find a way past what is kept, such as __getitems__
            raise AttributeError(name)
        return getattr(self.__dict__["dataset"], name)

    def set_epoch(self, epoch: int) -> None:
        """The loader turns to an epoch. The dataset is told that for which its samples are made."""
        self._epoch = epoch
        self._keeper.turn_to(epoch)
        self._weigh()
        self._tell(self._generations.made_for(epoch, 0) if self._generations.is_common else epoch)
        if self._set_epoch_then is not None:
            self._set_epoch_then(epoch)

    def nbytes_of(self, indices: list[int]) -> tuple[int, int]:
        """How many of them would be read back by this thread alone and given out as they are; and their bytes."""
        if self.then is not None or self._threads:
            return 0, 0
        found: tuple[int, int] = self._keeper.ask(lambda store: store.nbytes_of(np.array(indices, np.uint64)), (0, 0))
        return found

    def reads_into(self, indices: list[int], spec: BatchSpec) -> Any:
        """Where the samples of a batch lie, if it can be read as a whole into rows of ``spec``; else None."""
        return None if self.then is not None else self._keeper.ask(lambda store: self._lie(store, indices, spec))

    def _lie(self, store: Store, indices: list[int], spec: BatchSpec) -> Words | None:
        known = self._forms.get(spec.key)
        if known is None or known[0] is not spec or known[1] == PICKLED:
            if len(self._forms) >= _MANY:
                self._forms.clear()
            known = self._forms[spec.key] = (spec, store.forms.number_of(spec.structure, spec.columns))
        if known[1] == PICKLED:
            return None
        numbers = np.array(indices, np.uint64)
        made_for = self._generations.all_made_for(self._epoch, numbers.astype(np.int64))
        return store.all_at(numbers, np.asarray(made_for).astype(np.uint64), known[1])

    def read_into(self, found: Any, columns: list[Any]) -> bool:
        """Puts the samples of `reads_into` to their rows; False if one of them is not what it was."""
        columns = [column.reshape(len(found), -1).view(np.uint8) for column in columns if column.nbytes]
        if not self._keeper.ask(lambda store: store.fill(found, columns)):
            return False
        self._counts[REUSED] += len(found)
        return True

    def close(self) -> None:
        """Lets go of the files."""
        self._keeper.close()

    def _sample(self, index: int) -> Any:
        if not 0 <= index < self._count:
            return self.dataset[index]
        made_for = self._generations.made_for(self._epoch, index)
        sample = self._keeper.get(index, made_for, self.empty or anywhere)
        if sample is MISSING:
            return self._missing(index, made_for)
        self._counts[REUSED] += 1
        return sample

    def _missing(self, index: int, made_for: int) -> Any:
        with self._keeper.making(index) as is_ours:
            if is_ours and (sample := self._keeper.get(index, made_for, self.empty or anywhere)) is not MISSING:
                self._counts[REUSED] += 1  # somebody else has made it meanwhile
                return sample
            use = None if self.rotation is None else self.rotation.use_of(index)
            if self.rotation is not None and (sample := self.rotation.get(use)) is not MISSING:
                self._counts[REUSED] += 1
                return sample
            sample = self._made(index, made_for)
            until = self._generations.last_of(made_for)
            is_kept = is_ours and self._keeper.keep(index, made_for, sample, until)
        if self.rotation is not None and not is_kept:
            self.rotation.keep(use, sample)
        self._counts[MADE] += 1
        if self._counts[MADE] % _WEIGHED == 1:
            self._weigh()
        return sample

    def _made(self, index: int, made_for: int) -> Any:
        if made_for != self._told and not self._threads:  # others may be in the midst of a sample
            self._tell(made_for)
        return self._chance.made(made_for, index, lambda: self.dataset[index])

    def _tell(self, epoch: int) -> None:
        self._told = epoch
        if self._set_epoch is not None:
            with self._chance.turning_to(epoch):
                self._set_epoch(epoch)

    def _weigh(self) -> None:
        self._counts[NBYTES] = self._keeper.nbytes()
