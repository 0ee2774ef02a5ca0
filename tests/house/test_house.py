"""The sizes and names that keep the house readable (the layers and walls are import-linter's, in pyproject.toml)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_NESTING = 3
FORBIDDEN_NAMES = ("utils", "util", "common", "helpers", "helper", "manager", "misc")

# Path (or path::function) and why it may be longer.
EXEMPT: dict[str, str] = {
    "swift_loader/settings/loader.py::parse": "one line per public argument; cut in two it would hide one",
}

ROOMS = ("swift_loader", "examples", "benchmarks", "tests")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
SHIPPED = [path for path in SOURCES if path.is_relative_to(ROOT / "swift_loader")]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Told(NamedTuple):
    """What is asked of a file. Its tree is not kept: millions of nodes would be looked through for garbage."""

    is_documented: bool
    functions: list[tuple[str, int, int]]
    """Each with the file's name and its own, its length, and its nesting."""


@cache
def _told(path: Path) -> Told:
    tree = ast.parse(path.read_text())
    functions = [(f"{_name(path)}::{node.name}", _length(node), _nesting(node)) for node in _defined_in(tree)]
    return Told(bool(ast.get_docstring(tree, clean=False)), functions)


def _functions() -> list[tuple[str, int, int]]:
    return [function for path in SOURCES for function in _told(path).functions]


def _defined_in(node: ast.AST) -> Iterator[Function]:
    """The functions below a node. They stand among statements, so expressions need not be looked at."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            if isinstance(child, Function):
                yield child
            yield from _defined_in(child)


def _length(function: Function) -> int:
    """Lines of code: from the `def` to the end, its docstring aside."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        text = function.body[0]
        lines -= (text.end_lineno or 0) - text.lineno + 1
    return lines


def _nesting(node: ast.AST, depth: int = 0) -> int:
    """How many blocks lie within each other; an `elif` is no block of its own, nor is a function within."""
    deepest = depth
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (Function, ast.Lambda, ast.ClassDef)):
                continue
            is_block = isinstance(child, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith))
            is_elif = isinstance(node, ast.If) and field == "orelse" and isinstance(child, ast.If) and len(value) == 1
            deepest = max(deepest, _nesting(child, depth + (is_block and not is_elif)))
    return deepest


def _too_large(measured: Iterable[tuple[str, int]], most: int) -> dict[str, int]:
    return {name: size for name, size in measured if size > most and name not in EXEMPT}


def test_files_are_short():
    assert _too_large(((_name(path), len(path.read_text().splitlines())) for path in SOURCES), MAX_FILE_LINES) == {}


def test_functions_are_short():
    assert _too_large(((name, length) for name, length, _ in _functions()), MAX_FUNCTION_LINES) == {}


def test_functions_are_not_deeply_nested():
    assert _too_large(((name, nesting) for name, _, nesting in _functions()), MAX_NESTING) == {}


def test_names_say_what_is_inside():
    assert not [_name(path) for path in SOURCES if path.stem.lower().strip("_") in FORBIDDEN_NAMES]
    assert not [
        _name(path) for path in SHIPPED if any(word in FORBIDDEN_NAMES for word in path.stem.lower().split("_"))
    ]


def test_modules_say_what_their_rooms_are_for():
    assert [_name(path) for path in SHIPPED if not _told(path).is_documented] == []


def test_the_exemptions_are_needed():
    known = {_name(path) for path in SOURCES}
    assert not {name for name in EXEMPT if name.partition("::")[0] not in known}


def test_the_checks_can_fail():
    tree = ast.parse("def f():\n if a:\n  for b in c:\n   while d:\n    with e:\n     g()\n")
    assert _nesting(tree.body[0]) == 4
    tree = ast.parse("def f():\n if a:\n  b()\n elif c:\n  d()\n elif e:\n  g()\n else:\n  h()\n")
    assert _nesting(tree.body[0]) == 1
    tree = ast.parse('def f():\n """Text.\n\n more\n """\n return 1\n')
    assert isinstance(tree.body[0], ast.FunctionDef)
    assert _length(tree.body[0]) == 2
    inner = ["class A:\n def f(): 0", "try:\n 0\nexcept E:\n def f(): 0", "match a:\n case 1:\n  async def f(): 0"]
    assert [[found.name for found in _defined_in(ast.parse(text))] for text in inner] == [["f"]] * 3


HEAVY = ("torch", "lightning", "lightning_fabric", "pytorch_lightning", "loguru", "matplotlib", "sklearn", "ray", "zmq")


@pytest.mark.parametrize(
    "module", ["swift_loader", "swift_loader.errors", "swift_loader.telemetry", "swift_loader.cli.main"]
)
def test_importing_is_light(module: str):
    script = f"import sys, {module}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []
