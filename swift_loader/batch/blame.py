"""Which part of a batch cannot be sent, once it is known that some part cannot.

Asked only after a batch has failed, so it may take its time: each part is encoded by itself until no part of a part
fails alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from swift_loader.batch.codec import encode
from swift_loader.batch.layout import BatchSpec

#: Objects may lie in one another without end.
_DEPTH = 32
_ATOMS = (str, bytes, int, float, complex, type(None))


def blame(spec: BatchSpec, objects: list[list[Any]], indices: Sequence[int]) -> str:
    """What it is that cannot be sent, and where. ``objects``: the columns of objects; ``indices``: of their rows."""
    if spec.kind == "object":
        path, part = _culprit(objects[0][0], "")
        return f"{f'batch{path}' if path else 'the batch'} is a {type(part).__name__}"
    columns = (
        end.path for end, column in zip(spec.structure.ends(), spec.columns, strict=True) if column.kind == "objects"
    )
    for path, values in zip(columns, objects, strict=False):
        for index, value in zip(indices, values, strict=False):
            if not _can_be_sent(value):
                whole_path, part = _culprit(value, path)
                return f"sample {index}{in_words(whole_path)} is a {type(part).__name__}"
    return "the batch is something"


def in_words(path: str) -> str:
    """A path as it stands behind the number of a sample."""
    way = path.removeprefix("sample")
    return f", {way}," if way else ""


def _culprit(value: Any, path: str) -> tuple[str, Any]:
    """The innermost part of ``value`` that cannot be sent, and the way to it."""
    for _ in range(_DEPTH):
        for step, part in _parts(value):
            if not _can_be_sent(part):
                value, path = part, path + step
                break
        else:
            break
    return path, value


def _can_be_sent(value: Any) -> bool:
    if isinstance(value, _ATOMS):
        return True
    try:
        encode(value)
    except Exception:  # noqa: BLE001 - this is the question
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", None)
        yield from ((f".{names[i]}" if names else f"[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, np.ndarray):
        if value.dtype == object:
            for place, part in np.ndenumerate(value):
                yield f"[{', '.join(map(str, place))}]", part
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value))
    elif not isinstance(value, type):
        yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())
