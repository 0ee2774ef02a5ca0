"""The sizes and names that keep the house readable (the layers and walls are import-linter's, in pyproject.toml)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def _functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield node


def _length(function: Function) -> int:
    """Lines of code: from the `def` to the end, its docstring aside."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is not None:
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


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_file_is_short(path: Path):
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_FILE_LINES or _name(path) in EXEMPT


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_functions_are_short(path: Path):
    long = {f"{_name(path)}::{f.name}": _length(f) for f in _functions(path) if _length(f) > MAX_FUNCTION_LINES}
    assert not {name: lines for name, lines in long.items() if name not in EXEMPT}


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_functions_are_not_deeply_nested(path: Path):
    deep = {f"{_name(path)}::{f.name}": _nesting(f) for f in _functions(path) if _nesting(f) > MAX_NESTING}
    assert not {name: depth for name, depth in deep.items() if name not in EXEMPT}


def test_names_say_what_is_inside():
    assert not [_name(path) for path in SOURCES if path.stem.lower().strip("_") in FORBIDDEN_NAMES]
    assert not [
        _name(path) for path in SHIPPED if any(word in FORBIDDEN_NAMES for word in path.stem.lower().split("_"))
    ]


@pytest.mark.parametrize("path", SHIPPED, ids=_name)
def test_a_module_says_what_its_room_is_for(path: Path):
    assert ast.get_docstring(ast.parse(path.read_text()))


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
