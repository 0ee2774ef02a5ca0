"""What users test their own datasets and training with: checks, faults, and the proof that nothing was lost.

    check_dataset(Images, {"folder": "train"}).assert_ok()     all checks, one page
    Faulty(dataset, {13: "segfault"})                          a dataset with faults at chosen samples
    Nemesis(loader, seed=1)                                    kills and stops a running loader's workers
    differences(record(loader), expected)                      what a run delivered, against what it should have

Knows nothing of pytest: the functions are called from any test, or from none. The names are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swift_loader.testing.check import check_dataset
    from swift_loader.testing.faulty import Faulty, InjectedFault
    from swift_loader.testing.nemesis import Nemesis
    from swift_loader.testing.oracle import Delivered, delivered, differences, record
    from swift_loader.testing.report import Finding, Report

__all__ = [
    "Delivered",
    "Faulty",
    "Finding",
    "InjectedFault",
    "Nemesis",
    "Report",
    "check_dataset",
    "delivered",
    "differences",
    "record",
]

_HOMES = {
    "check_dataset": "check",
    "Faulty": "faulty",
    "InjectedFault": "faulty",
    "Nemesis": "nemesis",
    "Delivered": "oracle",
    "delivered": "oracle",
    "differences": "oracle",
    "record": "oracle",
    "Finding": "report",
    "Report": "report",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'swift_loader.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"swift_loader.testing.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
