"""No device of its own: a full slot becomes tensors in the host's memory, and is moved on from there if need be.

A leaf of 64 KB or less is copied out, which is cheaper than to keep track of it; a larger one views the slot and
holds it. Each tensor has a storage of its own, so keeping a batch's labels does not keep its images.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

from swift_loader.batch.codec import decode
from swift_loader.batch.collate import column_views
from swift_loader.batch.layout import Column
from swift_loader.device.moving import move

if TYPE_CHECKING:
    from swift_loader.device.stage import Array, Cargo

#: Up to this size a leaf is copied out of its slot.
COPY_NBYTES = 64 * 1024
_KNOWN_SPECS = 64


class HostStage:
    """Lands batches in the host's memory, and moves them on where a device or a function was given."""

    def __init__(
        self,
        decoder: Callable[[bytes], Any] | None,
        device: torch.device | None,
        to_device: Callable[[Any, Any], Any] | None,
        copy_nbytes: int = COPY_NBYTES,
    ) -> None:
        self._decoder = decoder
        self._device = device
        self._to_device = to_device or (None if device is None else move)
        self._copy_nbytes = copy_nbytes

    def open(self) -> None:
        """See `Stage`."""

    def land(self, cargo: Cargo) -> Any:
        """See `Stage`."""
        laps = cargo.laps
        if laps is None:
            batch = self._decoded(cargo)
            return batch if self._to_device is None else self._to_device(batch, self._device)
        begun = perf_counter_ns()
        batch = self._decoded(cargo)
        decoded = perf_counter_ns()
        laps.decode_ns = decoded - begun
        if self._to_device is not None:
            batch = self._to_device(batch, self._device)
            laps.transfer_ns = perf_counter_ns() - decoded
        return batch

    def _decoded(self, cargo: Cargo) -> Any:
        spec = cargo.spec
        if spec.kind == "columns":
            return self._columns(cargo)
        if spec.kind == "object":
            return self._objects(cargo)[0][0]
        assert self._decoder is not None
        ((start, nbytes),) = cargo.spans
        return self._decoder(cargo.memory[start : start + nbytes].tobytes())

    def settle(self) -> None:
        """See `Stage`: nothing is under way."""

    def close(self) -> None:
        """See `Stage`."""

    def _columns(self, cargo: Cargo) -> Any:
        spec, rows = cargo.spec, cargo.rows
        lists = iter(self._objects(cargo) if spec.object_count else ())
        leaves = [
            self._tensor(column, view, offset, cargo, rows) if view is not None else _listed(column, next(lists))
            for column, view, offset in zip(spec.columns, self._views(cargo), spec.offsets, strict=True)
        ]
        return spec.structure.build(iter(leaves))

    def _tensor(self, column: Column, view: Array, offset: int, cargo: Cargo, rows: int) -> torch.Tensor:
        if column.row_nbytes * rows <= self._copy_nbytes:
            array = view.copy() if rows == cargo.spec.capacity else view[:rows].copy()
        else:
            array = cargo.hold((rows, *column.shape), column.dtype, offset)
        tensor = torch.from_numpy(array)
        return tensor.view(getattr(torch, column.viewed_as)) if column.viewed_as else tensor

    def _views(self, cargo: Cargo) -> list[Array | None]:
        kept = cargo.views.get(cargo.spec.key)
        if kept is None:
            if len(cargo.views) >= _KNOWN_SPECS:
                cargo.views.clear()
            # The spec is kept with them, so that its key cannot become another's.
            kept = cargo.views[cargo.spec.key] = (cargo.spec, column_views(cargo.spec, cargo.memory))
        return kept[1]

    def _objects(self, cargo: Cargo) -> list[list[Any]]:
        spans, stream = cargo.spans, cargo.stream
        if stream is None:  # too large for the parcel: it lies in the slot, behind its buffers
            *spans, (start, nbytes) = spans
            stream = cargo.memory[start : start + nbytes].tobytes()
        buffers = [cargo.hold((nbytes,), "uint8", start) for start, nbytes in spans]
        return decode(stream, buffers)  # type: ignore[no-any-return] # what the maker encoded


def _listed(column: Column, values: list[Any]) -> list[Any]:
    """A column of objects as it was, or, where it became a list because its shapes differ, as a list of tensors."""
    if not column.dtype:
        return values
    tensors = [torch.from_numpy(value) for value in values]
    return [tensor.view(getattr(torch, column.viewed_as)) for tensor in tensors] if column.viewed_as else tensors
