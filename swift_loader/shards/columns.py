"""Samples become a batch of columns: of numbers arrays, arrays and tensors stacked, of all else lists."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from swift_loader.errors import LayoutError


def in_columns(samples: Sequence[Any]) -> Any:
    """A list with a column for each item, as webdataset's users know it; a dict of them where samples are dicts."""
    first = samples[0]
    if isinstance(first, dict):
        odd = next((sample for sample in samples if sample.keys() != first.keys()), None)
        if odd is not None:
            raise LayoutError(
                f"samples of a batch have different fields: {', '.join(first)}, and {', '.join(odd)}; to_tuple or "
                "select_fields picks those that all have"
            )
        return {name: _column([sample[name] for sample in samples]) for name in first}
    if isinstance(first, tuple | list):
        sizes = set(map(len, samples))
        if len(sizes) > 1:
            raise LayoutError(f"samples of a batch have {sorted(sizes)} items: a batch has as many columns as each")
        return [_column(column) for column in zip(*samples, strict=True)]
    return _column(samples)


def _column(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, bool | int | float | np.generic):
        return np.array(values)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(first, torch.Tensor):
        return torch.stack(list(values)) if len({value.shape for value in values}) == 1 else list(values)
    if isinstance(first, np.ndarray):
        return np.stack(values) if len({value.shape for value in values}) == 1 else list(values)
    return list(values)
