"""What a run delivered, batch by batch, and the check that it is what a run without faults delivers.

    expected = record(quiet_loader, epochs=2)
    found = record(loader_under_fire, epochs=2)
    assert not differences(found, expected)

Works for any iterable of batches, other loaders too. Samples are told apart where batches say which they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from swift_loader.batch.digest import checksum_of_all


@dataclass(frozen=True, slots=True)
class Delivered:
    """One batch, as its consumer saw it."""

    epoch: int
    step: int
    indices: tuple[int, ...]
    """Which samples it holds, where it says so."""
    crc: int
    """Stands for its types, shapes and bytes."""
    at_s: float = 0.0


def record(
    loader: Iterable[Any],
    epochs: int = 1,
    meanwhile: Callable[[int], None] | None = None,
    indices_of: Callable[[Any], Iterable[int]] | None = None,
) -> list[Delivered]:
    """All that ``loader`` delivers.

    Args:
        loader: Gone through once for each epoch.
        epochs: How often.
        meanwhile: Called after each step with its number: the place for faults.
        indices_of: Tells which samples a batch holds; by default ``batch["index"]``, where there is one.
    """
    found = []
    for epoch in range(epochs):
        for step, batch in enumerate(loader):
            found.append(delivered(epoch, step, batch, indices_of))
            if meanwhile is not None:
                meanwhile(step)
    return found


def delivered(epoch: int, step: int, batch: Any, indices_of: Callable[[Any], Iterable[int]] | None = None) -> Delivered:
    """The record of one batch."""
    indices = tuple(int(index) for index in (indices_of or _own_indices)(batch))
    return Delivered(epoch, step, indices, checksum_of_all(batch), monotonic())


def _own_indices(batch: Any) -> Iterable[int]:
    indices = batch.get("index", ()) if isinstance(batch, dict) else ()
    return indices if isinstance(indices, Sequence) or hasattr(indices, "__iter__") else ()


def differences(found: Sequence[Delivered], expected: Sequence[Delivered], *, in_order: bool = True) -> list[str]:
    """What is wrong with ``found``, in words; nothing if it is what was expected."""
    return [
        *_miscounted(found, expected),
        *_lost_and_doubled(found, expected),
        *(_out_of_place(found, expected) if in_order else _other_bytes(found, expected)),
    ]


def _miscounted(found: Sequence[Delivered], expected: Sequence[Delivered]) -> list[str]:
    # Where batches say which samples they hold, the samples are counted.
    had, wanted = (sum(not one.indices for one in run) for run in (found, expected))
    return [] if had == wanted else [f"{had} batches came, expected were {wanted}"]


def _lost_and_doubled(found: Sequence[Delivered], expected: Sequence[Delivered]) -> list[str]:
    had, wanted = (Counter((one.epoch, i) for one in run for i in one.indices) for run in (found, expected))
    words = []
    if lost := wanted - had:
        words.append(f"{lost.total()} samples were lost, as (epoch, index): {sorted(lost)[:5]}")
    if doubled := had - wanted:
        words.append(f"{doubled.total()} samples came twice or should not have come: {sorted(doubled)[:5]}")
    return words


def _other_bytes(found: Sequence[Delivered], expected: Sequence[Delivered]) -> list[str]:
    """Of batches that hold the same samples; which ones come together is not told where the order is free."""
    wanted: dict[tuple[int, tuple[int, ...]], set[int]] = {}
    for one in expected:
        wanted.setdefault((one.epoch, one.indices), set()).add(one.crc)
    wrong = [
        f"epoch {one.epoch}, a batch of samples {one.indices} holds other bytes"
        for one in found
        if one.crc not in wanted.get((one.epoch, one.indices), {one.crc})
    ]
    return wrong[:1]


def _out_of_place(found: Sequence[Delivered], expected: Sequence[Delivered]) -> list[str]:
    for had, wanted in zip(found, expected, strict=False):
        where = f"epoch {wanted.epoch}, step {wanted.step}"
        if had.indices != wanted.indices:
            return [f"{where} holds samples {had.indices}, expected were {wanted.indices}"]
        if had.crc != wanted.crc:
            return [f"{where} holds the right samples and other bytes" if had.indices else f"{where} holds other bytes"]
    return []
