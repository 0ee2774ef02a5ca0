"""Bytes, times, shares, rates and counts: one way to tell each, on every page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.telemetry import words


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (0, 1000, "0 B"), (999, 1000, "999 B"), (1200, 1000, "1.2 kB"), (4_000_000, 1000, "4 MB"),
        (999_999, 1000, "1 MB"), (123_400, 1000, "123 kB"), (2.5e12, 1000, "2.5 TB"), (7.2e15, 1000, "7,200 TB"),
        (65536, 1024, "64 kB"), (32 << 30, 1024, "32 GB"), (3 << 29, 1024, "1.5 GB"),
    ],
)  # fmt: skip
def test_bytes(count: float, unit: int, text: str):
    assert words.nbytes(count, unit) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3e-6, "3.0 us"),
        (1.5e-3, "1.5 ms"),
        (0.25, "250 ms"),
        (1, "1.0 s"),
        (75, "75.0 s"),
        (360_000, "100 h"),
    ],
)
def test_what_something_took(value: float, text: str):
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0.0 s"), (9.96, "10 s"), (99, "99 s"), (600, "10 min"), (9000, "2 h"), (1e6, "12 d")]
)
def test_for_how_long_something_lasts(value: float, text: str):
    assert words.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.123456, "0.123"), (9.5, "9.5"), (25, "25.0"), (99.94, "99.9"), (1524.4, "1,524")]
)
def test_rates(value: float, text: str):
    assert words.number(value) == text


def test_counts():
    assert [words.counted(count, "batch") for count in (0, 1, 2000)] == ["0 batches", "1 batch", "2,000 batches"]
    assert words.counted(2, "piece of advice", "pieces of advice") == "2 pieces of advice"


@given(st.floats(min_value=0, max_value=1e12))
def test_no_figure_is_wider_than_its_column(value: float):
    assert len(words.seconds(value)) <= 7
    assert len(words.duration(min(value, 1e9))) <= 7
