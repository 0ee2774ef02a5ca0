"""What workers are to import stands in files that tests do not stand in.

A worker that is sent a dataset imports its module. That of a test imports pytest, torch, and all that the test needs:
most of a second for each worker, where a file of datasets takes milliseconds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: What makes loaders, and what they are given by position: a class, or an object of it.
LOADERS = {"SwiftLoader", "from_dataset", "made", "started", "stream", "DataLoader"}
#: What they are given by name, in a call or in a table of settings.
SETTINGS = {"batch_encoder", "collate_fn", "dataset", "dataset_class", "worker_init"}
#: Where it may be all the same, and why.
EXEMPT = {
    ("test_b_lengths_and_ranks.py", "Streams"): "it is refused before there are workers",
    ("test_b_lengths_and_ranks.py", "StreamsWithLength"): "it is refused before there are workers",
    ("test_caches.py", "of_the_kind_now"): "without workers",
}


def _names(node: ast.AST) -> set[str]:
    """Of a class or function itself, or of what is called to make an object."""
    if isinstance(node, ast.Call):
        node = node.func
    return {node.id} if isinstance(node, ast.Name) else set()


def _given(tree: ast.AST) -> Iterator[str]:
    """Names of what loaders are given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if _has_no_workers(node):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in LOADERS and node.args:
                yield from _names(node.args[0])
            yield from (name for key in node.keywords if key.arg in SETTINGS for name in _names(key.value))
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (n for k, v in pairs if isinstance(k, ast.Constant) and k.value in SETTINGS for n in _names(v))


def _has_no_workers(call: ast.Call) -> bool:
    values = [key.value for key in call.keywords if key.arg == "worker_per_consumer"] + call.args[3:4]
    return any(isinstance(value, ast.Constant) and value.value == 0 for value in values)


def beside_tests(text: str) -> set[str]:
    """What a test module defines, and gives to loaders with workers."""
    tree = ast.parse(text)
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return defined & set(_given(tree))


def test_nothing_that_workers_import_stands_in_a_test_module():
    found = {
        (path.name, name)
        for folder in ("api", "fault", "integration")
        for path in sorted((TESTS / folder).rglob("test_*.py"))
        for name in beside_tests(path.read_text())
    }
    assert found - EXEMPT.keys() == set()
    assert EXEMPT.keys() - found == set()


@pytest.mark.parametrize(
    ("call", "is_one"),
    [
        ("started(Mine, {})", True), ("SwiftLoader.from_dataset(Mine(3), 4, 1, 2)", True), ("stream(Theirs)", False),
        ("made(Theirs, collate_fn=Mine)", True), ("given = {'worker_init': Mine}", True), ("other(Mine)", False),
        ("made(Mine, worker_per_consumer=0)", False), ("SwiftLoader.from_dataset(Mine(), 8, 1, 0)", False),
    ],
)  # fmt: skip
def test_the_check_can_fail(call: str, is_one: bool):
    assert beside_tests(f"class Mine: pass\n{call}\n") == ({"Mine"} if is_one else set())
