"""A store in use: opened, watched, and let go of when it fails, whatever happens. Training goes on without it.

All that a user should know is told once, with what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from swift_loader.batch.record import MISSING
from swift_loader.reuse.files import Foreign, Ground, open_files
from swift_loader.reuse.index import Origin
from swift_loader.reuse.room import capacity_of
from swift_loader.reuse.store import Store
from swift_loader.settings.cache import CacheSetting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from swift_loader.batch.record import Empty

_ARENA_NBYTES = 4 << 20
#: A store whose size is limited has up to so many arenas, so that little of each is left over.
_ARENAS = 1 << 15
#: Looked at once in so many questions: whether the files are still those that others open.
_WATCH = 4096
#: And so often they may turn out to be others.
_MOST_RETIRED = 3
_ADVICE = {
    errno.ENOSPC: "make room on that disk, or name a prefix on another",
    errno.EDQUOT: "your quota there is used up: make room, or name a prefix on another disk",
    errno.EFBIG: "files may not grow larger there (ulimit -f): raise that, or name a prefix on another disk",
    errno.EROFS: "that disk can only be read: name a prefix on another",
    errno.ENOENT: "its folder is gone: make it, or name another prefix",
    errno.ENOTDIR: "a part of its path is a file: name another prefix",
    errno.EIO: "that disk is failing: name a prefix on another",
    errno.ENOMEM: "there is no memory left for it: give the cache less (nbytes)",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the process that uses a store is."""

    tell: Callable[[str], None]
    """Tells the user, once for each text."""
    home: Callable[[str], Any]
    """Finds classes of ``__main__`` by their names."""
    is_expendable: bool
    """The process may be lost to a file that somebody cuts: another takes its place."""
    wait_s: float
    """For so long a sample that others make is waited for."""


class Keeper:
    """The store of one process, or none where it fails."""

    def __init__(
        self, setting: CacheSetting, ground: Callable[[], Ground], origin: Origin, around: Surroundings
    ) -> None:
        self.setting = setting
        self._make_ground = ground
        self._origin = origin
        self._around = around
        self._ground: Ground | None = None
        self._store: Store | None = None
        self._asked = 0
        self._epoch = 0
        self._writes = True
        self._retired: list[Store] = []
        self._lock = Lock()
        self._open()

    def turn_to(self, epoch: int) -> None:
        """Another epoch begins."""
        self._epoch = epoch
        self._watch()
        if self._store is not None:
            with suppress(OSError):
                self._store.turn_to(epoch)

    def get(self, number: int, made_for: int, empty: Empty) -> Any:
        """A sample, its arrays made by ``empty``; or `MISSING`."""
        self._asked += 1
        if self._asked % _WATCH == 0:
            self._watch()
        return self.ask(lambda store: store.get(number, made_for, empty), MISSING)

    def ask(self, question: Callable[[Store], Any], otherwise: Any = None) -> Any:
        """What the store says; ``otherwise`` where there is none, or it fails: then it is let go of."""
        store = self._store
        if store is None:
            return otherwise
        try:
            return question(store)
        except OSError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - a class of the user's was loaded: it raises what it likes
            self._give_up(f"samples that were kept cannot be loaded ({type(error).__name__}: {error})")
        return otherwise

    @contextmanager
    def making(self, number: int) -> Iterator[bool]:
        """Around the making of a sample; True where it is to be kept."""
        store = self._store
        if store is None or not self._writes:
            yield False
            return
        is_ours = False
        try:
            is_ours = store.lock(number)
        except OSError as error:
            self._failed(error)
        try:
            yield is_ours
        finally:
            if is_ours:
                with suppress(OSError):
                    store.unlock(number)

    def keep(self, number: int, made_for: int, sample: Any, used_until: int | None) -> bool:
        """Keeps a sample that was made; gives back whether it is kept."""
        store = self._store
        if store is None or not self._writes:
            return False
        try:
            if store.keep(number, made_for, sample, used_until):
                return True
            if store.is_full and self.setting.nbytes is None:
                self._writes = False
        except OSError as error:
            self._writes = False
            self._tell_of(error, "nothing more is kept")
        except Exception as error:  # noqa: BLE001 - a class of the user's was pickled: it raises what it likes
            self._give_up(f"sample {number} cannot be kept ({type(error).__name__}: {error})")
        return False

    def nbytes(self) -> int:
        """What the store takes."""
        try:
            return 0 if self._store is None else self._store.nbytes()
        except OSError:
            return 0

    def close(self) -> None:
        """Lets go of the files."""
        stores = [*self._retired, *filter(None, (self._store,))]
        self._retired, self._store = [], None
        for store in stores:
            store.close()

    def _open(self) -> None:
        setting = self.setting
        try:
            self._ground = self._ground or self._make_ground()
            files = open_files(self._ground, self._origin, _arena_nbytes(setting.nbytes))
            self._store = Store(
                files, self._around.home,
                most_nbytes=setting.nbytes, maps=self._around.is_expendable, wait_s=self._around.wait_s,
            )  # fmt: skip
        except Foreign as error:
            self._give_up(f"another job uses it for other samples ({error}): name another prefix")
            return
        except OSError as error:
            self._tell_of(error, "nothing is kept")
            return
        self._writes = files.writable
        if files.renewed:
            self._around.tell(f"cache_setting: {self._ground} is made anew: {files.renewed}")
        if not files.writable:
            self._around.tell(
                f"cache_setting: {self._ground} can only be read, so nothing is added to what is kept there"
            )

    def _watch(self) -> None:
        """Files that were renamed or removed are not what others use."""
        store, ground = self._store, self._ground
        if store is None or ground is None or ground.is_still(store.files):
            return
        with self._lock:
            if self._store is not store:
                return
            self._retire()
            if len(self._retired) > _MOST_RETIRED:
                self._give_up("its files are removed or replaced again and again")
                return
            self._open()
            if self._store is not None:
                with suppress(OSError):
                    self._store.turn_to(self._epoch)

    def _failed(self, error: OSError) -> None:
        self._tell_of(error, "nothing is kept from here on")
        self._retire()

    def _give_up(self, why: str) -> None:
        self._retire()
        self._around.tell(
            f"cache_setting: {self._named()} is not used from here on, training goes on without it: {why}"
        )

    def _retire(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            self._retired.append(store)  # not closed yet: a thread may be reading

    def _tell_of(self, error: OSError, what: str) -> None:
        advice = _ADVICE.get(error.errno or 0, "name another prefix")
        self._around.tell(
            f"cache_setting: {self._named()}: {what}, training goes on: {error.strerror or error}; {advice}"
        )

    def _named(self) -> str:
        return str(self._ground or self.setting.prefix)


def _arena_nbytes(most: int | None) -> int:
    if most is None:
        return _ARENA_NBYTES
    return min(_ARENA_NBYTES, capacity_of(-(-most // _ARENAS)))
