"""The documents tell the truth about what is in the tree: their links lead somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import swift_loader

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = ("README.md", "swift_loader/README.md", "CHANGELOG.md")
DOCUMENTS = sorted(
    {
        *REQUIRED,
        *(
            str(path.relative_to(ROOT))
            for room in ("", "swift_loader", "swift_loader/docs", "examples", "benchmarks", "tests")
            for path in (ROOT / room).glob("*.md")
        ),
    }
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _links(text: str) -> list[str]:
    return LINK.findall(FENCED.sub("", text))


def _anchors(text: str) -> set[str]:
    """The names that headings get: lower case, spaces as hyphens, punctuation gone."""
    headings = re.findall(r"^#+\s+(.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_links_of_a_document_lead_somewhere(name: str):
    document = ROOT / name
    dead = []
    for link in _links(document.read_text()):
        target, _, anchor = link.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        place = (document.parent / target) if target else document
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in _anchors(place.read_text())):
            dead.append(link)
    assert not dead


def test_a_dead_link_would_be_seen():
    assert _links("see [a](b.md#c) and ![d](e.png 'title')\n```\n[not](one)\n```\n") == ["b.md#c", "e.png"]
    assert _anchors("# The House, whole\n\n## 2. Words\n") == {"the-house-whole", "2-words"}


def test_the_changelog_has_unreleased_on_top():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"


def test_the_requirements_are_pinned_and_torch_comes_first():
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0].startswith("torch==")
    assert lines[-1] == "-e .[all]"
    assert all("==" in line for line in lines[:-1])


def test_the_version_is_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == swift_loader.__version__
