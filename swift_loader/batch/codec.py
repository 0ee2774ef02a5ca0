"""Any object <-> a slot: pickle protocol 5, its large buffers out of band, each copied once.

What the default collate does not take (a user's collate_fn may return anything) is pickled; buffers above
`INLINE_NBYTES` are laid into the slot as they are and viewed there on the other side. Classes of `__main__` go by name
where the other side is the trainer, which has the same `__main__`. dill comes in where pickle cannot. Knows torch only
if it is there already.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from swift_loader.batch.layout import aligned
from swift_loader.errors import DataError, FailureReport, class_of_main

if TYPE_CHECKING:
    from swift_loader.batch.spare import Spare

#: Buffers up to this size are copied along in the pickle: a view of its own would cost more than the copy.
INLINE_NBYTES = 64 * 1024


#: dill would open the file a second time, and make another lock.
_NEVER_SENT = (
    io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper,
    type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Encoded:
    """An object taken apart: the pickle, and the buffers that lie outside of it."""

    stream: bytes
    buffers: list[memoryview]

    def spans(self, start: int, spare: Spare | None = None) -> tuple[list[tuple[int, int]], int]:
        """Where the buffers go, and the end of all: one behind the other from ``start`` on, but for those in ``spare``,
        which ends there.
        """
        spans = []
        for buffer in self.buffers:
            place = None if spare is None else spare.place_of(np.frombuffer(buffer, np.uint8))
            spans.append((start if place is None else place, buffer.nbytes))
            if place is None:
                start = aligned(start + buffer.nbytes)
        return spans, start

    def lay(self, memory: Any, spans: list[tuple[int, int]], start: int) -> None:
        """Copies the buffers to their places in ``memory`` (an array of bytes), but for those before ``start``."""
        for buffer, (place, nbytes) in zip(self.buffers, spans, strict=True):
            if place >= start:
                memory[place : place + nbytes] = np.frombuffer(buffer, np.uint8)


def encode(value: Any) -> Encoded:
    """Takes ``value`` apart.

    Raises:
        Exception: whatever pickle or dill raised, if neither can send it.
    """
    buffers: list[memoryview] = []
    out = io.BytesIO()

    def keep_inline(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes <= INLINE_NBYTES:
            return True
        buffers.append(raw)
        return False

    try:
        _Pickler(out, protocol=5, buffer_callback=keep_inline).dump(value)
    except Exception as error:  # noqa: BLE001 - classes raise what they like here; dill is asked next
        buffers.clear()
        out = _with_dill(value, keep_inline, error)
    return Encoded(out.getvalue(), buffers)


def decode(stream: bytes, buffers: Sequence[Any]) -> Any:
    """The object again; large arrays and tensors are views of ``buffers``.

    Raises:
        DataError: if a class raises when an object of it is loaded.
    """
    try:
        return pickle.loads(stream, buffers=buffers)  # noqa: S301 - written by our own worker into anonymous memory
    except Exception as error:
        report = FailureReport.of(error, "unpickle the batch")
        raise DataError(
            f"a batch was made and sent, but unpickling it raised {report.type_name}: {report.text}. What its objects "
            "do when they are loaded runs in the training process; try pickle.loads(pickle.dumps(batch))"
        ) from error


def _with_dill(value: Any, keep_inline: Callable[[pickle.PickleBuffer], bool], first: Exception) -> io.BytesIO:
    import dill  # noqa: PLC0415 - half a second of import that most never need

    out = io.BytesIO()
    pickler = dill.Pickler(out, protocol=5, recurse=True, buffer_callback=keep_inline)
    pickler.reducer_override = _reduce_for_dill  # written in Python, it asks the instance
    try:
        pickler.dump(value)
    except Exception as second:
        raise first from second
    return out


class _Pickler(pickle.Pickler):
    """pickle, with tensors out of band and classes of `__main__` by name."""

    def reducer_override(self, obj: Any) -> Any:
        return _reduce(obj)


def _reduce(obj: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        return _reduce_tensor(torch, obj)
    if isinstance(obj, type) and obj.__module__ in ("__main__", "__mp_main__") and "<locals>" not in obj.__qualname__:
        return class_of_main, (obj.__qualname__,)
    return NotImplemented


def _reduce_for_dill(obj: Any) -> Any:
    if isinstance(obj, _NEVER_SENT):
        raise TypeError(f"cannot send a {type(obj).__name__}: the trainer would get another one")
    return obj.__reduce_ex__(5) if type(obj) is np.ndarray else _reduce(obj)  # dill would keep arrays in the pickle


def _reduce_tensor(torch: Any, tensor: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | Any:
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return NotImplemented  # torch's own way: slower, but it knows them
    if tensor.is_quantized or tensor.is_nested or tensor.requires_grad:
        return NotImplemented
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    flat = plain.reshape(-1).view(torch.uint8) if plain.numel() else torch.empty(0, dtype=torch.uint8)
    return _tensor_of, (flat.numpy(), str(plain.dtype).removeprefix("torch."), tuple(plain.shape))


def _tensor_of(flat: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    torch = sys.modules["torch"]  # this runs in the trainer, which has it
    return torch.from_numpy(flat).view(getattr(torch, dtype)).reshape(shape)
