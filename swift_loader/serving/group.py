"""A server of a trainer's own job, on another host: a pool of workers that is there before the trainer's porter comes,
and stays when that is cut off and comes again.

    main thread       lets porters in: the newest is served, one that it replaces is cut off
    reader's thread   its orders, cancellations -> the pool
    sender's thread   the pool's deliveries     -> it
    beats' thread     that there is somebody    -> it

What was asked for on a connection that was lost is made, and thrown away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import socket
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from swift_loader.batch.codec import encode
from swift_loader.engines.choose import sites_for
from swift_loader.engines.figures import Figures, FiguresPage
from swift_loader.engines.placed import Placed, Placing, Surroundings
from swift_loader.errors import ConfigError, FailureReport, LoaderClosed, ProtocolError
from swift_loader.net import schema
from swift_loader.net.doorman import Doorman, Guest
from swift_loader.net.frames import (
    BYE,
    CANCEL,
    COPIED,
    FAILED,
    LEAVING,
    LENT,
    ORDERS,
    PARCEL,
    TALK,
    VOID,
    WELCOME,
    WHOLE,
    write_head,
)
from swift_loader.net.keys import Keys
from swift_loader.net.link import BEAT_S, SILENCE_S, Link, LinkLost
from swift_loader.orders.tickets import Failed, Full
from swift_loader.pool.budget import budget_of
from swift_loader.pool.pool import Pool
from swift_loader.pool.reuse import with_memory
from swift_loader.pool.view import Nobody
from swift_loader.serving.lending import Lending
from swift_loader.serving.voice import Voice
from swift_loader.travel.payload import unpack
from swift_loader.wire import messages
from swift_loader.wire.channel import SocketChannel
from swift_loader.wire.messages import Attachment, Failure
from swift_loader.worker.carried import key_file
from swift_loader.worker.porter import ORDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from swift_loader.batch.layout import BatchSpec
    from swift_loader.net.receiver import Frame, Receiver
    from swift_loader.wire.recipe import Recipe

_TURN_S = 0.5
#: For so long may a porter take nothing of what is sent to it.
_PATIENCE_S = 6.0
_MOST_OPEN = 4096
_LAYOUTS = 64
_BACKLOG = 64


def main(channel_fd: int, _lifeline_fd: int) -> None:
    """The whole life of a server, in an interpreter that has armed its lifeline."""
    channel = SocketChannel(socket.socket(fileno=channel_fd), blocking=True)
    spot, told = channel.receive(), channel.receive()
    if not (spot and spot[0] and told and told[0]):
        return
    try:
        group = _opened(messages.read_pickled(told[0]), told[1][0], *messages.read_pickled(spot[0]))
        group.figures = FiguresPage(spot[1][0])
    except BaseException as error:  # noqa: BLE001 - whatever it is, the trainer is to hear of it
        report = FailureReport.of(error, "start workers on the cluster")
        channel.send(messages.write_pickled(messages.HELLO, Placed(report=report)))
        return
    channel.send(messages.write_pickled(messages.HELLO, Placed(group.addresses)))
    group.run()


def _opened(placing: Placing, payload_fd: int, host: str, keeps_folder: bool) -> Group:  # noqa: FBT001 - as it was said
    _settle(placing.surroundings, keeps_folder=keeps_folder)
    sys.modules["__main__"].__getattr__ = _of_the_script  # type: ignore[method-assign] # a module may have one
    recipe: Recipe = unpack(payload_fd)
    config = dataclasses.replace(recipe.config, worker_count=placing.width)
    return Group(dataclasses.replace(recipe, config=config), placing, host)


def _settle(surroundings: Surroundings, *, keeps_folder: bool) -> None:
    """As in the trainer, as far as that is there."""
    sys.path += [entry for entry in surroundings.path if entry not in sys.path]
    if not keeps_folder:
        with contextlib.suppress(OSError):
            os.chdir(surroundings.folder)
    surroundings.script.apply()


def _of_the_script(name: str) -> type:
    """Stands for a class of the script's, which is named in passing only: in the trainer it is that class again."""
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {"__module__": "__main__"})


