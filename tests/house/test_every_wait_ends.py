"""No wait in the package is without a deadline, but those that somebody else's end is sure to wake.

A wait is a call that may stand still: for a thread, a process, a message, another's lock, a program, or a file that may
be a pipe or lie on a file system that does not answer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Names of calls that wait, and how many positional arguments they have where a deadline is among them.
WAITS = {
    "get": 1, "join": 1, "wait": 1, "acquire": 1, "result": 1, "communicate": 2, "poll": 1, "select": 1,
    "synchronize": 1, "recv": 9, "recvmsg": 9, "recv_fds": 9, "recvfrom": 9, "recv_into": 9, "accept": 9,
    "create_connection": 2, "waitpid": 9, "waitid": 9, "sleep": 9, "select.select": 4, "flock": 9, "lockf": 9,
    "sendall": 9, "sendmsg": 9, "send_fds": 9,
}  # fmt: skip
#: What makes something that ``with`` may wait for.
LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
#: What ``with`` waits for at its end.
GROUPS = {"Popen", "ThreadPoolExecutor", "ProcessPoolExecutor", "TaskGroup"}
#: Programs that are run to their end.
PROGRAMS = {"run", "call", "check_call", "check_output"}
#: Calls that open a file by its path.
FILES = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}
#: Where a wait has no deadline, and why it ends all the same.
ENDS = {
    ("device/cuda.py", "synchronize"): "a copy of the device's: its driver ends it, or ends the process",
    ("device/plain.py", "synchronize"): "a copy of the device's: its driver ends it, or ends the process",
    ("device/underway.py", "synchronize"): "a copy of the device's: its driver ends it, or ends the process",
    ("device/driver.py", "join"): "a thread that makes one call to the device's runtime",
    ("device/landing.py", "get"): "close() tells the thread, and puts an item for the consumer",
    ("engines/interpreter.py", "waitid"): "never waits: WNOHANG",
    ("engines/interpreter.py", "waitpid"): "for an interpreter that was killed in its first moments",
    ("engines/server.py", "waitpid"): "never waits: WNOHANG",
    ("worker/zygote.py", "waitpid"): "never waits: WNOHANG",
    ("wire/channel.py", "recvmsg"): "the other end's death ends it; in the trainer it never waits: MSG_DONTWAIT",
    ("worker/crew.py", "result"): "the dataset's own time, in a worker: the consumer kills it after timeout_s",
    ("cli/bench_side.py", "sleep"): "the consumer's time, as the user said",
    ("cli/top.py", "sleep"): "the user's time from look to look",
    ("wire/channel.py", "sendmsg"): "in the trainer it never waits; of a worker the trainer reads, or ends it",
    ("reuse/shared.py", "send_fds"): "a few bytes, into a socket that was just made",
    ("pool/starter.py", "get"): "close() puts an item",
    ("worker/outbox.py", "wait"): "a daemon thread of a worker, which ends with it",
    ("worker/outbox.py", "sleep"): "5 ms",
    ("reuse/shared.py", "accept"): "never waits: its timeout is 0",
    ("reuse/shared.py", "recv_fds"): "its socket has a timeout",
    ("testing/faulty.py", "sleep"): "it is the fault: the loader under test ends it",
    ("stores/credentials.py", "opens a file"): "a file in memory of a process of ours, by /proc",
    ("shards/transfer.py", "with ThreadPoolExecutor"): "a copy of files, or requests that have their own time",
    ("shards/transfer.py", "result"): "of such a thread",
    ("shards/sending.py", "result"): "of a thread that writes an object, which has its own time",
    ("shards/epochs.py", "opens a file"): "a file in memory of a process of ours, by /proc",
    ("stores/asking.py", "opens a file"): "a file of certificates that the user has named, in a process of its own",
    ("net/link.py", "recv_into"): "never waits: its timeout is 0",
    ("net/link.py", "sendmsg"): "never waits: its timeout is 0",
    ("net/doorman.py", "accept"): "never waits: its timeout is 0",
    ("net/neighbours.py", "recv"): "its socket has a timeout",
    ("streams/door.py", "recv_fds"): "never waits: MSG_DONTWAIT",
    ("streams/server.py", "recv"): "never waits: MSG_DONTWAIT",
    ("streams/alone.py", "recv"): "never waits: MSG_DONTWAIT",
    ("streams/alone.py", "send_fds"): "a few bytes, to a thread of ours that reads each second",
    ("streams/server.py", "send_fds"): "a few bytes, to a process of ours that reads each second",
    ("net/greeting.py", "sleep"): "at most 1 s, between two tries to connect",
    ("stores/starting.py", "waitpid"): "for an interpreter that forks and ends in its first moments",
    ("stores/messages.py", "send_fds"): "in who asks the socket has a timeout; in the fetcher it never waits",
    (
        "stores/messages.py",
        "recv_fds",
    ): "in who asks it is called when there is something; in the fetcher it never waits",
    ("fetcher/kept.py", "flock"): "never waits: LOCK_NB",
    ("fetcher/kept.py", "opens a file"): "in the fetcher, in a thread of its own: others are answered meanwhile",
    ("fetcher/outage.py", "sleep"): "a pause of seconds between requests, in the fetcher",
    ("fetcher/outage.py", "acquire"): "who holds it asks once, which ends after seconds, in the fetcher",
    ("fetcher/network.py", "result"): "of a request that has ended",
    ("fetcher/room.py", "opens a file"): "a file in memory of its own, by /proc",
    ("fetcher/service.py", "sleep"): "10 ms, ten seconds in all",
    ("fetcher/service.py", "get"): "the connection's end puts an item, in the fetcher",
    ("fetcher/service.py", "accept"): "never waits: its timeout is 0",
    ("fetcher/waiting.py", "wait"): "within wait_for, which has a deadline",
    ("stores/link.py", "opens a file"): "the kernel's",
    ("serving/connecting.py", "sleep"): "0.2 s, between two tries to connect",
    ("engines/caretaker.py", "poll"): "a dataset's own time, in an actor on the cluster; or its server dies",
    ("engines/ray.py", "sleep"): "2 s, in an actor on the cluster, in a thread of its own",
    ("engines/ray.py", "with _lock"): "connects to the cluster or leaves it, which Ray bounds",
    ("serving/group.py", "sleep"): "0.4 s, in a server on the cluster",
    # Locks: what their holders do meanwhile.
    ("serving/voice.py", "acquire"): "never waits: blocking=False",
    ("serving/voice.py", "with _turn"): "sends a frame to a client, which has 6 or 30 s for each piece of it",
    ("serving/lending.py", "with _changed"): "counts; who waits under it has let go of it meanwhile",
    ("serving/workshop.py", "with _lock"): "decides: nothing is sent or made under it; starting a thread is",
    ("consumer/epoch.py", "with _turn"): "waits for a batch as this thread would, which has its deadlines",
    ("engines/lifeline.py", "with _no_fork"): "makes or closes a pipe; or forks",
    (
        "engines/local.py",
        "with _lock",
    ): "the starter asks the server, which ends it; close() has that wait given up first",
    ("shards/opened.py", "with _lock"): "opens a shard, as this thread would",
    ("shards/together.py", "with _lock"): "opens shards, as this thread would",
    ("orders/exchange.py", "with _lock"): "decides: nothing is sent, mapped, started or waited for under it",
    ("host/cgroup.py", "with _lock"): "reads a file of the kernel's",
    ("worker/outbox.py", "with _lock"): "sends what waits: a datagram, for which the trainer has room, or it is gone",
    ("pool/notes.py", "with _lock"): "adds to a set",
    ("consumer/supply.py", "with _asking"): "asks fetchers, by a socket that has a timeout",
    ("pool/lights.py", "with _lock"): "counts; the last thread puts the lights out, which has deadlines",
    ("pool/supervisor.py", "with _greeting"): "makes the plan, once",
    (
        "reuse/carousel.py",
        "with _threads",
    ): "reads or writes a sample, in a worker, which is given its time",
    ("reuse/keeper.py", "with _lock"): "opens the store anew, in a worker: the consumer kills it after timeout_s",
    ("reuse/repeated.py", "with _guard"): "counts",
    ("reuse/room.py", "with _lock"): "asks for room, in a worker: the locks that this takes have deadlines",
    (
        "telemetry/recorder.py",
        "with _lock",
    ): "counts, and writes lines to the user's file",
    # Files: which they are.
    ("net/keys.py", "opens a file"): "the user's key: O_NONBLOCK, and refused if it is no file",
    ("net/keygen.py", "opens a file"): "new; or in a folder that was just made",
    ("net/neighbours.py", "opens a file"): "the kernel's",
    ("net/doorman.py", "opens a file"): "the null device",
    ("shards/images.py", "opens a file"): "the dataset's own time, in a worker: the consumer kills it after timeout_s",
    ("shards/tokens.py", "opens a file"): "a file that the user has named; Ctrl-C ends that",
    ("host/procfs.py", "opens a file"): "the kernel's",
    ("host/cgroup.py", "opens a file"): "the kernel's",
    ("wire/channel.py", "opens a file"): "anonymous, in memory",
    ("worker/carried.py", "opens a file"): "anonymous, in memory",
    ("worker/gauges.py", "opens a file"): "the kernel's",
    ("worker/faultpoints.py", "opens a file"): "only where a test asks for faults",
    ("consumer/flight.py", "opens a file"): "the user's: O_NONBLOCK, and refused if it is no file",
    ("worker/guard.py", "opens a file"): "the null device, and the kernel's",
    ("host/memory.py", "opens a file"): "the kernel's",
    ("travel/mapped.py", "opens a file"): "the kernel's",
    ("travel/heritage.py", "opens a file"): "the kernel's",
    ("engines/copied.py", "opens a file"): "the kernel's",
    ("worker/copied.py", "opens a file"): "the kernel's",
    ("engines/nursery.py", "acquire"): "never waits: blocking=False",
    ("travel/arrival.py", "opens a file"): "a regular file that the trainer has open or mapped, or its memory",
    ("travel/carrier.py", "with _lock"): "held for a moment each, while nothing is pickled",
    ("travel/payload.py", "opens a file"): "anonymous, in memory",
    ("worker/threads.py", "opens a file"): "the kernel's",
    ("reuse/carousel.py", "opens a file"): "the trainer's, through /proc",
    ("reuse/files.py", "opens a file"): "the store's: O_NONBLOCK, and refused if it is no file",
    ("shards/encode.py", "opens a file"): "a picture's, which the user's dataset has just opened or names",
    ("shards/folder.py", "flock"): "never waits: LOCK_NB",
    ("shards/folder.py", "opens a file"): "the user's shards: O_NONBLOCK, and refused if it is no file; or new",
    ("reuse/shared.py", "opens a file"): "anonymous, in memory, through /proc",
    ("host/outfile.py", "opens a file"): "the user's: O_NONBLOCK, and refused if it is no file",
    ("testing/faulty.py", "opens a file"): "it is the fault, in a worker that is given its time",
}


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _locks(trees: Iterable[ast.AST]) -> set[str]:
    """The names that are given to locks anywhere."""
    found = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {_name(target) for target in targets if _name(node.value.func) in LOCKS}
    return found


def _waits(tree: ast.AST, locks: set[str]):
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            yield from ((f"with {_name(one.context_expr)}", node.lineno) for one in node.items
                        if _name(one.context_expr) in locks)  # fmt: skip
            calls = [one.context_expr for one in node.items if isinstance(one.context_expr, ast.Call)]
            yield from ((f"with {_name(one.func)}", node.lineno) for one in calls if _name(one.func) in GROUPS)
        if isinstance(node, ast.Call):
            yield from _calls_that_wait(node)


def _is_no_deadline(value: ast.expr) -> bool:
    """``None``, ``True`` (for "block") and negative numbers: for ever."""
    is_negative = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub)
    return is_negative or (isinstance(value, ast.Constant) and any(value.value is one for one in (None, True)))


def _is_path(opens: ast.expr) -> bool:
    """Whether it is a method of a path that was just made; engines and devices are opened too."""
    made = opens.value if isinstance(opens, ast.Attribute) else opens
    return isinstance(made, ast.Call) and _name(made.func) == "Path"


def _calls_that_wait(node: ast.Call):
    name, base = _name(node.func), _name(node.func.value) if isinstance(node.func, ast.Attribute) else None
    has_timeout = any(key.arg == "timeout" and not _is_no_deadline(key.value) for key in node.keywords)
    if base == "subprocess" and name in PROGRAMS and not has_timeout:
        yield f"subprocess.{name}", node.lineno
    elif name in FILES and (name != "open" or base in (None, "os", "io", "path") or _is_path(node.func)):
        yield "opens a file", node.lineno
    elif base is not None:
        given = [arg for arg in node.args if not _is_no_deadline(arg)]
        has_deadline = len(given) >= (2 if base == "futures" else WAITS.get(name, 0)) or has_timeout
        is_text = isinstance(node.func.value, ast.Constant)
        makes_poll = name == "poll" and isinstance(node.func.value, ast.Name) and node.func.value.id == "select"
        if name in WAITS and not has_deadline and not is_text and not makes_poll:
            yield name, node.lineno


@cache
def _found() -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    package = ROOT / "swift_loader"
    trees = {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    locks = _locks(trees.values())
    for path, tree in trees.items():
        for name, line in _waits(tree, locks):
            found.setdefault((path.relative_to(package).as_posix(), name), []).append(line)
    return found


def test_no_wait_is_without_a_deadline():
    found = {place: lines for place, lines in _found().items() if place not in ENDS}
    # What a command opens its user has named; Ctrl-C ends that.
    assert not {place: found[place] for place in found if not place[0].startswith("cli/") or place[1] != "opens a file"}


def test_every_exception_is_still_needed():
    assert set(ENDS) <= set(_found())


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("queue.get()", True), ("queue.get(timeout=1)", False), ("settings.get('x')", False), ("thread.join()", True),
        ("', '.join(x)", False), ("lock.acquire()", True), ("select.poll()", False), ("ready.poll()", True),
        ("ready.poll(5)", False), ("sock.recvmsg(1, 2, 3)", True), ("os.waitpid(pid, 0)", True),
        ("sock.accept()", True), ("socket.create_connection(a)", True), ("socket.create_connection(a, 5)", False),
        ("fcntl.flock(fd, 2)", True), ("subprocess.run(['x'])", True), ("subprocess.run(['x'], timeout=5)", False),
        ("self._lock = threading.RLock()\nwith self._lock: pass", True), ("with open_it() as x: pass", False),
        ("open('x')", True), ("os.open('x', 0)", True), ("Path('x').read_text()", True), ("engine.open()", False),
        ("Path(x).open()", True), ("queue.get(True)", True), ("queue.get(True, 5)", False), ("ready.poll(None)", True),
        ("ready.poll(-1)", True), ("thread.join(timeout=None)", True), ("child.communicate('x')", True),
        ("child.communicate('x', 5)", False), ("futures.wait(these)", True), ("futures.wait(these, 5)", False),
        ("with subprocess.Popen(['x']) as p: pass", True), ("with ThreadPoolExecutor(3) as t: pass", True),
        ("sock.sendall(x)", True), ("lock.acquire(True)", True), ("lock.acquire(False)", False),
    ],
)  # fmt: skip
def test_the_scan_finds_what_it_is_for(text: str, waits: bool):
    tree = ast.parse(text)
    assert bool(list(_waits(tree, _locks([tree])))) is waits
