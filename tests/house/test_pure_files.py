"""A file that says it is pure is under the contract that checks it, and none is that does not say so."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "swift_loader"
#: How it is said, in the text at the head of a file; at the head of a room it is said of all its files.
SAYS_SO = re.compile(r"\bPure\b")


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _says_so(path: Path) -> bool:
    return SAYS_SO.search(ast.get_docstring(ast.parse(path.read_text())) or "") is not None


def _told() -> set[str]:
    files = set(PACKAGE.rglob("*.py"))
    rooms = {path.parent for path in files if path.name == "__init__.py" and _says_so(path)}
    pure = {path for path in files if _says_so(path) or path.parent in rooms}
    return {_name(path) for path in pure if path.name != "__init__.py"}


def _checked() -> set[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (patterns,) = (one["source_modules"] for one in contracts if one["name"].startswith("Pure files"))
    names = {_name(path) for path in PACKAGE.rglob("*.py")}
    assert not [one for one in patterns if "*" not in one and one not in names]
    wanted = [re.compile(re.escape(one).replace(r"\*", "[^.]+")) for one in patterns]
    return {name for name in names if any(pattern.fullmatch(name) for pattern in wanted)}


def test_what_says_that_it_is_pure_is_checked_and_what_is_checked_says_so():
    assert _told() == _checked()


def test_some_files_are_pure():
    assert {"swift_loader.orders.ledger", "swift_loader.plan.share", "swift_loader.tuning.policy"} <= _told()
