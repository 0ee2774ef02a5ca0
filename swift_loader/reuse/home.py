"""Classes of the training script's ``__main__``, found by their names in a worker, which has another main module."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any


def class_of_main_by(dataset: Any) -> Callable[[str], Any]:
    """Finds them here, or among what the dataset's own functions know by name."""

    def find(qualname: str) -> Any:
        first, _, rest = qualname.partition(".")
        for names in _namespaces(dataset):
            if first in names:
                return attrgetter(rest)(names[first]) if rest else names[first]
        raise pickle.UnpicklingError(f"the class {qualname} of the training script is not known in a worker")

    return find


def _namespaces(dataset: Any) -> list[dict[str, Any]]:
    kinds = [kind for kind in type(dataset).__mro__ if kind.__module__ in ("__main__", "__mp_main__")]
    functions = [value for kind in kinds for value in vars(kind).values() if hasattr(value, "__globals__")]
    named = {kind.__name__: kind for kind in kinds}
    return [vars(sys.modules["__main__"]), named, *(function.__globals__ for function in functions)]
