"""Texts for users have the field's words: what only this house says is refused, with the word that a reader knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "swift_loader" / "docs"
#: The decisions are for those who read the code, whose words they use.
PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md")], key=str)
PAGES.remove(DOCS / "decisions.md")

#: What is not to be written -> what to write.
REFUSED = {
    r"(?:is|are|was|were|be|been) told\b(?! (?:from|apart))": "reported, shown, printed, logged",
    r"\btells\b": "shows, reports",
    r"what is told": "figures, output",
    r"\bso many\b": "the number, or: this many",
    r"\bso often\b": "the number of times",
    r"\bbears? (?:threads|it|that)\b": "thread-safe",
    r"\b(?:come|coming) (?:out )?even\b": "the same number of steps",
    r"\b(?:goes|go|went) home\b": "is returned to the pool",
    r"\b(?:land|lands|landed|landing)\b": "deliver; move to the device",
    r"\bparcels?\b": "finished batch",
    r"\bslots?\b": "shared-memory buffer",
    r"\bwhat is kept\b": "cached samples",
    r"\blean interpreter\b": "fork server",
    r"\bfront doors?\b": "interface",
}
_NOT_PROSE = re.compile(r"^```.*?^```|<!--.*?<!--[^>]*-->|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def prose_of(text: str) -> str:
    """Without code, what the program prints, and tables that a benchmark writes."""
    return _NOT_PROSE.sub("", text)


def found_in(prose: str) -> list[str]:
    """Each place, with what to write instead."""
    return [
        f"...{prose[max(0, found.start() - 40) : found.end() + 20]!r}: write {instead!r}"
        for words, instead in REFUSED.items()
        for found in re.finditer(words, prose, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_for_users_has_the_words_of_the_field(page: Path):
    assert not found_in(prose_of(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_that_says_consumer_says_once_that_it_is_a_rank(page: Path):
    prose = prose_of(page.read_text(encoding="utf-8"))
    if found := re.search(r"\bconsumers?\b", prose, re.IGNORECASE):
        assert re.search(r"\bran?ks?\b", prose[: found.end() + 80], re.IGNORECASE)


def test_a_word_of_the_house_would_be_seen():
    assert len(found_in("It is told that the\nslot goes home after so many batches.")) == 4
    assert found_in(prose_of("```\na slot\n```\n`is told`\n<!-- a -->\n| a slot |\n<!-- end -->\nfine")) == []
