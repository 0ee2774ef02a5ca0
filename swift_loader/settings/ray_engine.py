"""The setting `engine` of a loader that has workers on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from swift_loader.errors import ConfigError
from swift_loader.settings import checks

_LARGEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Workers on a Ray cluster, beside ``worker_per_consumer`` on this host, which may be none.

    Args:
        address: The cluster; None: the one that this process is connected to, or the one that ``ray start`` began here.
        workers: How many of each consumer; None: as many as the cluster has free CPUs for it, and eight at most.
        workers_per_actor: So many are placed together, on one node, by one actor that asks for as many CPUs; None:
            four, or fewer where no node has as many.
        resources: What an actor asks for beside its CPUs, by Ray's names.
        placement: "spread", "pack", a scheduling strategy of Ray's, or a function from an actor's number to one.
        ports: The first and the last port at which actors may listen, where a firewall lets only some through.
        runtime_env: As Ray has it: working_dir, pip, env_vars, ...
        start_timeout_s: For so long a place on the cluster is waited for where no other worker works.

    Example:
        >>> from swift_loader import RayEngine
        >>> RayEngine(workers=8).workers_per_actor is None
        True
    """

    address: str | None = None
    workers: int | None = None
    workers_per_actor: int | None = None
    resources: Mapping[str, float] | None = None
    placement: Any = "spread"
    ports: tuple[int, int] | None = None
    runtime_env: Mapping[str, Any] | None = None
    start_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("workers", "workers_per_actor"):
            if getattr(self, name) is not None:
                checks.whole(name, getattr(self, name), least=1)
        checks.seconds("start_timeout_s", self.start_timeout_s)
        address: Any = self.address
        if address is not None and not (isinstance(address, str) and address):
            raise checks.wrong("address", "a text such as 'auto' or 'host:6379'", self.address)
        if self.placement is None or (isinstance(self.placement, str) and self.placement not in ("spread", "pack")):
            raise checks.wrong("placement", "'spread', 'pack', a scheduling strategy or a function", self.placement)
        for name in ("resources", "runtime_env"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), Mapping):
                raise checks.wrong(name, "a dict", getattr(self, name))
        if self.ports is not None and not _is_range(self.ports):
            raise checks.wrong("ports", "two port numbers, the first and the last", self.ports)

    @classmethod
    def parse(cls, name: str, given: Any) -> Self | Literal["local"]:
        """The setting of a word.

        Raises:
            ConfigError: if it is none.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, str) and given in ("local", "ray"):
            return cls() if given == "ray" else "local"
        raise ConfigError(
            f"{name} must be 'local', 'ray' or a RayEngine, not {checks.described(given)}"
            f"{checks.meant(given, ('local', 'ray'))}"
        )

    def strategy(self, number: int) -> Any:
        """How Ray is to place the actor with this number."""
        if isinstance(self.placement, str):
            return {"spread": "SPREAD", "pack": "DEFAULT"}[self.placement]
        place: Callable[[int], Any] | Any = self.placement
        return place(number) if callable(place) else place


def _is_range(ports: Any) -> bool:
    try:
        first, last = ports
    except (TypeError, ValueError):
        return False
    numbers = [checks.whole_number(one) for one in (first, last)]
    return all(one is not None and 0 < one <= _LARGEST_PORT for one in numbers) and first <= last