class Group:
    """Some workers, and whoever asks for their batches."""

    def __init__(self, recipe: Recipe, placing: Placing, host: str) -> None:
        self._recipe, self._memory = with_memory(recipe)
        self._placing = placing
        self.figures: FiguresPage | None = None
        """Where it writes what it has done."""
        self._batches = self._made_ns = self._nbytes = 0
        self._porter: _Porter | None = None
        self._asked: deque[tuple[_Porter, int, int]] = deque()
        """What the pool was asked for and has not given, in its order: by whom, its number there, and when."""
        config = recipe.config
        # The workers first: until there are other threads they can be copies of this process, dataset class and all.
        budget = budget_of(config.memory_budget, config.consumer_count)
        self._pool = Pool(self._recipe, sites_for(self._recipe), budget, Nobody())
        self._pool.begin_asked()
        self._plan = self._pool.open()
        keys = Keys(key_file(placing.key))
        self._doors = [_far_door(host, placing.ports), _near_door()]
        far, near = self._doors
        port = far.getsockname()[1]
        host = f"[{host}]" if ":" in host else host
        name = near.getsockname().decode().replace("\0", "@", 1)
        self.addresses = (f"unix:{name}", f"tcp://{host}:{port}")
        self._doorman = Doorman(self._doors, keys, "loader")
        self._welcome = schema.write(
            schema.Welcome(schema.HIGHEST, schema.PACKAGE, b"", placing.width, placing.loader, self._facts())
        )

    def _facts(self) -> bytes:
        facts = self._pool.facts
        runs = None if facts.runs is None else [int(length) for length in facts.runs.lengths]
        return schema.write(schema.Counted(facts.sample_count, runs, 1 if facts.runs is None else facts.runs.groups))

    def run(self) -> None:
        """Until the process is ended, or the pool is."""
        sender = threading.Thread(target=self._give, name="swift-sender", daemon=True)
        sender.start()
        threading.Thread(target=self._beat, name="swift-beats", daemon=True).start()
        try:
            while sender.is_alive():
                guests, _ = self._doorman.turn(_TURN_S)
                for guest in guests:
                    self._receive(guest)
        finally:
            self._pool.close()

    def _receive(self, guest: Guest) -> None:
        if guest.hello.loader != self._placing.loader or guest.hello.consumer != self._recipe.consumer:
            self._doorman.refuse(guest, "loader", "these workers make batches of another loader")
            return
        if self._porter is not None:
            self._porter.cut()
        porter = self._porter = _Porter(guest)
        threading.Thread(target=self._read, args=(porter,), name="swift-reader", daemon=True).start()

    def _read(self, porter: _Porter) -> None:
        """The reader's thread of one connection."""
        try:
            porter.welcome(self._welcome)
            while time.monotonic() - porter.link.heard_s < SILENCE_S:
                porter.link.wait(select.POLLIN, BEAT_S / 2)
                if not self._handle_all(porter):
                    break
        except (LinkLost, ProtocolError, ValueError, LoaderClosed):  # a poll of what was closed meanwhile, too
            pass
        finally:
            porter.cut()

    def _handle_all(self, porter: _Porter) -> bool:
        """What has come; whether more is to."""
        while (frame := porter.receiver.read()) is not None:
            if not self._handle(porter, frame):
                return False
        return True

    def _handle(self, porter: _Porter, frame: Frame) -> bool:
        if frame.kind == ORDERS:
            for seq, epoch, step in ORDER.iter_unpack(frame.meta):
                if len(self._asked) >= _MOST_OPEN or step >= self._plan.step_count(epoch, self._recipe.consumer):
                    raise ProtocolError(f"batch {step} of epoch {epoch} was asked for, which there is not")
                self._asked.append((porter, seq, time.perf_counter_ns()))
                self._pool.ask(epoch, step)
        elif frame.kind == CANCEL:
            porter.cancelled |= {seq for seq, _, _ in ORDER.iter_unpack(frame.meta)}
        elif frame.kind == COPIED:
            porter.copied(frame.seq)
        return frame.kind != BYE

    def _beat(self) -> None:
        """The beats' thread: readers wait for orders, and the sender for batches."""
        while True:
            time.sleep(BEAT_S / 2)
            porter = self._porter
            if porter is not None:
                porter.beat()

    def _give(self) -> None:
        """The sender's thread."""
        while True:
            try:
                delivery = self._pool.take(_nothing)
            except Exception as error:  # noqa: BLE001 - nothing more will come: the trainer is told why
                self._leave(error)
                return
            porter, seq, came_ns = self._asked.popleft()
            self._count(delivery)
            if isinstance(delivery, Failed):
                porter.say(FAILED, messages.write_pickled(messages.FAILURE, Failure(seq, delivery.report)), seq)
            else:
                porter.give(seq, delivery, came_ns, self._pool.descriptor)
            del delivery  # its slot is free as soon as nobody holds it

    def _count(self, delivery: Full | Failed) -> None:
        if isinstance(delivery, Full):
            self._batches += 1
            self._made_ns += delivery.parcel.cost.made_ns
            self._nbytes += delivery.parcel.nbytes
        if self.figures is not None:
            self.figures.write(Figures(self._batches, self._made_ns, self._nbytes, len(self._asked)))

    def _leave(self, error: Exception) -> None:
        porter = self._porter
        if porter is not None:
            report = FailureReport.of(error, "make batches on the cluster")
            porter.say(LEAVING, messages.write_pickled(messages.FAILURE, Failure(0, report)))


