"""A Ray cluster, as far as it is Ray's. The only file that knows Ray, which is imported with it.

Actors run this file too, and workers there wait until it is imported: it imports little.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from swift_loader.engines.caretaker import Caretaker
from swift_loader.errors import ConfigError

try:
    import ray
    from ray.exceptions import ActorAlreadyExistsError, RayError
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise ConfigError("workers on a Ray cluster need the package ray: pip install 'swift-loader[ray]'") from error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from swift_loader.engines.placed import Placed

Refused = RayError
"""Whatever Ray says where it cannot do what it is asked."""
#: Of an actor's name, where a loader of this job has it already.
_TRIES = 100


class _Group:
    """Runs on a node of the cluster: some workers of one consumer.

    All that it is told comes with the question, and not when it is made: what Ray needs to read that takes as long as a
    server's interpreter to begin, and Ray would not make an actor again whose arguments are lost.
    """

    def __init__(self) -> None:
        context = ray.get_runtime_context()
        self._keeps_folder = bool(context.runtime_env.get("working_dir"))
        self._caretaker = Caretaker(context.get_actor_name())
        self._caretaker.begin()

    def placed(self, placing: bytes, hash_seed: str | None, payload: Any) -> Placed:
        """See `Caretaker`."""
        spot = ray.util.get_node_ip_address(), self._keeps_folder
        return self._caretaker.placed(spot, placing, hash_seed, payload)


class Actor:
    """One actor, as the trainer sees it.

    Args:
        name: What it is to be called; another number is put behind it where there is one of that name.
        options: As Ray has them.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self._question: Any = None
        kind = ray.remote(_Group)
        for attempt in range(1, _TRIES):
            self.name = name if attempt == 1 else f"{name}-{attempt}"
            try:
                self._handle = kind.options(name=self.name, **options).remote()
            except (ActorAlreadyExistsError, ValueError):  # another loader of this job has it
                if attempt == _TRIES - 1:
                    raise
                continue
            return

    def asked(self, *told: Any) -> Future[Placed]:
        """Where its server is, as soon as that is known; waits for nothing."""
        self._question = self._handle.placed.remote(*told)
        future: Future[Placed] = self._question.future()
        return future

    def end(self) -> None:
        """Ends it, and what it has started."""
        with contextlib.suppress(RayError):
            if self._question is not None:  # else Ray tells the user that it will be asked again
                ray.cancel(self._question)
            ray.kill(self._handle, no_restart=True)


def put(value: Any) -> Any:
    """A value that each node gets once."""
    return ray.put(value)


def resources() -> tuple[dict[str, float], dict[str, float]]:
    """What the cluster has, and what of it is free."""
    return ray.cluster_resources(), ray.available_resources()


def most_cpus() -> float:
    """Those of its largest node."""
    return max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=1.0)


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


def connect(address: str | None) -> None:
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
                    f"there is no Ray cluster at {address or 'this host'}: {first_lines(error)}. Start one (ray start "
                    "--head), call ray.init() before the loader is started, or name one: RayEngine(address=...)"
                ) from error
            _is_ours = True
        _users += 1


def disconnect() -> None:
    """A loader has no more workers there."""
    global _users, _is_ours  # noqa: PLW0603 - as above
    with _lock:
        _users -= 1
        if _users == 0 and _is_ours:
            _is_ours = False
            ray.shutdown()


def first_lines(error: BaseException) -> str:
    """What Ray says, which may be pages."""
    return " ".join(str(error).split())[:600]
