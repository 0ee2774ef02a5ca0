"""The dataset of a loader whose batches servers make: it stands where a dataset does, and has no samples here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

from swift_loader.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RemoteSamples:
    """Where the samples are, and how many."""

    sample_count: int
    servers: tuple[str, ...]
    """The addresses: worker number n stands for the nth, and they begin anew behind the last."""
    key: str | None
    """The file with the key, where there is one."""
    loader: str
    """Which loader they must serve."""
    width: int
    """So many workers make batches at each of them."""
    wait_s: float
    """How long a server is waited for where none answers."""
    job_key: str = ""
    """The key itself, of servers that this job has started: they have the same code, and what they say is as our own
    workers'. ``servers`` is empty then, since each line is told where its own is, and so are facts and loader."""

    def server_of(self, worker: int) -> str:
        """For which server that worker stands."""
        return self.servers[worker % len(self.servers)]

    def at(self, servers: tuple[str, ...]) -> Self:
        """The same on a line whose server is there, if that is known for each line alone."""
        return replace(self, servers=servers) if servers else self

    def __len__(self) -> int:
        return self.sample_count

    def __getitem__(self, index: Any) -> NoReturn:
        place = ", ".join(self.servers) or "the cluster"
        raise ConfigError(
            f"sample {index} lies at {place}: a loader that is connected to servers has no samples here. "
            "A batch is made again (replay) where the dataset is"
        )
