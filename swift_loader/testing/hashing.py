"""Whether the dataset is the same whatever seed Python gives the hashes of texts, which is another in each job."""

from __future__ import annotations

import os
from collections.abc import Iterator

from swift_loader.testing.determinism import differing, told
from swift_loader.testing.lab import Lab
from swift_loader.testing.report import Finding, Verdict
from swift_loader.testing.walk import Blocked, Walk

NAME = "hashing"
#: A set of two texts has the same order under half of all seeds, so one more would be too few.
_OTHERS = 2
_REMEDY = (
    "sort what comes out of a set (sorted(names)), and take zlib.crc32(text.encode()) or hashlib in place of "
    "hash(text); or set PYTHONHASHSEED for every process of every run"
)


def check(lab: Lab) -> Iterator[Finding]:
    """Compares what interpreters with different seeds of hashes make."""
    here = lab.closely()
    if not here.of(0):
        raise Blocked("no sample came")
    by_chance = differing(here.of(0), [*here.of(0), *lab.apart().of(0)])
    # Who has set it for his jobs has seen to it.
    verdict: Verdict = "advice" if os.environ.get("PYTHONHASHSEED", "random") != "random" else "problem"
    for other in range(_OTHERS):
        if found := _differences(here, lab.hashed(other), by_chance):
            built = lab.builds[0]
            code = f". Its code has {', '.join(built.hashes[:2])}" if built.hashes else ""
            yield Finding(NAME, verdict, f"{found} with another PYTHONHASHSEED{code}", _REMEDY)
            return
    text = f"the same whatever PYTHONHASHSEED is ({len({one.index for one in here.of(0)})} samples)"
    yield Finding(NAME, "ok", f"{text}, but for what depends on chance anyway" if by_chance else text)


def _differences(here: Walk, there: Walk, by_chance: dict[str, list[int]]) -> str:
    if not there.seen:
        raise Blocked("no sample came")
    lengths = here.seen[0].built.length, there.seen[0].built.length
    if lengths[0] != lengths[1]:
        return f"len() is {lengths[0]:,}, and {lengths[1]:,}"
    other = {path: at for path, at in differing(here.of(0), there.of(0)).items() if path not in by_chance}
    return f"{told(other)}: not the same" if other else ""
