"""What served loaders are measured beside: the same bytes by nothing but a socket's own calls, and as Fuel sends them.

Run by `benchmarks.served`. A batch is made as workers make it, row by row out of images in memory into memory that is
shared with who sends it, by two processes; a third sends it, and this one receives it into one of four rooms.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import IMAGE_SHAPE, MemoryImages
from swift_loader.net.address import Address, parse
from swift_loader.net.keys import Keys, client_side, read_key

BATCH = 256
NBYTES = BATCH * int(np.prod(IMAGE_SHAPE))
_ROOMS, _MAKERS, _WARM = 4, 2, 4
_fork = multiprocessing.get_context("fork")


def bare(address: str, key: str | None, steps: int) -> tuple[float, float]:
    """GB/s, and the CPU of who receives in ms for each batch."""
    place, count = parse(address), 2 * steps
    rooms = [mmap.mmap(-1, NBYTES) for _ in range(_ROOMS)]
    free, full = os.pipe(), os.pipe()
    os.write(free[1], bytes(range(_ROOMS)))
    images = MemoryImages(steps * BATCH)
    makers = [_fork.Process(target=_make, args=(images, rooms, free[0], full[1])) for _ in range(_MAKERS)]
    with _door(place) as door:
        sender = _fork.Process(target=_send, args=(door, key, rooms, free[1], full[0], count + _WARM))
        for process in (*makers, sender):
            process.start()
        connected = _connected(place, key)
        with connected:
            into = [np.ones(NBYTES, np.uint8).data for _ in range(_ROOMS)]
            for at in range(_WARM):
                _receive(connected, into[at % _ROOMS])
            began, cpu = time.perf_counter(), time.process_time()
            for at in range(count):
                _receive(connected, into[at % _ROOMS])
            seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    for process in (*makers, sender):
        process.kill()
        process.join(30)
    for fd in (*free, *full):
        os.close(fd)
    return count * NBYTES / seconds / 1e9, cpu_s / count * 1e3


def _make(images: MemoryImages, rooms: list[mmap.mmap], free: int, full: int) -> None:
    batches = [np.frombuffer(room, np.uint8).reshape(BATCH, *IMAGE_SHAPE) for room in rooms]
    while True:
        (at,) = os.read(free, 1)
        for row in range(BATCH):
            batches[at][row] = images[row]
        os.write(full, bytes([at]))


def _send(door: socket.socket, key: str | None, rooms: list[mmap.mmap], free: int, full: int, count: int) -> None:
    connected, _ = door.accept()
    if key is not None:
        connected = Keys(key).context().wrap_socket(connected, server_side=True)
    for _ in range(count):
        (at,) = os.read(full, 1)
        connected.sendall(rooms[at])
        os.write(free, bytes([at]))
    time.sleep(5)


def _receive(connected: socket.socket, room: memoryview) -> None:
    flags = 0 if isinstance(connected, ssl.SSLSocket) else socket.MSG_WAITALL
    at = 0
    while at < NBYTES:
        at += connected.recv_into(room[at:], 0, flags)


def _door(place: Address) -> socket.socket:
    if not place.path:
        return socket.create_server((place.host, place.port))
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    Path(place.path).unlink(missing_ok=True)
    door.bind(place.path)
    door.listen()
    return door


def _connected(place: Address, key: str | None) -> socket.socket:
    if place.path:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(place.path)
        return connected
    connected = socket.create_connection((place.host, place.port))
    if key is None:
        return connected
    secure = client_side(connected, read_key(key))
    secure.do_handshake()
    return secure


def fuels(port: int, steps: int) -> tuple[float, float]:
    """GB/s of Fuel's protocol, between two processes that do nothing else."""
    import zmq

    context = zmq.Context()
    sender = multiprocessing.get_context("spawn").Process(target=_send_as_fuel, args=(port, 2 * steps + _WARM))
    sender.start()
    pull = context.socket(zmq.PULL)
    pull.set_hwm(10)
    pull.connect(f"tcp://127.0.0.1:{port}")

    def receive() -> Any:
        (head,) = pull.recv_json()
        array = np.frombuffer(pull.recv(copy=False), np.dtype(head["descr"]))
        return array.reshape(head["shape"])

    for _ in range(_WARM):
        receive()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(2 * steps):
        receive()
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    sender.join(30)
    context.destroy(linger=0)
    return 2 * steps * NBYTES / seconds / 1e9, cpu_s / (2 * steps) * 1e3


def _send_as_fuel(port: int, count: int) -> None:
    import zmq

    context = zmq.Context()
    push = context.socket(zmq.PUSH)
    push.set_hwm(10)
    push.bind(f"tcp://127.0.0.1:{port}")
    array = np.zeros((BATCH, *IMAGE_SHAPE), np.uint8)
    for _ in range(count):
        push.send_json([{"descr": array.dtype.str, "shape": array.shape, "fortran_order": False}], zmq.SNDMORE)
        push.send(array, copy=False)
    context.destroy(linger=10_000)
