"""What every worker will import for a payload and is better imported once, before they are forked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from swift_loader.travel.payload import Packed

#: So many functions of a module, or of a class, are looked at.
_MOST = 500


def modules_to_preload(packed: Packed) -> list[str]:
    """Their names. Of torch only what this process has loaded too: else nothing has been made with it."""
    modules = ["cloudpickle"] if packed.is_by_value else []
    if "torch" in sys.modules and ("torch" in packed.mentioned or _brings_torch(packed.named)):
        modules.append("torch")
    return modules


def modules_of_class(dataset_class: Any) -> list[str]:
    """The same, as far as the class tells it, before there is a payload."""
    if "torch" not in sys.modules or not isinstance(dataset_class, type):
        return []
    bases = [base for base in dataset_class.__mro__ if not _is_known(base.__module__)]
    functions = [part for base in bases for part in vars(base).values() if isinstance(part, FunctionType)]
    uses_it = any(_is_of_torch(base) for base in bases) or any("torch" in names_in(one.__code__) for one in functions)
    named = tuple(base for base in bases if base.__module__ not in ("__main__", "__mp_main__"))
    return ["torch"] if uses_it or _brings_torch(named) else []


def _brings_torch(named: tuple[Any, ...]) -> bool:
    """Whether a module is imported that uses torch."""
    homes = {home: sys.modules.get(home) for home in (each.__module__ for each in named) if isinstance(home, str)}
    return any(_uses_torch(home) for name, home in homes.items() if home is not None and not _is_known(name))


def _is_known(name: str) -> bool:
    """One that every Python has, or that is imported anyway and brings none."""
    top = name.partition(".")[0]
    return top in ("numpy", "swift_loader", "cloudpickle") or top in sys.stdlib_module_names


def _uses_torch(module: ModuleType) -> bool:
    return any(_is_of_torch(value) for value in list(vars(module).values())) or any(
        name.partition(".")[0] == "torch" for name in _names_in(module)
    )


def _is_of_torch(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] == "torch"


def names_in(code: CodeType) -> Iterator[str]:
    """Names of modules, globals and attributes that ``code`` uses, and all code inside of it."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from names_in(part)


def _names_in(module: ModuleType) -> Iterator[str]:
    """What the functions of a module import or use, and those of its classes."""
    own = [each for each in list(vars(module).values()) if getattr(each, "__module__", None) == module.__name__]
    parts = [part for each in own if isinstance(each, type) for part in vars(each).values()]
    functions = [each for each in (*own, *parts) if isinstance(each, FunctionType)]
    for function in functions[:_MOST]:
        yield from names_in(function.__code__)
