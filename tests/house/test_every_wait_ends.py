"""No wait in the package is without a deadline, but those that somebody else's end is sure to wake."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Names of calls that wait, and how many positional arguments they have where a deadline is among them.
WAITS = {
    "get": 1, "join": 1, "wait": 1, "acquire": 1, "result": 1, "communicate": 1, "poll": 1, "select": 1,
    "synchronize": 1, "recv": 9, "recvmsg": 9, "recv_fds": 9, "accept": 9, "waitpid": 9, "waitid": 9, "sleep": 9,
    "select.select": 4,
}  # fmt: skip
#: Where a wait has no deadline, and why it ends all the same.
ENDS = {
    ("device/cuda.py", "synchronize"): "a copy of the device's: its driver ends it, or ends the process",
    ("device/plain.py", "synchronize"): "a copy of the device's: its driver ends it, or ends the process",
    ("device/underway.py", "synchronize"): "a copy of the device's: its driver ends it, or ends the process",
    ("device/driver.py", "join"): "a thread that makes one call to the device's runtime",
    ("device/landing.py", "get"): "close() tells the thread, and puts an item for the consumer",
    ("engines/server.py", "waitid"): "never waits: WNOHANG",
    ("engines/zygote.py", "waitpid"): "never waits: WNOHANG",
    ("pool/channel.py", "recvmsg"): "the other end's death ends it; in the trainer it never waits",
    ("pool/brisk.py", "recvmsg"): "never waits: MSG_DONTWAIT",
    ("pool/crew.py", "result"): "the dataset's own time, in a worker: the consumer kills it after timeout_s",
    ("pool/outbox.py", "wait"): "a daemon thread of a worker, which ends with it",
    ("pool/outbox.py", "sleep"): "20 ms",
    ("reuse/host.py", "accept"): "never waits: its timeout is 0",
    ("reuse/host.py", "recv_fds"): "its socket has a timeout",
    ("testing/faulty.py", "sleep"): "it is the fault: the loader under test ends it",
}


def _waits(tree: ast.AST):
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        has_deadline = len(node.args) >= WAITS.get(name, 0) or any(key.arg == "timeout" for key in node.keywords)
        is_text = isinstance(node.func.value, ast.Constant)
        makes_poll = name == "poll" and isinstance(node.func.value, ast.Name) and node.func.value.id == "select"
        if name in WAITS and not has_deadline and not is_text and not makes_poll:
            yield name, node.lineno


def _found() -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    package = ROOT / "swift_loader"
    for path in sorted(package.rglob("*.py")):
        for name, line in _waits(ast.parse(path.read_text())):
            found.setdefault((path.relative_to(package).as_posix(), name), []).append(line)
    return found


def test_no_wait_is_without_a_deadline():
    unbounded = {
        place: lines for place, lines in _found().items() if place not in ENDS and not place[0].startswith("cli/")
    }
    assert not unbounded


def test_every_exception_is_still_needed():
    assert set(ENDS) <= set(_found())


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("queue.get()", True), ("queue.get(timeout=1)", False), ("settings.get('x')", False), ("thread.join()", True),
        ("', '.join(x)", False), ("lock.acquire()", True), ("select.poll()", False), ("ready.poll()", True),
        ("ready.poll(5)", False), ("sock.recvmsg(1, 2, 3)", True), ("os.waitpid(pid, 0)", True),
    ],
)  # fmt: skip
def test_the_scan_finds_what_it_is_for(text: str, waits: bool):
    assert bool(list(_waits(ast.parse(text)))) is waits
