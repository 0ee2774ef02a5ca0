"""A dataset that numbers names as they come out of a set. Nothing here imports torch."""

from __future__ import annotations

NAMES = ["cat", "dog", "bird", "fish", "horse", "cow", "sheep", "goat", "duck", "hen"]


class Animals:
    """Sample i is the label of a name."""

    def __init__(self) -> None:
        self.id_of = {name: label for label, name in enumerate(list(set(NAMES)))}

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return self.id_of[NAMES[index]]
