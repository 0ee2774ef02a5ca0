"""Nothing is unpickled that another user could have written: every place that does it is known, with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Calls that may run code that is in the bytes they are given.
MODULES = {"pickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "torch", "np", "numpy", "yaml"}
CALLS = {"load", "loads", "Unpickler", "open"}
BUILTINS = {"eval", "exec"}

SOCKET = "a datagram of an anonymous pair of sockets, whose other end only our own worker or trainer has"
MEMORY = "an anonymous memory file of our own family: 0600, without a name, its descriptor passed over such a pair"
SOURCE = "source made there of our own lines and numbers, not of what came"
ALLOWED = "a sample of a set that the user has said to trust: allow_pickle=True; else it stays bytes"
#: (file, function) and why its bytes are ours.
OURS = {
    ("errors.py", "exception"): SOCKET,
    ("errors.py", "_pickle_of"): "what this process has pickled in the line before",
    ("wire/messages.py", "read_parcel"): SOCKET,
    ("wire/messages.py", "read_pickled"): SOCKET,
    (
        "travel/payload.py",
        "unpack",
    ): f"{MEMORY}; or a replay file, which flight.py reads where it is this user's and nobody else can write it",
    ("batch/codec.py", "decode"): MEMORY,
    (
        "worker/carried.py",
        "__reduce__",
    ): "a layout from a server that this job has started, over TLS with a key made for it alone",
    (
        "batch/record.py",
        "",
    ): "a file of this user alone (owner, mode and names are looked at when it is opened), checked",
    ("batch/rowcode.py", "compiled"): SOURCE,
    ("batch/gathercode.py", "compiled"): SOURCE,
    ("shards/decode.py", "_npz"): "with allow_pickle=False: arrays alone",
    ("shards/tokens.py", "_numpy_file"): "with allow_pickle=False: arrays alone",
    ("shards/decode.py", "_unpickled"): ALLOWED,
    ("shards/decode.py", "_torch_file"): ALLOWED,
}


def _unpickles(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The function and the call."""

    def visit(node: ast.AST, inside: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from visit(child, child.name)
                continue
            if (name := _dangerous(child)) is not None:
                yield inside, name
            yield from visit(child, inside)

    return visit(tree, "")


def _dangerous(node: ast.AST) -> str | None:
    if isinstance(node, ast.ImportFrom) and node.module in MODULES & {"pickle", "dill", "marshal"}:
        found = [alias.name for alias in node.names if alias.name in CALLS]
        return f"from {node.module} import {found[0]}" if found else None
    if isinstance(node, ast.Name) and node.id in BUILTINS:
        return node.id
    if isinstance(node, ast.Attribute) and node.attr in CALLS and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}" if node.value.id in MODULES else None
    return None


@cache
def _found() -> dict[tuple[str, str], list[str]]:
    package, found = ROOT / "swift_loader", {}
    for path in sorted(package.rglob("*.py")):
        for function, call in _unpickles(ast.parse(path.read_text())):
            found.setdefault((path.relative_to(package).as_posix(), function), []).append(call)
    return found


def test_all_that_unpickles_is_known():
    assert {place: calls for place, calls in _found().items() if place not in OURS} == {}


def test_every_reason_is_still_needed():
    assert set(OURS) <= set(_found())


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("def f(x):\n return pickle.loads(x)", True), ("dill.load(x)", True), ("marshal.loads(x)", True),
        ("pickle.Unpickler(x).load()", True), ("torch.load(x)", True), ("np.load(x)", True), ("eval(x)", True),
        ("from pickle import loads", True), ("reader = pickle.loads", True), ("shelve.open(x)", True),
        ("pickle.dumps(x)", False), ("json.loads(x)", False), ("digits.load()", False), ("model.eval()", False),
    ],
)  # fmt: skip
def test_the_scan_finds_what_it_is_for(text: str, is_one: bool):
    assert bool(list(_unpickles(ast.parse(text)))) is is_one
