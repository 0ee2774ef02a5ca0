"""Workers on a Ray cluster. The only file that knows Ray, which is imported with it.

Ray's part      where they are, the CPUs that they count for, shipping the recipe to each node, what is started again
                where an actor or a node is lost, names and logs
ours            which batch, in order and once; the life of workers; the bytes of batches, from an actor's server
                straight into the trainer's slots

An actor stands for some workers on one node: it keeps a server there (`serving.group`). A porter here stands for that
server on one line. Nothing here waits for Ray but the first look at the cluster: what it has not answered yet is asked
for again, so that workers on this host are never kept waiting.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from swift_loader.engines.caretaker import Caretaker
from swift_loader.engines.local import LocalEngine
from swift_loader.engines.placed import Placed, Placing, Surroundings
from swift_loader.errors import ConfigError, WorkerStartFailed
from swift_loader.net.keygen import new_key
from swift_loader.pool.failures import start_error
from swift_loader.pool.process import Started, WorkerAwaited
from swift_loader.travel.payload import Unsendable, pack
from swift_loader.wire.remote_samples import RemoteSamples

try:
    import ray
    from ray.exceptions import ActorAlreadyExistsError, RayError
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise ConfigError("workers on a Ray cluster need the package ray: pip install 'swift-loader[ray]'") from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from swift_loader.settings.ray_engine import RayEngine
    from swift_loader.wire.messages import Setup
    from swift_loader.wire.recipe import Recipe

_MOST_WORKERS, _MOST_TOGETHER = 8, 4
#: How soon a place is asked for again, at first and later.
_SOON_S, _LATER_S = 0.1, 1.0
_PENDING_TOLD_S = 10.0
#: A porter that does not reach its server tries again for so long; the actor is asked anew then.
_WAIT_S = 3.0
#: What Ray counts for itself: of nodes, its store, and placement groups.
_IS_ITS_OWN = re.compile("^node:|^object_store|^memory|_group_")
#: Of an actor's name, where a loader of this job has it already.
_TRIES = 100


class _Group:
    """The actor: runs on a node of the cluster."""

    def __init__(self, placing: Placing, name: str) -> None:
        host = ray.util.get_node_ip_address()
        keeps_folder = bool(ray.get_runtime_context().runtime_env.get("working_dir"))
        self._caretaker = Caretaker(replace(placing, host=host, keeps_folder=keeps_folder), name)

    def placed(self, payload: Any) -> Placed:
        """The payload comes with the question, and not when the actor is made: Ray would not make it again without."""
        return self._caretaker.placed(payload)


@dataclass(slots=True)
class _Actor:
    """One actor, as the trainer sees it."""

    name: str
    width: int
    handle: Any
    since_s: float
    """Since then its server is waited for."""
    answer: Future[Placed] | None = None
    is_told: bool = False
    was_placed: bool = False
    is_lost: bool = False


class RayWorkers:
    """Serves some lines of a pool, each with an actor. See `Engine`."""

    sends_payload = True

    def __init__(self, recipe: Recipe, asked: RayEngine) -> None:
        _connect(asked.address)
        self.widths = _widths(asked, recipe.config.consumer_count)
        self.names = [f"swift-c{recipe.consumer}g{number}" for number in range(len(self.widths))]
        self._asked = asked
        self._recipe = recipe
        self._job_key = new_key()
        self._loader = os.urandom(8).hex()
        self._porters = LocalEngine(_for_porters(recipe, self._job_key, self._loader, max(self.widths)), "forkserver")
        self._actors: dict[int, _Actor] = {}
        """By the numbers of their lines."""
        self._first_line = recipe.config.worker_count
        self._payload: Any = None
        self._look: _Look | None = None

    def open(self) -> None:
        """See `Engine`."""
        self._porters.open()
        self._payload = ray.put(_packed(self._recipe))
        for number, width in enumerate(self.widths):
            self._actors[self._first_line + number] = self._created(number, width)

    def launch(self, name: str, setup: Setup, fds: tuple[int, ...]) -> Started:
        """See `Engine`.

        Raises:
            WorkerAwaited: if there is no server yet.
            WorkerStartFailed: if there will be none, or too late.
        """
        actor = self._actors[setup.worker]
        if actor.is_lost:  # Ray makes it anew itself, unless somebody has ended it for good
            actor = self._actors[setup.worker] = self._created(setup.worker - self._first_line, actor.width)
        addresses = self._addresses_of(actor)
        if addresses is None:
            raise WorkerAwaited(*self._pending(actor))
        return self._porters.launch(name, replace(setup, servers=addresses), fds)

    def will_need(self, libraries: Sequence[str]) -> None:
        """Nothing: what stands for a server needs none of them."""

    def abandon(self) -> None:
        """See `Engine`."""
        self._porters.abandon()

    def close(self) -> None:
        """See `Engine`."""
        self._porters.close()
        for actor in self._actors.values():
            with contextlib.suppress(RayError):
                ray.kill(actor.handle, no_restart=True)
        self._actors.clear()
        self._payload = None
        _disconnect()

    def _created(self, number: int, width: int) -> _Actor:
        asked, name = self._asked, self.names[number]
        placing = Placing("", asked.ports, width, self._job_key, self._loader, Surroundings.here(), keeps_folder=False)
        options: dict[str, Any] = {
            "num_cpus": width, "resources": dict(asked.resources or {}), "scheduling_strategy": asked.strategy(number),
            "max_restarts": -1, "max_task_retries": -1,
        }  # fmt: skip
        if asked.runtime_env is not None:
            options["runtime_env"] = dict(asked.runtime_env)
        for attempt in range(1, _TRIES):
            shown = name if attempt == 1 else f"{name}-{attempt}"
            try:
                group = ray.remote(_Group).options(name=shown, **options).remote(placing, shown)
            except (ActorAlreadyExistsError, ValueError):  # another loader of this job has it
                if attempt == _TRIES - 1:
                    raise
                continue
            return _Actor(shown, width, group, time.monotonic())
        raise AssertionError

    def _addresses_of(self, actor: _Actor) -> tuple[str, ...] | None:
        """Where its server is found; None if that is not known yet."""
        if actor.answer is None:
            actor.answer = actor.handle.placed.remote(self._payload).future()
            actor.since_s = time.monotonic()
        if not actor.answer.done():
            return None
        answer, actor.answer = actor.answer, None  # the next porter asks anew
        try:
            placed = answer.result(0.0)
        except RayError as error:
            actor.is_lost = actor.was_placed
            raise WorkerStartFailed(f"Ray could not start or keep its actor: {_first_lines(error)}") from error
        if placed.report is not None:
            raise start_error(actor.name, placed.report, self._recipe.consumer, 0)
        actor.was_placed = True
        return placed.addresses

    def _pending(self, actor: _Actor) -> tuple[float, str]:
        """After how long to ask again, and what to tell of it, once."""
        waited_s, limit_s = time.monotonic() - actor.since_s, self._asked.start_timeout_s
        if self._look is None and waited_s > min(_PENDING_TOLD_S, limit_s / 2):
            self._look = _Look()
        if waited_s > limit_s:
            raise WorkerStartFailed(self._told(actor, waited_s))
        if waited_s < _PENDING_TOLD_S:
            return min(_SOON_S + waited_s / 8, _LATER_S), ""
        if actor.is_told or self._look is None or self._look.text is None:
            return _LATER_S, ""
        actor.is_told = True
        return _LATER_S, f"{self._told(actor, waited_s)}. It is used as soon as it has one"

    def _told(self, actor: _Actor, waited_s: float) -> str:
        resources = {"CPU": actor.width, **(self._asked.resources or {})}
        there = self._look.text if self._look is not None and self._look.text else "the cluster does not answer"
        return (
            f"the Ray actor {actor.name} has waited {waited_s:.0f} s for a place, or for its dataset to be built: it "
            f"asks for {resources}; {there}"
        )


class _Look:
    """What the cluster has, asked for in a thread, since it may not answer."""

    def __init__(self) -> None:
        self.text: str | None = None
        threading.Thread(target=self._run, name="swift-ray-look", daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(RayError, OSError, RuntimeError):
            there, free = ray.cluster_resources(), ray.available_resources()
            self.text = f"there are {_shown(there)} in all, of which {_shown(free)} are free"


def _shown(resources: dict[str, float]) -> str:
    told = {name: value for name, value in sorted(resources.items()) if not _IS_ITS_OWN.search(name)}
    return str({name: int(value) if value == int(value) else value for name, value in told.items()})


def _first_lines(error: BaseException) -> str:
    return " ".join(str(error).split())[:600]


def _for_porters(recipe: Recipe, job_key: str, loader: str, width: int) -> Recipe:
    samples = RemoteSamples(0, (), None, loader, width, _WAIT_S, job_key)
    config = replace(
        recipe.config, collate_fn=None, batch_encoder=None, worker_init=None, plan=None, cache_setting=None,
        share_dataset=False, max_worker_nbytes=None, engine="local",
    )  # fmt: skip
    return replace(
        recipe, dataset_class=None, dataset_kwargs={}, dataset=samples, config=config, origin=None, memory=None
    )


def _packed(recipe: Recipe) -> Any:
    """The recipe in bytes, as Ray takes them: once for each node."""
    import numpy as np  # noqa: PLC0415

    config = replace(recipe.for_worker().config, in_order=True, validate=False, replay_file=None, allow_fork=True)
    if config.start_method == "fork":
        config = replace(config, start_method="auto")
    try:
        packed = pack(replace(recipe, config=config, memory=None), "host")
    except Unsendable as error:
        raise ConfigError(
            f"the dataset cannot be sent to another host: {error}. Give dataset_class and dataset_kwargs that can be "
            "pickled, and open connections in the dataset's __init__ or at first use"
        ) from error.__cause__
    try:
        with mmap.mmap(packed.fd, 0, access=mmap.ACCESS_READ) as mapped:
            return np.frombuffer(mapped, np.uint8).copy()
    finally:
        os.close(packed.fd)


# ---- the cluster


@contextlib.contextmanager
def own_cluster(cpus: int) -> Iterator[str]:
    """A cluster of this machine alone, for as long as this is entered: its address. All processes need one token."""
    ray.init(num_cpus=cpus, include_dashboard=False, _node_ip_address="127.0.0.1", logging_level="warning")
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()


_lock = threading.Lock()
_users = 0
"""Loaders of this process that have workers there."""
_is_ours = False
"""This process was connected by us."""


def _connect(address: str | None) -> None:
    """This process is one of the cluster's from now on, if it is not yet.

    Raises:
        ConfigError: if there is no cluster.
    """
    global _users, _is_ours  # noqa: PLW0603 - Ray has one connection for each process
    with _lock:
        if not ray.is_initialized():
            try:
                ray.init(address=address or "auto", logging_level="warning")
            except (ConnectionError, RayError, ValueError) as error:
                raise ConfigError(
                    f"there is no Ray cluster at {address or 'this host'}: {_first_lines(error)}. Start one (ray start "
                    "--head), call ray.init() before the loader is started, or name one: RayEngine(address=...)"
                ) from error
            _is_ours = True
        _users += 1


def _disconnect() -> None:
    global _users, _is_ours  # noqa: PLW0603 - as above
    with _lock:
        _users -= 1
        if _users == 0 and _is_ours:
            _is_ours = False
            ray.shutdown()


def _widths(asked: RayEngine, consumers: int) -> list[int]:
    """How many workers each actor has."""
    nodes = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    free = max(1, int(ray.available_resources().get("CPU", 0.0)) // consumers)
    workers = asked.workers or min(_MOST_WORKERS, free)
    together = asked.workers_per_actor or min(_MOST_TOGETHER, max(1, int(max(nodes, default=1.0))), free)
    together = min(together, workers)
    return [together] * (workers // together) + [workers % together] * bool(workers % together)
