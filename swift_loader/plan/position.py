"""Where a consumer is in the stream of batches, and the state that a checkpoint keeps of it.

The order is a function of the settings, so a state is a place in it, the seed, and the settings to compare with: a few
hundred bytes, whatever the length of the run. Knows nothing of pools and batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from swift_loader.errors import ConfigError

_FORMAT = 1
_KEYS = ("swift_loader", "epoch", "step", "ahead", "seed", "settings")

Setting = str | int | bool


@dataclass(slots=True)
class Position:
    """The lowest step that was not handed out yet, and the steps after it that were (``in_order=False``)."""

    epoch: int = 0
    step: int = 0
    ahead: set[int] = field(default_factory=set)

    @property
    def is_inside(self) -> bool:
        """Whether some of its epoch was handed out."""
        return bool(self.step or self.ahead)

    def took(self, step: int, step_count: int) -> None:
        """A step was handed out; after the last one the position is the next epoch's beginning."""
        if step != self.step:
            self.ahead.add(step)
        else:
            self.step += 1
            while self.ahead and self.step in self.ahead:
                self.ahead.remove(self.step)
                self.step += 1
        if self.left(step_count) == 0:
            self.epoch, self.step, self.ahead = self.epoch + 1, 0, set()

    def left(self, step_count: int) -> int:
        """How many steps of the epoch are to be handed out."""
        return step_count - self.step - len(self.ahead)

    def copy(self) -> Position:
        """Another one at the same place."""
        return Position(self.epoch, self.step, set(self.ahead))


@dataclass(frozen=True, slots=True)
class State:
    """What a checkpoint keeps of a loader."""

    position: Position
    seed: int | None
    """None where ranks have yet to agree on one."""
    settings: dict[str, Setting]
    """All that decides which batches there are; empty where it is not known yet how many samples there are."""
    is_loaded: bool = False
    """It is what a checkpoint kept, and nothing was taken since."""

    @classmethod
    def of_epoch(cls, epoch: int = 0) -> Self:
        """An epoch's beginning."""
        return cls(Position(epoch), None, {})

    def turned_to(self, epoch: int) -> State:
        """Where the next iteration begins once ``set_epoch(epoch)`` was called: at that epoch's beginning.

        But whoever loads a checkpoint wants what is left, and names the epoch in which it was saved as well: the one
        that it is inside of, or the one that had just ended.
        """
        here = self.position
        saved_in = (here.epoch,) if here.is_inside else (here.epoch, here.epoch - 1)
        if self.is_loaded and epoch in saved_in:
            return self
        return replace(self, position=Position(epoch), is_loaded=False)  # the seed that was loaded stays

    def to_dict(self) -> dict[str, int | str]:
        """Flat, and always with the same keys, as some checkpoint formats need it."""
        return {
            "swift_loader": _FORMAT,
            "epoch": self.position.epoch,
            "step": self.position.step,
            "ahead": _ranges(sorted(self.position.ahead)),
            "seed": "" if self.seed is None else self.seed,
            "settings": json.dumps(self.settings) if self.settings else "",
        }

    @classmethod
    def from_dict(cls, state: object) -> Self:
        """Reads what `to_dict` has written.

        Raises:
            ConfigError: if it is something else.
        """
        if not isinstance(state, Mapping):
            raise ConfigError(f"a state is what loader.state_dict() has given, not a {type(state).__name__}")
        if missing := [key for key in _KEYS if key not in state]:
            raise ConfigError(f"a state is what loader.state_dict() has given; this one lacks {', '.join(missing)}")
        if state["swift_loader"] != _FORMAT:
            raise ConfigError(
                f"the state is of format {state['swift_loader']!r}, and this version of swift_loader reads {_FORMAT}"
            )
        try:
            position = Position(int(state["epoch"]), int(state["step"]), _steps(state["ahead"]))
            seed = None if state["seed"] == "" else int(state["seed"])
            settings = json.loads(state["settings"]) if state["settings"] else {}
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the state of the loader is damaged: {error}") from error
        return cls(position, seed, settings, is_loaded=True)

    def refuse_other(self, settings: Mapping[str, Setting]) -> None:
        """Compares with the settings of the loader that is to go on from here.

        Raises:
            ConfigError: if it would give other batches.
        """
        saved, here = _comparable(self.settings), _comparable(settings)
        differences = [
            f"{name} was {saved.get(name)!r} and is {here.get(name)!r}"
            for name in {**saved, **here}
            if saved and saved.get(name) != here.get(name)
        ]
        if differences:
            raise ConfigError(
                f"the state does not fit this loader: {'; '.join(differences)}. Set the loader as it was, or begin anew"
            )


def _comparable(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Elastic batches are cut from one order: which consumer gets what of a step is not the state's business."""
    if not settings.get("elastic"):
        return dict(settings)
    folded = {name: value for name, value in settings.items() if name not in ("batch_size", "nb_consumer")}
    return {**folded, "batch_size * nb_consumer": int(settings["batch_size"]) * int(settings["nb_consumer"])}


def _ranges(steps: list[int]) -> str:
    """Sorted steps as "7-9,12": workers run ahead in runs, so there are few of them however many the steps."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][1] + 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def _steps(ranges: str) -> set[int]:
    steps: set[int] = set()
    for run in ranges.split(",") if ranges else ():
        first, _, last = run.partition("-")
        steps.update(range(int(first), int(last or first) + 1))
    return steps
