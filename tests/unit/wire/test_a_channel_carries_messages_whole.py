"""The local channel: messages of any size, whole and in order, with descriptors; the end of a peer is seen."""

import os
import resource
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.errors import NoRoom
from swift_loader.wire.channel import MAX_DATAGRAM, SocketChannel
from tests.unit.batch.samples import examples


@pytest.fixture
def ends():
    """The consumer's end, and the worker's, which waits."""
    ours, theirs = SocketChannel.pair()
    worker = SocketChannel(theirs, blocking=True)
    yield ours, worker
    ours.close()
    worker.close()


def _file(content):
    fd = os.memfd_create("test")
    os.write(fd, content)
    return fd


def _content(fd):
    with open(fd, "rb") as file:
        file.seek(0)
        return file.read()


@examples
@given(st.lists(st.binary(min_size=2, max_size=300), max_size=5))
def test_messages_come_whole_and_in_order(datagrams):
    ours, theirs = SocketChannel.pair()
    worker = SocketChannel(theirs, blocking=False)
    try:
        assert all(ours.send(datagram) for datagram in datagrams)
        assert [worker.receive() for _ in datagrams] == [(datagram, []) for datagram in datagrams]
        assert worker.receive() is None
    finally:
        ours.close()
        worker.close()


@pytest.mark.parametrize("nbytes", [MAX_DATAGRAM - 1, MAX_DATAGRAM, MAX_DATAGRAM + 1, 50 * MAX_DATAGRAM])
@pytest.mark.parametrize("fd_count", [0, 2])
def test_a_message_of_any_size_comes_with_its_descriptors(ends, nbytes, fd_count):
    ours, worker = ends
    message = os.urandom(100) + bytes(nbytes - 100)
    files = [_file(f"{i}".encode()) for i in range(fd_count)]
    assert worker.send(message, files)
    for fd in files:
        os.close(fd)
    received, fds = ours.receive()
    assert received == message
    assert [_content(fd) for fd in fds] == [f"{i}".encode() for i in range(fd_count)]


def test_descriptors_that_come_are_not_inherited(ends):
    ours, worker = ends
    fd = _file(b"x")
    worker.send(b"one", [fd])
    os.close(fd)
    _, (received,) = ours.receive()
    assert not os.get_inheritable(received)
    os.close(received)


def test_nothing_has_come_is_none_and_costs_no_wait(ends):
    assert ends[0].receive() is None


def test_a_peer_that_has_gone_is_an_empty_message_after_what_it_said(ends):
    ours, worker = ends
    worker.send(b"last words")
    worker.close()
    assert ours.receive() == (b"last words", [])
    assert ours.receive() == (b"", [])
    assert ours.receive() == (b"", [])


def test_a_peer_that_went_with_unread_messages_is_an_empty_message_too(ends):
    ours, worker = ends
    ours.send(b"unread")
    worker.close()
    assert ours.receive() == (b"", [])


def test_a_waiting_end_sees_its_peer_go(ends):
    ours, worker = ends
    ours.close()
    assert worker.receive() == (b"", [])


def test_sending_to_a_peer_that_has_gone_is_an_error_and_no_signal(ends):
    ours, worker = ends
    worker.close()
    with pytest.raises(OSError, match="pipe"):
        ours.send(b"hello")
    fd = _file(b"x")
    with pytest.raises(OSError, match="pipe"):
        ours.send(b"hello", [fd])
    os.close(fd)


@pytest.mark.parametrize("nbytes", [1000, MAX_DATAGRAM + 1])
def test_a_peer_that_does_not_read_leaves_no_room_and_no_wait(ends, nbytes):
    ours, worker = ends
    sent = 0
    while ours.send(bytes(nbytes)):
        sent += 1
        assert sent < 10_000
    for _ in range(sent):
        assert worker.receive() == (bytes(nbytes), [])
    assert ours.send(b"again")


def test_descriptors_that_find_no_room_in_this_process_are_an_error_and_leave_none_behind(ends):
    ours, worker = ends
    fd = _file(b"x")
    worker.send(b"five", [fd] * 5)
    os.close(fd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    held = [os.dup(0) for _ in range(highest - len(os.listdir("/proc/self/fd")) + 2)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, hard))
    try:
        with pytest.raises(NoRoom, match="open files"):
            ours.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in held:
            os.close(one)


def test_closing_twice_is_no_error(ends):
    ours, _ = ends
    ours.close()
    ours.close()
    assert ours.fileno() == -1


def test_the_pair_is_of_a_kind_that_keeps_boundaries():
    ours, theirs = SocketChannel.pair()
    assert theirs.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_SEQPACKET
    ours.close()
    theirs.close()