class _Porter:
    """One connection of the trainer's."""

    def __init__(self, guest: Guest) -> None:
        self.link: Link = guest.link
        self.receiver: Receiver = guest.receiver
        self.receiver.limits = TALK
        self.cancelled: set[int] = set()
        self._layouts: dict[BatchSpec, int] = {}
        self._lending = Lending(guest)
        self._voice = Voice(guest.link, _PATIENCE_S)
        self._is_cut = False

    def give(self, seq: int, delivery: Full, came_ns: int, descriptor: Callable[[Full], int | None]) -> None:
        """Sends a batch, or lends it, if it is still wanted."""
        if self._is_cut:
            return
        if seq in self.cancelled:
            self.cancelled.discard(seq)
            self.say(VOID, seq=seq)
            return
        parcel, hold, ticket = delivery.parcel, delivery.hold, delivery.ticket
        assert parcel.spec is not None
        assert hold is not None
        number, packed = self._layout(parcel.spec)
        attached = Attachment() if parcel.attachment is None else parcel.attachment
        memory = memoryview(hold.memory).cast("B")[: parcel.nbytes]
        meta = schema.write(
            schema.Carried(
                ticket.epoch, ticket.step, parcel.rows, list(parcel.cost[:-1]), time.perf_counter_ns() - came_ns,
                attached.skipped, parcel.nbytes, number, packed, attached.stream, attached.spans,
            )
        )  # fmt: skip
        fd = descriptor(delivery) if self._lending.suits(delivery) else None
        if fd is None:
            self._try_to_send([write_head(PARCEL, len(meta), seq, memory.nbytes) + meta, memory])
            return
        try:
            with self._cut_if_lost():
                self._lending.lend(seq, delivery, _PATIENCE_S)
                self._voice.say([write_head(LENT, len(meta), seq) + meta], fd)
        finally:
            os.close(fd)

    def copied(self, seq: int) -> None:
        """The trainer's porter has a batch that it was lent, and its slot was held until now. Raises `LinkLost`."""
        self._lending.copied(seq)
        self._voice.say([write_head(WHOLE, 0, seq)])

    def say(self, kind: int, meta: bytes = b"", seq: int = 0) -> None:
        """Sends a frame without bulk, if anybody is there."""
        self._try_to_send([write_head(kind, len(meta), seq) + meta])

    def welcome(self, welcome: bytes) -> None:
        """The first word. Raises `LinkLost`."""
        self._voice.say([write_head(WELCOME, len(welcome)) + welcome])

    def beat(self) -> None:
        """Says that there is somebody."""
        if not self._is_cut:
            with self._cut_if_lost():
                self._voice.beat()

    def cut(self) -> None:
        """Ends the connection, also for a thread that waits for it."""
        self._is_cut = True
        self.link.cut()
        self._lending.end()

    @contextlib.contextmanager
    def _cut_if_lost(self) -> Iterator[None]:
        try:
            yield
        except (LinkLost, ValueError):  # a poll of what was closed meanwhile, too
            self.cut()

    def _try_to_send(self, parts: list[bytes | memoryview]) -> None:
        if not self._is_cut:
            with self._cut_if_lost():
                self._voice.say(parts)

    def _layout(self, spec: BatchSpec) -> tuple[int, bytes]:
        """Its number, and the layout itself where the other side does not know it."""
        number = self._layouts.get(spec)
        if number is not None:
            return number, b""
        if len(self._layouts) >= _LAYOUTS:
            self._layouts.clear()
        number = self._layouts[spec] = len(self._layouts)
        return number, encode(spec).stream


def _far_door(host: str, ports: tuple[int, int] | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    first, last = ports or (0, 0)
    for port in range(first, last + 1):
        try:
            return socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            if port == last:
                raise ConfigError(
                    f"no port of {host} from {first} to {last} is free ({error.strerror}): each actor on a "
                    "node needs one of RayEngine(ports=...)"
                ) from error
    raise AssertionError


def _near_door() -> socket.socket:
    """For who is on this host and of this user: a name in memory, gone with this process, that cannot be guessed."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(f"\0swift-group-{os.urandom(8).hex()}")
    door.listen(_BACKLOG)
    return door


def _nothing() -> None:
    pass
