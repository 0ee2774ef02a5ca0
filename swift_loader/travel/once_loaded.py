"""What is to be done to a module once it is loaded: now, or when somebody imports it. Nothing is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

Action: TypeAlias = Callable[[Any], None]


def once_loaded(name: str, action: Action) -> None:
    """Calls ``action`` with the module of that name, now or as soon as it has been loaded."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        action(loaded)
        return
    if _upcoming not in sys.meta_path:
        sys.meta_path.insert(0, _upcoming)
    _upcoming.actions.setdefault(name, []).append(action)


class _Upcoming:
    """A finder in front of the others, who find the module: it adds to what is done to load it."""

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As every finder."""
        actions = self.actions.pop(name, None)
        if actions is None:
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((one for one in found if one is not None), None)
        if spec is None or spec.loader is None or isinstance(spec.loader, type):  # it is not there, or none of Python's
            self.actions[name] = actions
        else:
            self._join(spec, actions)
        return spec

    def _join(self, spec: ModuleSpec, actions: list[Action]) -> None:
        loader: Any = spec.loader
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if module.__name__ != spec.name:  # one loader may load many
                load(module)
                return
            loader.exec_module = load
            try:
                load(module)
            except BaseException:
                self.actions[spec.name] = actions  # somebody may try again
                raise
            for action in actions:
                action(module)

        loader.exec_module = exec_module


_upcoming = _Upcoming()
