"""The numbered decisions: none is lost, none has two places, and the index at the top leads to each."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "swift_loader" / "docs"
PAGE = (DOCS / "decisions.md").read_text(encoding="utf-8")
#: As many as there were when the page was begun; it only grows.
LEAST = 119


def _rooms() -> dict[str, list[int]]:
    """The numbers under each heading."""
    _, *parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return {
        heading: [int(number) for number in re.findall(r"^\*\*(\d+)\. ", text, re.MULTILINE)]
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_every_number_has_one_place():
    numbers = sorted(number for room in _rooms().values() for number in room)
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= LEAST


def test_the_index_is_that_of_the_page():
    lines = re.findall(r"^\| \[(.+?)\]\(#.+?\) \| ([\d, ]+) \|$", PAGE, re.MULTILINE)
    assert {heading: [int(number) for number in numbers.split(", ")] for heading, numbers in lines} == _rooms()


def test_a_rooms_decisions_stand_in_their_order():
    assert all(numbers == sorted(numbers) for numbers in _rooms().values())


def test_the_map_leads_to_every_room():
    house = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _rooms()}
    assert anchors == set(re.findall(r"\(docs/decisions\.md#([\w-]+)\)", house))
