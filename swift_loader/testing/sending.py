"""Whether the dataset can be sent to workers: as it will be, and how much of it each of them has for itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from swift_loader.telemetry import words
from swift_loader.testing.lab import Lab
from swift_loader.testing.report import Finding
from swift_loader.testing.walk import first_line
from swift_loader.travel.payload import Packed, Unsendable, pack

NAME = "sending"
_LARGE_NBYTES = 100_000_000
_DEPTH, _MOST = 6, 5
_REMEDY = (
    "open it in __init__ (each worker builds its own, of dataset_class and dataset_kwargs) or at first use, or leave "
    "it out in __getstate__"
)


def check(lab: Lab) -> Iterator[Finding]:
    """Packs all that a worker would be sent. In this process, where it will be done: only the time is bounded."""
    if lab.subject.config.start_method == "fork":
        yield Finding(NAME, "ok", "nothing is sent: start_method='fork' copies this process")
        return
    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.append(_sent(lab.subject.recipe)), name="swift-pack", daemon=True)
    thread.start()
    thread.join(timeout=lab.patience_s)
    if not outcome:
        yield Finding(NAME, "problem", f"it takes more than {lab.patience_s:.0f} s to pickle", _REMEDY)
        return
    sent = outcome[0]
    if isinstance(sent, Unsendable):
        yield _unsendable(lab, sent)
        return
    packed, nbytes, seconds = sent
    way = "by value" if packed.is_by_value else "by pickle"
    text = f"{words.nbytes(nbytes)} {way}, in {words.seconds(seconds)}"
    figures = {"nbytes": nbytes, "stream_nbytes": packed.stream_nbytes, "seconds": seconds}
    if packed.stream_nbytes > _LARGE_NBYTES:
        yield Finding(
            NAME, "advice", f"{text}, of which every worker makes {words.nbytes(packed.stream_nbytes)} for itself",
            "keep it in arrays (of numbers, or of text: np.array(paths)) or tensors, which workers share; or set "
            "share_dataset=True", figures=figures,
        )  # fmt: skip
    elif nbytes > _LARGE_NBYTES:
        yield Finding(
            NAME, "advice", f"{text}: every start copies it",
            "give the class and its arguments and load in __init__, with share_dataset=True where workers should "
            "share one copy", figures=figures,
        )  # fmt: skip
    else:
        yield Finding(NAME, "ok", text, figures=figures)


def _sent(value: Any) -> tuple[Packed, int, float] | Unsendable:
    begun = perf_counter()
    try:
        packed = pack(value)
    except Unsendable as error:
        return error
    try:
        return packed, os.fstat(packed.fd).st_size, perf_counter() - begun
    finally:
        os.close(packed.fd)


def _unsendable(lab: Lab, error: Unsendable) -> Finding:
    source, config = lab.subject.source, lab.subject.config
    roots = {
        "dataset_class": source.dataset_class,
        "dataset_kwargs": source.dataset_kwargs,
        "dataset": source.dataset,
        "collate_fn": config.collate_fn,
        "worker_init": config.worker_init,
        "batch_encoder": config.batch_encoder,
        "plan": config.plan,
    }
    guilty = [text for path, value in roots.items() for text in _guilty(value, path, set())]
    told = "; ".join(guilty[:_MOST]) or first_line(str(error))
    return Finding(NAME, "problem", f"it cannot be sent to workers: {told}", _REMEDY, detail=str(error))


def _guilty(value: Any, path: str, above: set[int]) -> list[str]:
    """The innermost parts that cannot be sent."""
    if id(value) in above or not isinstance(_sent(value), Unsendable):
        return []
    above = above | {id(value)}
    parts = _parts(value, path) if len(above) <= _DEPTH else {}
    return [words for at, part in parts.items() for words in _guilty(part, at, above)] or [
        f"{path} is a {type(value).__name__}"
    ]


def _parts(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return {f"{path}[{key!r}]": part for key, part in value.items()}
    if isinstance(value, list | tuple):
        return {f"{path}[{place}]": part for place, part in enumerate(value)}
    cells = getattr(value, "__closure__", None)
    if cells:
        return {
            f"{path}'s {name}": cell.cell_contents for name, cell in zip(value.__code__.co_freevars, cells, strict=True)
        }
    return {
        f"{path}.{name}": part for name, part in getattr(value, "__dict__", {}).items() if not isinstance(value, type)
    }
