"""Arrays and tensors on their way to workers: beside the pickle, written from where they lie, or not at all.

Large arrays and the memory of tensors have places of their own in the payload, which workers map. What lies in a file
anyway is mapped from there again, and tensors in shared memory are shared with the trainer. Tensors that look at the
same memory do so afterwards, and what of it nobody looks at takes no room.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import pickle
import sys
from typing import Any

import numpy as np

from swift_loader.batch.layout import aligned
from swift_loader.travel import arrival
from swift_loader.travel.mapped import Mapped, Maps

#: Smaller buffers stay in the pickle.
_OUT_OF_BAND_NBYTES = 64 * 1024


class Piece:
    """Memory that several arrays or tensors look at. Pickled once."""

    def __init__(self, owner: Any, address: int, nbytes: int) -> None:
        self.owner = owner
        self.address, self.nbytes = address, nbytes
        self.low, self.high = nbytes, 0
        """What of it is used."""
        self.reduced: Any = None
        """How it comes to be in a worker, where its bytes are not sent."""

    def use(self, low: int, high: int) -> None:
        """Somebody looks at these bytes."""
        self.low, self.high = min(self.low, low), max(self.high, high)

    def view(self, low: int, high: int) -> memoryview:
        """These bytes, as they are."""
        return memoryview((ctypes.c_ubyte * (high - low)).from_address(self.address + low)).cast("B")


class Bulk:
    """What lies beside one pickle."""

    def __init__(self, *, outlives: bool) -> None:
        self._outlives = outlives
        self._sources: list[memoryview | np.ndarray | Piece] = []
        self._stand_ins: dict[int, tuple[Any, np.ndarray | Piece]] = {}
        """By the number of what the pickler was given in their place, which must stay alive as long."""
        self._pieces: dict[tuple[str, int], Piece] = {}
        self._maps = Maps()

    def keeps_inline(self, buffer: pickle.PickleBuffer) -> bool:
        """What the pickler asks for each buffer: whether it is to be written into the pickle."""
        raw = buffer.raw()
        meant = self._stand_ins.get(id(raw.obj))
        if meant is None and raw.nbytes < _OUT_OF_BAND_NBYTES:
            return True
        self._sources.append(raw if meant is None else meant[1])
        return False

    # ---- what is asked while it is pickled ---------------------------------------------------------------------------

    def array(self, array: np.ndarray) -> Any:
        """How an array is pickled."""
        if array.nbytes < _OUT_OF_BAND_NBYTES or array.dtype.hasobject:
            return NotImplemented if type(array) is np.ndarray else np.asarray(array).__reduce_ex__(5)
        low, high = np.lib.array_utils.byte_bounds(array)
        if _lies_in_a_map(array) and (mapped := self._maps.at(low, high - low)) is not None:
            return self._mapped_array(array, mapped)
        if array.flags.c_contiguous or array.flags.f_contiguous:
            return np.asarray(array).__reduce_ex__(5)
        if high - low > array.nbytes:  # a part of a larger one, that has gaps
            return arrival.array_of, (self._stand_in(array), 0, array.dtype, array.shape, None)
        piece = Piece(array, low, high - low)
        piece.use(0, piece.nbytes)
        first = _address_of(array) - low
        return arrival.array_of, (self._stand_in(piece), first, array.dtype, array.shape, array.strides)

    def _mapped_array(self, array: np.ndarray, mapped: Mapped) -> Any:
        key = "file", mapped.begin
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = Piece(array, mapped.begin, mapped.nbytes)
            mode = "r+" if mapped.is_writable else "r"
            piece.reduced = arrival.file_mapped, (mapped.path, mode, mapped.start, mapped.nbytes)
        first = _address_of(array) - mapped.begin
        offset = array.offset if isinstance(array, np.memmap) else None
        return arrival.array_in, (piece, first, array.dtype, array.shape, array.strides, offset)

    def tensor(self, tensor: Any) -> Any:
        """How a tensor is pickled; torch's own way where it is none of the usual ones."""
        torch = sys.modules["torch"]
        if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.requires_grad:
            return NotImplemented
        if tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg() or vars(tensor):
            return NotImplemented
        dtype = str(tensor.dtype).removeprefix("torch.")
        if not tensor.numel():
            return arrival.tensor_of, (None, dtype, 0, tuple(tensor.shape), tensor.stride())
        piece = self._piece_of(tensor)
        first = tensor.storage_offset() * tensor.element_size()
        reach = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
        piece.use(first, first + (reach + 1) * tensor.element_size())
        return arrival.tensor_of, (piece, dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())

    def _piece_of(self, tensor: Any) -> Piece:
        storage = tensor.untyped_storage()
        key = "storage", storage._cdata
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = Piece(storage, storage.data_ptr(), storage.nbytes())
            piece.reduced = self._shared(piece)
        return piece

    def _shared(self, piece: Piece) -> Any:
        """How workers get at memory that is in a file, or shared with this process; None if it is neither."""
        is_shared = piece.owner.is_shared() and not self._outlives
        if not is_shared and piece.nbytes < _OUT_OF_BAND_NBYTES:
            return None
        mapped = self._maps.at(piece.address, piece.nbytes, passing=is_shared)
        if mapped is not None:
            start = mapped.start + piece.address - mapped.begin
            return arrival.file_shared, (mapped.path, start, piece.nbytes, mapped.is_writable)
        if not is_shared:
            return None
        fd, nbytes = piece.owner._share_fd_cpu_()
        return arrival.file_shared, (f"/proc/{os.getpid()}/fd/{fd}", 0, nbytes, True)

    def piece(self, piece: Piece) -> Any:
        """How the memory of a tensor is pickled, or a mapping."""
        if piece.reduced is not None:
            return piece.reduced
        if piece.nbytes < _OUT_OF_BAND_NBYTES:
            return arrival.bytes_of, (bytearray(piece.view(0, piece.nbytes)),)
        return arrival.bytes_of, (self._stand_in(piece),)

    def _stand_in(self, meant: np.ndarray | Piece) -> pickle.PickleBuffer:
        """What pickle takes for a buffer: it takes none that has gaps, and none whose end is not known yet."""
        buffer = bytearray(1)
        self._stand_ins[id(buffer)] = buffer, meant
        return pickle.PickleBuffer(buffer)

    # ---- and when it was -------------------------------------------------------------------------------------------

    def lay(self, fd: int, start: int) -> list[tuple[int, int]]:
        """Writes all of it to the file from ``start`` on; gives back where each lies."""
        spans = []
        for source in self._sources:
            start = aligned(start)
            spans.append((start, source.nbytes))
            if isinstance(source, Piece):
                _write(fd, source.view(source.low, source.high), start + source.low)
            elif isinstance(source, np.ndarray):
                _write_strided(fd, source, start)
            else:
                _write(fd, source, start)
            start += source.nbytes
        if spans:
            os.ftruncate(fd, start)
        return spans


def _lies_in_a_map(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap) or (isinstance(array, memoryview) and isinstance(array.obj, mmap.mmap))


def _address_of(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _write(fd: int, source: memoryview, start: int) -> None:
    while source.nbytes:
        count = os.pwrite(fd, source[: 1 << 30], start)
        source, start = source[count:], start + count


def _write_strided(fd: int, source: np.ndarray, start: int) -> None:
    page = start - start % mmap.ALLOCATIONGRANULARITY
    os.ftruncate(fd, start + source.nbytes)
    with mmap.mmap(fd, start + source.nbytes - page, offset=page) as memory:
        target = np.frombuffer(memory, source.dtype, math.prod(source.shape), start - page).reshape(source.shape)
        np.copyto(target, source)
        del target  # else the mapping could not be closed
