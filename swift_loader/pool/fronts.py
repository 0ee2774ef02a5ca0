"""What may stand in front of a dataset, so that samples are made less often. Loaded by those only who asked for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_loader.reuse.kept import Kept
    from swift_loader.reuse.repeated import Repeated


def as_kept(dataset: Any) -> Kept | None:
    """The dataset itself, if samples of it are kept in a cache."""
    return dataset if _is(dataset, "kept", "Kept") else None


def as_repeated(dataset: Any) -> Repeated | None:
    """What knows of a sample's further uses, if there are any: the dataset itself, or what a cache falls back on."""
    kept = as_kept(dataset)
    if kept is not None:
        return kept.rotation
    return dataset if _is(dataset, "repeated", "Repeated") else None


def _is(dataset: Any, module: str, name: str) -> bool:
    loaded = sys.modules.get(f"swift_loader.reuse.{module}")
    return loaded is not None and isinstance(dataset, getattr(loaded, name))
