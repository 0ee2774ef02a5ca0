"""`swift-loader replay --state FILE --step N`: makes one batch of a run again, in this process."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import os
import pdb  # noqa: T100 - what --pdb asks for
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from swift_loader.batch.digest import checksum
from swift_loader.consumer.flight import Place, load
from swift_loader.consumer.replay import Replay
from swift_loader.errors import ConfigError

_SHOWN_INDICES = 16
_SHOWN_TEXT = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "--state", required=True, metavar="FILE", type=Path,
        help="what loader.save_replay() has written, or what an error names; it is run, so it must be yours",
    )  # fmt: skip
    parser.add_argument("--epoch", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--step", type=int, required=True)
    parser.add_argument("--rank", type=int, metavar="R", help="the consumer; by default the one that wrote the file")
    parser.add_argument("--pdb", action="store_true", help="what is raised is looked at in a debugger")


def run(arguments: argparse.Namespace) -> int:
    """Prints what is in the batch; 1 if it cannot be made, 2 if there is no such batch."""
    if not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__ or 2)  # a sample may be one that ends its process
    try:
        recipe = load(arguments.state, _go)
        if arguments.rank is not None:
            if not 0 <= arguments.rank < recipe.config.consumer_count:
                raise ConfigError(f"--rank must be from 0 to {recipe.config.consumer_count - 1}, not {arguments.rank}")
            recipe = dataclasses.replace(recipe, consumer=arguments.rank)
        with Replay(recipe) as replay:
            indices = replay.indices(arguments.epoch, arguments.step)
            print(f"consumer {recipe.consumer}, epoch {arguments.epoch}, step {arguments.step}: {_listed(indices)}")
            batch = replay.batch(arguments.epoch, arguments.step)
    except ConfigError as error:
        print(f"swift-loader replay: {error}", file=sys.stderr)
        return 2
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever the dataset raises is what is looked for
        return _told(error, is_debugged=arguments.pdb)
    for line in lines_of(batch):
        print(line)
    return 0


def lines_of(batch: Any) -> Iterator[str]:
    """What is in a batch, a line for each leaf, and a digest of each to compare with another's."""
    leaves = list(_leaves(batch, ""))
    width = max((len(path) for path, _ in leaves), default=0)
    for path, leaf in leaves:
        yield f"  {path or 'batch':<{width}}  {_described(leaf)}"


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple) and any(hasattr(item, "dtype") for item in value):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}[{number}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _leaves(getattr(value, field.name), f"{path}.{field.name}")
    else:
        yield path, value


def _described(leaf: Any) -> str:
    if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
        text = repr(leaf)
        return text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 3] + "..."
    return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}{_spread(leaf)}  checksum {checksum(leaf):08x}"


def _spread(leaf: Any) -> str:
    with contextlib.suppress(Exception):  # of no numbers, or of none that can be compared
        return f"  from {leaf.min().item():.6g} to {leaf.max().item():.6g}"
    return ""


def _listed(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:_SHOWN_INDICES]))
    more = len(indices) - _SHOWN_INDICES
    return f"{len(indices)} samples: {shown}{f' and {more} more' if more > 0 else ''}"


def _go(place: Place) -> None:
    """To where the run was: its modules come before those of this command."""
    known = set(sys.path)
    sys.path[:0] = [entry for entry in place.path if entry not in known]
    try:
        os.chdir(place.folder or ".")
    except OSError as error:
        print(f"the run was in {place.folder}, which cannot be gone to: {error.strerror}", file=sys.stderr)


def _told(error: BaseException, *, is_debugged: bool) -> int:
    """Prints what was raised where it was raised, without our own frames around it."""
    raised = error.__cause__ or error
    traceback.print_exception(type(raised), raised, _of_the_user(raised.__traceback__))
    print(f"\n{type(error).__name__}: {error}", file=sys.stderr)
    if is_debugged:
        pdb.post_mortem(raised.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _of_the_user(first: TracebackType | None) -> TracebackType | None:
    """From the first frame that is not ours on."""
    home = str(Path(__file__).parents[1])
    found = first
    while found is not None and found.tb_frame.f_code.co_filename.startswith((home, "<swift")):
        found = found.tb_next
    return found or first
