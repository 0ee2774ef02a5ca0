"""A stream's process that ends is a crash which its client is told of, unless the whole server ends with it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from swift_loader.net import schema
from swift_loader.net.doorman import Guest
from swift_loader.net.frames import FAILURE, TALK, WELCOME
from swift_loader.net.link import Link, LinkLost
from swift_loader.net.receiver import Receiver
from swift_loader.streams.session import Session
from tests.watching import until


@contextlib.contextmanager
def linked() -> Iterator[tuple[Link, Link]]:
    one, other = map(Link, socket.socketpair(), ("one", "other"))
    with contextlib.closing(one), contextlib.closing(other):
        yield one, other


@pytest.mark.parametrize("server_has_gone", [False, True])
def test_its_client_is_told_where_the_server_is_still_there(server_has_gone):
    ended: list[int] = []
    with linked() as (producer, child), linked() as (guest, client):
        session = Session(7, producer, 2, ended.append, lambda _: True, lambda: server_has_gone)
        hello = schema.Hello(schema.LOWEST, schema.HIGHEST, "test", "stream")
        session.attach(Guest(guest, Receiver(guest, TALK), hello, None))
        heard = Receiver(client, TALK)
        assert until(heard.read).kind == WELCOME
        child.close()
        if server_has_gone:
            until(lambda: ended)
            with pytest.raises(LinkLost):
                until(heard.read)
        else:
            told = until(heard.read)
            assert (told.kind, schema.read(schema.Failure, told.meta).type_name) == (FAILURE, "WorkerDied")
            session.end()
            until(lambda: ended)
    assert ended == [7]
