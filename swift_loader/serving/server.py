"""`SwiftLoader.serve`: stands at the door, and has each connection that is let in served by threads of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_loader.consumer.inline import InlinePool
from swift_loader.engines.choose import begin_early
from swift_loader.errors import ConfigError
from swift_loader.net import schema
from swift_loader.net.address import parse
from swift_loader.net.doorman import Doorman, Guest, listening, printable
from swift_loader.net.keys import Keys
from swift_loader.net.values import Unsayable
from swift_loader.orders.tickets import Failed
from swift_loader.serving.desk import Desk
from swift_loader.serving.facts import facts_of, loader_id, what_of
from swift_loader.serving.saying import batch_frame, unsayable
from swift_loader.serving.workshop import Workshops

if TYPE_CHECKING:
    from swift_loader.plan.plan import Plan
    from swift_loader.wire.recipe import Recipe

_log = logging.getLogger("swift_loader.server")
_TURN_S = 0.5
MOST_CONNECTIONS = 256


def serve(recipe_for: Callable[[int], Recipe], address: str, key: Any, version: str | None = None) -> None:
    """Serves until the process is ended.

    Args:
        recipe_for: How batches are made for each consumer.
        address: Where to listen: tcp://host:port, or unix:/path.
        key: A key file, a folder of them, or a list of both; None for this user's processes on this machine.
        version: What two servers must agree in, in the place of the dataset's arguments and source.

    Raises:
        ConfigError: if it cannot listen there, or the loader cannot be served.
        DataError: if the first batch cannot be made, or sent.
    """
    place = parse(address)
    keys = None if key is None else Keys(key)
    with contextlib.ExitStack() as undone:
        door = undone.enter_context(contextlib.closing(listening(place, has_key=keys is not None)))
        if place.path:
            undone.callback(Path(place.path).unlink, missing_ok=True)
        plan = _tried(_served(recipe_for(0)))
        recipe = recipe_for(0)
        facts = facts_of(plan, recipe.config.random_per, what_of(recipe, version))
        begin_early(dataclasses.replace(recipe.config, start_method="forkserver"), recipe.dataset_class)
        server = _Server(recipe_for, plan, facts, door, keys)
        _log.info("server started: %s", place)
        server.run()


def _served(recipe: Recipe) -> Recipe:
    config = recipe.config
    if config.worker_count < 1:
        raise ConfigError("a loader that is served needs workers: worker_per_consumer is how many each client has")
    if config.rotation_setting is not None or config.batch_encoder is not None:
        raise ConfigError("a loader with rotation_setting or batch_encoder cannot be served")
    if config.start_method == "fork":
        raise ConfigError("start_method='fork' is refused beside a server's threads: leave it at 'auto'")
    config = dataclasses.replace(
        config, in_order=True, validate=False, log=None, benchmark_file=None, trace_file=None, replay_file=None
    )
    return dataclasses.replace(recipe, config=config)


def _tried(recipe: Recipe) -> Plan:
    """The plan; what cannot be sent is found here, and not in the middle of a night."""
    pool = InlinePool(recipe)
    try:
        plan = pool.open()
        facts_of(plan, recipe.config.random_per)
        if plan.step_count(0, recipe.consumer):
            delivery = pool.take()
            if isinstance(delivery, Failed):
                raise pool.error_of(delivery)
            assert delivery.parcel.attachment is not None
            try:
                batch_frame(delivery, 0)
            except Unsayable as error:
                raise ConfigError(f"{unsayable(error).text}") from error
        return plan
    finally:
        pool.close()


class _Server:
    """Lets clients in, and gives each a desk."""

    def __init__(
        self, recipe_for: Callable[[int], Recipe], plan: Plan, facts: schema.Facts, door: Any, keys: Keys | None
    ) -> None:
        self._workshops = Workshops(lambda consumer: _served(recipe_for(consumer)))
        self._plan = plan
        self._door = door
        self._keys = keys
        config = recipe_for(0).config
        self._loader = loader_id(facts)
        self._welcome = schema.write(
            schema.Welcome(schema.HIGHEST, schema.PACKAGE, b"", config.worker_count, self._loader, schema.write(facts))
        )
        self._consumers = config.consumer_count
        self._doorman = Doorman([door], keys, "loader")
        self._desks: list[Desk] = []

    def run(self) -> None:
        """Until it is interrupted."""
        try:
            while True:
                guests, _ = self._doorman.turn(_TURN_S)
                for guest in guests:
                    self._receive(guest)
                self._desks = [desk for desk in self._desks if not desk.is_over]
                self._workshops.close_deserted()
        finally:
            self._doorman.close()
            for desk in self._desks:
                desk.end()
            self._workshops.close()

    def _receive(self, guest: Guest) -> None:
        hello = guest.hello
        if hello.consumer >= self._consumers:
            text = f"there are {self._consumers} consumers here, and number {hello.consumer} was asked for"
            self._doorman.refuse(guest, "consumer", text)
        elif hello.loader and hello.loader != self._loader:
            text = "this server serves another loader than the one that was connected to: other data, settings or seed"
            self._doorman.refuse(guest, "loader", text)
        elif len(self._desks) >= MOST_CONNECTIONS:
            self._doorman.refuse(guest, "full", f"this server has {MOST_CONNECTIONS} connections, and takes no more")
        else:
            self._seat(guest)

    def _seat(self, guest: Guest) -> None:
        _log.info("consumer %d of %s", guest.hello.consumer, printable(guest.name))

        def may_stay() -> bool:
            return self._keys is None or guest.certificate is None or self._keys.holds(guest.certificate) is not None

        try:
            self._desks.append(Desk(guest, self._workshops, self._plan, self._welcome, may_stay))
        except RuntimeError as error:  # of the system, which has no thread left
            self._doorman.refuse(guest, "full", f"this server cannot take another connection: {error}")
