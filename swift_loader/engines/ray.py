"""A Ray cluster, as far as it is Ray's. The only file that knows Ray, which is imported with it.

Actors run this file too, and workers there wait until it is imported: it imports little.
"""

from __future__ import annotations

import contextlib
import threading
import time
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
_TELL_S = 2.0
#: What is counted: its name, what it is, and how many of ours make one of it.
_COUNTERS = (
    ("batches_made", "batches that workers on the cluster have made", 1),
    ("batch_seconds", "what workers took to make them, added up", 1_000_000_000),
    ("batch_bytes", "how large they were", 1),
)


class _Group:
    """Runs on a node of the cluster: some workers of one consumer.

    All that it is told comes with the question, and not when it is made: what Ray needs to read that takes as long as a
    server's interpreter to begin, and Ray would not make an actor again whose arguments are lost.
    """

    def __init__(self) -> None:
        context = ray.get_runtime_context()
        self._keeps_folder = bool(context.runtime_env.get("working_dir"))
        self._name = context.get_actor_name()
        self._teller: threading.Thread | None = None
        self._caretaker = Caretaker(self._name)
        self._caretaker.begin()

    def placed(self, placing: bytes, hash_seed: str | None, payload: Any) -> Placed:
        """See `Caretaker`."""
        spot = ray.util.get_node_ip_address(), self._keeps_folder
        placed = self._caretaker.placed(spot, placing, hash_seed, payload)
        if self._teller is None:
            self._teller = threading.Thread(target=self._tell, name="swift-figures", daemon=True)
            self._teller.start()
        return placed

    def _tell(self) -> None:
        """What is done here, in Ray's own metrics."""
        from ray.util.metrics import Counter, Gauge  # noqa: PLC0415 - once there is something to count

        counters = [(Counter(f"swift_{name}", told, ("actor",)), unit) for name, told, unit in _COUNTERS]
        waiting = Gauge("swift_batches_waiting", "batches that a training process has asked for", ("actor",))
        tags = {"actor": self._name}
        before: tuple[int, ...] = ()
        while True:
            time.sleep(_TELL_S)
            now = self._caretaker.figures()
            if now is None:
                continue
            for (counter, unit), then, number in zip(counters, before or (0, 0, 0), now[:-1], strict=True):
                if number > then:
                    counter.inc((number - then) / unit, tags)
            before = now[:-1]
            waiting.set(now.waiting, tags)


class Actor:
    """One actor, as the trainer sees it.

    Args:
        name: What it is to be called; another number is put behind it where there is one of that name.
        options: As Ray has them.

    Raises:
        ConfigError: if it takes none of these.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self._question: Any = None
        kind = ray.remote(_Group)
        for attempt in range(1, _TRIES):
            self.name = name if attempt == 1 else f"{name}-{attempt}"
            try:
                named = kind.options(name=self.name, **options)
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"Ray makes no actor as RayEngine has it: {first_lines(error)}. Folders are shipped with a job, "
                    "and not for an actor: ray.init(runtime_env=...), before the loader is started"
                ) from error
            try:
                self._handle = named.remote()
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


def connect(address: str | None, runtime_env: dict[str, Any] | None) -> bool:
    """This process is one of the cluster's from now on, if it is not yet; whether its job has this environment.

    Raises:
        ConfigError: if there is no cluster.
    """
    global _users, _is_ours  # noqa: PLW0603 - Ray has one connection for each process
    has_environment = False
    with _lock:
        if not ray.is_initialized():
            try:
                ray.init(address=address or "auto", runtime_env=runtime_env, logging_level="warning")
            except (ConnectionError, RayError, ValueError) as error:
                raise ConfigError(
                    f"there is no Ray cluster at {address or 'this host'}: {first_lines(error)}. Start one (ray start "
                    "--head), call ray.init() before the loader is started, or name one: RayEngine(address=...)"
                ) from error
            _is_ours = has_environment = True
        _users += 1
    return has_environment


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
