"""State is what makes a file hard, not lines: a class has few attributes and few methods.

Records do not count their attributes: what is frozen has no state that one method could leave wrong for another.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "swift_loader"
MAX_ATTRIBUTES = 18
MAX_METHODS = 22
#: And why they may have more.
EXEMPT = {"loader.py::SwiftLoader": "the public face: a method for each thing that users do"}
#: Still over it. None may be added; one that no longer is over it must be taken out.
STILL: set[str] = set()

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def _classes(code: str) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ClassDef))


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [each for each in node.body if isinstance(each, Function)]


def _attributes(node: ast.ClassDef) -> set[str]:
    """What is declared in the class, and what its methods store on the object."""
    found = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    for each in node.body:
        if isinstance(each, ast.Assign):
            found |= {target.id for target in each.targets if isinstance(target, ast.Name)}
    for method in _methods(node):
        for part in ast.walk(method):
            is_stored = isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
            if is_stored and isinstance(part.value, ast.Name) and part.value.id in ("self", "cls"):
                found.add(part.attr)
    return found - {"__slots__"}


def _is_record(node: ast.ClassDef) -> bool:
    """A NamedTuple, a TypedDict, or a frozen dataclass."""
    bases = {ast.unparse(base) for base in node.bases}
    return bool(bases & {"NamedTuple", "TypedDict"}) or any(
        "frozen=True" in ast.unparse(d) for d in node.decorator_list
    )


def _is_large(node: ast.ClassDef) -> bool:
    has_much = len(_attributes(node)) > MAX_ATTRIBUTES and not _is_record(node)
    return has_much or len(_methods(node)) > MAX_METHODS


@cache
def _large() -> set[str]:
    return {
        f"{path.relative_to(PACKAGE)}::{node.name}"
        for path in PACKAGE.rglob("*.py")
        for node in _classes(path.read_text())
        if _is_large(node)
    }


def test_no_class_has_much_state_or_many_methods():
    assert _large() - set(EXEMPT) - STILL == set()


def test_the_lists_of_large_classes_are_needed():
    assert (set(EXEMPT) | STILL) - _large() == set()


def test_the_check_can_fail():
    stores = "\n  ".join(f"self.a{number} = self.a{number + 1} = 0" for number in range(MAX_ATTRIBUTES))
    (node,) = _classes(f"class Large:\n b: int\n def f(self):\n  {stores}")
    assert len(_attributes(node)) == MAX_ATTRIBUTES + 2
    assert _is_large(node)
    declared = "\n ".join(f"a{number}: int = 0" for number in range(MAX_ATTRIBUTES + 1))
    assert [_is_large(node) for node in _classes(f"class A(NamedTuple):\n {declared}\nclass B:\n {declared}")] == [
        False,
        True,
    ]
    methods = "\n ".join(f"def f{number}(self): pass" for number in range(MAX_METHODS + 1))
    assert all(map(_is_large, _classes(f"class Many(NamedTuple):\n {methods}")))
