"""Workers on a Ray cluster.

Ray's part      where they are, the CPUs that they count for, shipping the recipe to each node, what is started again
                where an actor or a node is lost, names and logs
ours            which batch, in order and once; the life of workers; the bytes of batches, from an actor's server
                straight into the trainer's slots

An actor stands for some workers on one node: it keeps a server there (`serving.group`). A porter here stands for that
server on one line. Nothing here waits for Ray but the first look at the cluster: what it has not answered yet is asked
for again as soon as it has, so that workers on this host are never kept waiting.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from swift_loader.engines import ray
from swift_loader.engines.local import LocalEngine
from swift_loader.engines.placed import Placing, Surroundings
from swift_loader.errors import ConfigError, WorkerStartFailed
from swift_loader.net.keygen import new_key
from swift_loader.pool.failures import start_error
from swift_loader.pool.process import Started, WorkerAwaited
from swift_loader.travel.payload import Unsendable, pack
from swift_loader.wire import messages
from swift_loader.wire.remote_samples import RemoteSamples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from swift_loader.engines.placed import Placed
    from swift_loader.settings.ray_engine import RayEngine
    from swift_loader.wire.messages import Setup
    from swift_loader.wire.recipe import Recipe

_MOST_WORKERS, _MOST_TOGETHER = 8, 4
#: How soon a place is asked for again where Ray does not answer, at first and later, so that somebody is told.
_SOON_S, _LATER_S = 0.1, 1.0
_PENDING_TOLD_S = 10.0
#: A porter that does not reach its server tries again for so long; the actor is asked anew then.
_WAIT_S = 3.0
#: What Ray counts for itself: of nodes, its store, and placement groups.
_IS_ITS_OWN = re.compile("^node:|^object_store|^memory|_group_")


@dataclass(slots=True)
class _Place:
    """One actor, and what is known of it."""

    actor: ray.Actor
    width: int
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
        environment = None if asked.runtime_env is None else dict(asked.runtime_env)
        self._environment = None if ray.connect(asked.address, environment) else environment
        """What its actors have beside the job's."""
        self.widths = _widths(asked, recipe.config.consumer_count)
        self.names = [f"swift-c{recipe.consumer}g{number}" for number in range(len(self.widths))]
        self._asked = asked
        self._recipe = recipe
        self._job_key = new_key()
        self._loader = os.urandom(8).hex()
        self._surroundings = Surroundings.here()
        self._porters = LocalEngine(_for_porters(recipe, self._job_key, self._loader, max(self.widths)), "forkserver")
        self._places: dict[int, _Place] = {}
        """By the numbers of their lines."""
        self._first_line = recipe.config.worker_count
        self._payload: Any = None
        self._look: _Look | None = None

    def open(self) -> None:
        """See `Engine`."""
        for number, width in enumerate(self.widths):  # first, since Ray takes longest
            self._places[self._first_line + number] = self._created(number, width)
        self._porters.open()
        self._payload = ray.put(_packed(self._recipe))

    def launch(self, name: str, setup: Setup, fds: tuple[int, ...]) -> Started:
        """See `Engine`.

        Raises:
            WorkerAwaited: if there is no server yet.
            WorkerStartFailed: if there will be none, or too late.
        """
        place = self._places[setup.worker]
        if place.is_lost:  # Ray makes it anew itself, unless somebody has ended it for good
            place = self._places[setup.worker] = self._created(setup.worker - self._first_line, place.width)
        addresses = self._addresses_of(place)
        if addresses is None:
            raise self._pending(place)
        return self._porters.launch(name, replace(setup, servers=addresses), fds)

    def will_need(self, libraries: Sequence[str]) -> None:
        """Nothing: what stands for a server needs none of them."""

    def abandon(self) -> None:
        """See `Engine`."""
        self._porters.abandon()

    def close(self) -> None:
        """See `Engine`."""
        self._porters.close()
        for place in self._places.values():
            place.actor.end()
        self._places.clear()
        self._payload = None
        ray.disconnect()

    def _created(self, number: int, width: int) -> _Place:
        asked = self._asked
        options: dict[str, Any] = {
            "num_cpus": width, "resources": dict(asked.resources or {}), "scheduling_strategy": asked.strategy(number),
            "max_restarts": -1, "max_task_retries": -1,
        }  # fmt: skip
        if self._environment is not None:
            options["runtime_env"] = self._environment
        return _Place(ray.Actor(self.names[number], options), width, time.monotonic())

    def _addresses_of(self, place: _Place) -> tuple[str, ...] | None:
        """Where its server is found; None if that is not known yet."""
        if place.answer is None:
            placing = Placing(self._asked.ports, place.width, self._job_key, self._loader, self._surroundings)
            told = messages.write_pickled(messages.SETUP, placing), self._surroundings.hash_seed
            place.answer = place.actor.asked(*told, self._payload)
            place.since_s = time.monotonic()
        if not place.answer.done():
            return None
        answer, place.answer = place.answer, None  # the next porter asks anew
        try:
            placed = answer.result(0.0)
        except ray.Refused as error:
            place.is_lost = place.was_placed
            raise WorkerStartFailed(f"Ray could not start or keep its actor: {ray.first_lines(error)}") from error
        if placed.report is not None:
            raise start_error(place.actor.name, placed.report, self._recipe.consumer, 0)
        place.was_placed = True
        return placed.addresses

    def _pending(self, place: _Place) -> WorkerAwaited:
        """What to wait for, and what to tell of it, once."""
        waited_s, limit_s = time.monotonic() - place.since_s, self._asked.start_timeout_s
        if self._look is None and waited_s > min(_PENDING_TOLD_S, limit_s / 2):
            self._look = _Look()
        if waited_s > limit_s:
            raise WorkerStartFailed(self._told(place, waited_s))
        delay_s = min(_SOON_S + waited_s / 8, _LATER_S)
        if waited_s < _PENDING_TOLD_S or place.is_told or self._look is None or self._look.text is None:
            return WorkerAwaited(delay_s, answer=place.answer)
        place.is_told = True
        note = f"{self._told(place, waited_s)}. It is used as soon as it has one"
        return WorkerAwaited(delay_s, note, place.answer)

    def _told(self, place: _Place, waited_s: float) -> str:
        resources = {"CPU": place.width, **(self._asked.resources or {})}
        there = self._look.text if self._look is not None and self._look.text else "the cluster does not answer"
        return (
            f"the Ray actor {place.actor.name} has waited {waited_s:.0f} s for a place, or for its dataset to be "
            f"built: it asks for {resources}; {there}"
        )


class _Look:
    """What the cluster has, asked for in a thread, since it may not answer."""

    def __init__(self) -> None:
        self.text: str | None = None
        threading.Thread(target=self._run, name="swift-ray-look", daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(ray.Refused, OSError, RuntimeError):
            there, free = ray.resources()
            self.text = f"there are {_shown(there)} in all, of which {_shown(free)} are free"


def _shown(resources: dict[str, float]) -> str:
    told = {name: value for name, value in sorted(resources.items()) if not _IS_ITS_OWN.search(name)}
    return str({name: int(value) if value == int(value) else value for name, value in told.items()})


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


def _widths(asked: RayEngine, consumers: int) -> list[int]:
    """How many workers each actor has."""
    if asked.workers is not None and asked.workers_per_actor is not None:
        workers, together = asked.workers, asked.workers_per_actor
    else:
        free = max(1, int(ray.resources()[1].get("CPU", 0.0)) // consumers)
        workers = asked.workers or min(_MOST_WORKERS, free)
        together = asked.workers_per_actor or min(_MOST_TOGETHER, max(1, int(ray.most_cpus())), free)
    together = min(together, workers)
    return [together] * (workers // together) + [workers % together] * bool(workers % together)
