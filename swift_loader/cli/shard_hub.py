"""Datasets of the Hugging Face Hub that are on this disk. Images and sounds are the bytes of their files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from swift_loader.cli.shard_rows import sample_of
from swift_loader.errors import ConfigError


def hub_rows(name: str, split: str = "train") -> tuple[HubRows, list[str]]:
    """The dataset, and the names of its classes.

    Raises:
        ConfigError: if it is not on this disk.
    """
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    import datasets

    try:
        found = datasets.load_from_disk(name) if Path(name).is_dir() else datasets.load_dataset(name)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"hf:{name} is not on this disk: datasets.load_dataset({name!r}) gets it ({error})"
        ) from error
    if isinstance(found, dict):
        if split not in found:
            raise ConfigError(f"hf:{name} has no split {split!r}: name one of {', '.join(found)}, as hf:{name}:{split}")
        found = found[split]
    classes: list[str] = []
    for column, feature in found.features.items():
        if isinstance(feature, datasets.Image | datasets.Audio):
            found = found.cast_column(column, type(feature)(decode=False))
        classes = classes or list(getattr(feature, "names", None) or [])
    return HubRows(found), classes


class HubRows:
    """Each row is a dict."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return sample_of(self._found[index])
