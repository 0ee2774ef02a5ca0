"""Who waited for whom: a table of all consumers, and one sentence. Pure: figures in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

#: Below this share of the time, waiting is noise; above the second, it is what the run consists of.
_NOISE, _MUCH = 0.05, 0.30


class Consumer(NamedTuple):
    """What one consumer's loader counted."""

    batches: int
    samples: int
    wait_s: float
    """How long the model waited for data."""
    busy_s: float
    """How long data waited for the model."""

    @classmethod
    def of(cls, statistics: Mapping[str, float]) -> Self:
        """Reads what `SwiftLoader.statistics()` gives."""
        return cls(
            batches=int(statistics["batches"]),
            samples=int(statistics["samples"]),
            wait_s=statistics["wait_s"],
            busy_s=statistics["busy_s"],
        )

    @property
    def seconds(self) -> float:
        return self.wait_s + self.busy_s

    @property
    def waited(self) -> float:
        """The share of the time that the model waited."""
        return self.wait_s / self.seconds if self.seconds > 0 else 0.0


def table(consumers: Sequence[Consumer]) -> str:
    """A line per consumer, at most 80 columns wide."""
    columns = ("consumer", 8), ("batches", 11), ("samples/s", 12), ("model waited", 18), ("data waited", 18)
    lines = [
        "  ".join(f"{name:>{width}}" for name, width in columns),
        "  ".join("-" * width for _, width in columns),
    ]
    for index, consumer in enumerate(consumers):
        rate = consumer.samples / consumer.seconds if consumer.seconds > 0 else 0.0
        model_waited = _share(consumer.wait_s, consumer.waited)
        data_waited = _share(consumer.busy_s, 1 - consumer.waited)
        lines.append(f"{index:>8}  {consumer.batches:>11,}  {rate:>12,.0f}  {model_waited:>18}  {data_waited:>18}")
    return "\n".join(lines)


def sentence(consumers: Sequence[Consumer]) -> str:
    """What the table means."""
    if not any(consumer.batches for consumer in consumers):
        return "Nothing was loaded."
    index, worst = max(enumerate(consumers), key=lambda pair: pair[1].waited)
    share = f"{worst.waited:.1%} of its time"
    if worst.waited <= _NOISE:
        return f"The data waited for the model: consumer {index}, which waited most, waited {share} for data."
    if worst.waited <= _MUCH:
        return f"The model waited a little: consumer {index} waited {share} for data. A worker more would hide it."
    return (
        f"The model waited for the data: consumer {index} waited {share}. More workers, or cheaper samples, would help."
    )


def _share(seconds: float, share: float) -> str:
    return f"{seconds:,.2f} s {share:>6.1%}"
