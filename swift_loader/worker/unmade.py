"""Why a batch is not made: it is not wanted any more, or it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swift_loader.errors import FailureReport


class TakenBack(Exception):
    """The consumer does not want this batch any more."""


class MakeFailed(Exception):
    """The batch cannot be made."""

    def __init__(self, report: FailureReport) -> None:
        super().__init__(report.describe())
        self.report = report
