"""Lending: a batch is held until its client has copied it, or the connection is over."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from swift_loader.errors import ProtocolError
from swift_loader.net.link import LinkLost
from swift_loader.serving.lending import LEAST_NBYTES, Lending


def a_batch(nbytes: int = LEAST_NBYTES) -> Any:
    """As far as lending looks at one."""

    class Batch:
        parcel = SimpleNamespace(nbytes=nbytes)

    return Batch()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def lending(end: socket.socket, *, takes_files: bool = True) -> Lending:
    guest: Any = SimpleNamespace(
        link=SimpleNamespace(socket=end, peer="client"), hello=SimpleNamespace(takes_files=takes_files)
    )
    return Lending(guest)


def test_large_batches_are_lent_to_who_takes_files_over_a_socket_of_this_machine(ends: Any):
    large, small = a_batch(), a_batch(LEAST_NBYTES - 1)
    assert lending(ends[0]).suits(large)
    assert not lending(ends[0]).suits(small)
    assert not lending(ends[0], takes_files=False).suits(large)
    with socket.socket() as tcp:
        assert not lending(tcp).suits(large)


def test_what_is_lent_is_held_until_it_was_copied(ends: Any):
    lent, batch = lending(ends[0]), a_batch()
    held = weakref.ref(batch)
    lent.lend(7, batch, 0.0)
    del batch
    gc.collect()
    assert held() is not None
    lent.copied(7)
    gc.collect()
    assert held() is None
    with pytest.raises(ProtocolError, match="batch 7 was copied"):
        lent.copied(7)


def test_a_client_that_copies_nothing_is_lent_two_and_no_more(ends: Any):
    lent, batch = lending(ends[0]), a_batch()
    lent.lend(1, batch, 0.0)
    lent.lend(2, batch, 0.0)
    with pytest.raises(LinkLost, match="copied nothing for 0 s"):
        lent.lend(3, batch, 0.0)
    lent.copied(2)
    lent.lend(3, batch, 0.0)


def test_once_a_connection_is_over_nothing_is_held_or_lent(ends: Any):
    lent, batch = lending(ends[0]), a_batch()
    lent.lend(1, batch, 0.0)
    lent.end()
    with pytest.raises(ProtocolError):
        lent.copied(1)
    with pytest.raises(LinkLost, match="is over"):
        lent.lend(2, batch, 0.0)
