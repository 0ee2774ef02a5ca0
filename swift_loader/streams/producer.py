"""Runs one client's stream, epoch after epoch, as fast as it is read: in a forked child, where one may be forked."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from swift_loader.errors import FailureReport
from swift_loader.net import arrays, schema
from swift_loader.net.frames import BATCH, BEGIN, END, FAILURE, TALK, write_head
from swift_loader.net.link import Link, LinkLost
from swift_loader.net.receiver import Receiver

#: The one who reads is the server's own process, which ends this one when it goes; its client may rest for days.
_PATIENT_S = math.inf


class Unsayable(Exception):
    """A batch that cannot be said in arrays."""


class Producer:
    """Runs a stream for whoever is at the other end of a socket.

    Args:
        stream: What to run.
        end: This end of it.
        tell: Called once, with why the first batch cannot be sent, or nothing.
    """

    def __init__(self, stream: Any, end: socket.socket, tell: Callable[[str], None]) -> None:
        self._stream = stream
        self._tell: Callable[[str], None] | None = tell
        self._link = Link(end, "the server")
        self._receiver = Receiver(self._link, TALK)
        self._wanted = 0
        """The epoch that the client is at: those before it are of no use any more."""

    def run(self) -> None:
        """Gives epoch after epoch until nobody listens."""
        epoch = 0
        try:
            while True:
                self._give(epoch)
                epoch += 1
        except LinkLost:
            return

    def _give(self, epoch: int) -> None:
        """One epoch. An error stands where a batch would, and what the stream gives after it follows."""
        step, batches = 0, iter(())
        try:
            batches = self._stream.get_epoch_iterator()
        except Exception as error:  # noqa: BLE001 - the user's code: it is raised where its batch was wanted
            self._failed(epoch, step, error)
            step += 1
        while not self._is_left(epoch):
            try:
                self._send_batch(epoch, step, next(batches))
            except StopIteration:
                self._say(END, schema.End(epoch, step))
                return
            except LinkLost:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(epoch, step, error)
            step += 1

    def _failed(self, epoch: int, step: int, error: Exception) -> None:
        report = FailureReport.of(error, "encode" if isinstance(error, Unsayable) else "stream")
        self._say_of_the_first(report.text if isinstance(error, Unsayable) else "")
        name = report.type_name[:4096]
        self._say(FAILURE, schema.Failure(epoch, step, report.stage, name, report.text, report.traceback))

    def _say_of_the_first(self, text: str) -> None:
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell(text)

    def _is_left(self, epoch: int) -> bool:
        while (frame := self._receiver.read()) is not None:
            if frame.kind == BEGIN:
                self._wanted = max(self._wanted, frame.seq)
        return epoch < self._wanted

    def _send_batch(self, epoch: int, step: int, data: Any) -> None:
        made = [_array_of(value, self._source(at), epoch, step) for at, value in enumerate(_parts_of(data))]
        told = [described for _, described in made]
        meta = schema.write(schema.Batch(epoch, step, [(one.dtype, list(one.shape), one.is_fortran) for one in told]))
        self._say_of_the_first("")
        placed = arrays.places(told)
        parts: list[bytes | memoryview] = [write_head(BATCH, len(meta), 0, arrays.total_nbytes(placed)) + meta]
        end = 0
        for (array, _), place in zip(made, placed, strict=True):
            parts += [bytes(place.start - end), _bytes_of(array, place.order)]
            end = place.start + place.nbytes
        self._link.send(parts, _PATIENT_S)

    def _source(self, at: int) -> str:
        sources = getattr(self._stream, "sources", ())
        return f"source {sources[at]!r}" if at < len(sources) else f"part {at}"

    def _say(self, kind: int, said: Any) -> None:
        meta = schema.write(said)
        self._link.send([write_head(kind, len(meta)) + meta], _PATIENT_S)


def _parts_of(data: Any) -> Iterable[Any]:
    return data if isinstance(data, (tuple, list)) else (data,)


def _array_of(value: Any, source: str, epoch: int, step: int) -> tuple[np.ndarray[Any, Any], arrays.Described]:
    try:
        array = np.asarray(value)
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError("its mask would be lost")
    except (ValueError, TypeError, RuntimeError) as error:
        raise Unsayable(
            f"{source} of batch {step} of epoch {epoch} is a {type(value).__name__} that makes no array: {error}. Over "
            "the network a batch is arrays of numbers, times or texts: pad what is ragged"
        ) from error
    told = arrays.described(array)
    if told is None:
        raise Unsayable(
            f"{source} of batch {step} of epoch {epoch} is a {type(value).__name__} of type {array.dtype}, which is "
            "not sent over the network: a batch is arrays of numbers, times or texts"
        )
    return array, told


def _bytes_of(array: np.ndarray[Any, Any], order: str) -> memoryview:
    """As they lie in memory, in that order."""
    if not array.nbytes:
        return memoryview(b"")
    flat = array.T if order == "F" else array
    return np.ascontiguousarray(flat).reshape(-1).view(np.uint8).data


def produce(stream: Any, end: socket.socket, first: int) -> None:
    """The whole life of a child that runs a stream. ``first``: where to say of the first batch, closed then; or -1."""

    def tell(text: str) -> None:
        if first >= 0:
            os.write(first, text.encode()[:4096])
            os.close(first)

    Producer(stream, end, tell).run()
