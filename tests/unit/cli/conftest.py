"""What several tests of commands need."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def _fonts_are_open() -> None:
    """matplotlib keeps the fonts that it has drawn with open, for as long as the process lives."""
    from swift_loader.cli import chart

    chart.png([chart.Panel("title", [chart.Bar("label", 1.0, "text")])])
