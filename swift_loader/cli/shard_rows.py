"""Rows of tables, as Parquet files and the Hub's datasets have them, as samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

_MAGIC = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png", b"GIF8": "gif"}


def sample_of(row: dict[str, Any]) -> dict[str, Any]:
    """A row: what is empty is left out, lists of numbers become arrays, files (bytes and a path) bytes."""
    sample = {}
    for name, value in row.items():
        if value is None:
            continue
        if isinstance(value, dict) and value.keys() == {"bytes", "path"}:
            data = value["bytes"] if value["bytes"] is not None else Path(value["path"]).read_bytes()
            sample[f"{name}.{_ending(data, value['path'])}"] = data
        elif isinstance(value, list) and value and type(value[0]) in (int, float):
            sample[name] = np.asarray(value)
        else:
            sample[name] = value
    return sample


def _ending(data: bytes, path: str | None) -> str:
    said = Path(path or "").suffix[1:].lower()
    known = next((ending for magic, ending in _MAGIC.items() if data.startswith(magic)), "bin")
    return "jpg" if said == "jpeg" else said or known
