"""Charts and pages: they stand by themselves, and what a user has named stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from swift_loader.cli import chart, results
from swift_loader.cli.chart import Bar, Panel
from swift_loader.cli.page import Page, Table, as_html

pytestmark = pytest.mark.usefixtures("_fonts_are_open")

BARS = [Bar("2 <workers>", 24.0, "24", 23.0, 25.0, is_marked=True), Bar("3", 24.5, "24.5")]
PANELS = [
    Panel("batches/s", BARS, 25.0, "most"),
    Panel("memory", [Bar("a", None, "not measured"), Bar("b", 0.0, "0")]),
]
TABLE = Table(("workers", "rate"), (("2", "<24>"), ("3", "24.5")), 0)
PAGE = Page("Workers for <Images>", "2 & no more", "", TABLE, "f(a < b)", ("a <note>",), "60 s")


class Outside(HTMLParser):
    """Whatever would be fetched from elsewhere, and the tags that were left open."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.found += [f"{tag} {name}={value}" for name, value in attributes if name in ("src", "href")]
        self.found += [tag] if tag in ("script", "link", "iframe", "img") else []

    def handle_startendtag(self, tag: str, attributes: list) -> None:
        self.found += [f"{tag} {name}={value}" for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def whole() -> str:
    return as_html(PAGE._replace(svg=chart.svg(PANELS)))


def test_a_page_fetches_nothing_and_is_well_formed(whole: str):
    outside = Outside()
    outside.feed(whole)
    assert outside.open == []
    assert outside.found == []
    assert "@import" not in whole
    assert re.findall(r"url\((?!#)", whole) == []


def test_what_was_named_stays_text(whole: str):
    assert "<Images>" not in whole
    assert "<24>" not in whole
    for text in ("Workers for &lt;Images&gt;", "2 &amp; no more", "&lt;24&gt;", "f(a &lt; b)", "a &lt;note&gt;"):
        assert text in whole
    assert "2 &lt;workers&gt;" in whole


def test_every_colour_of_the_chart_is_the_pages_which_has_two_sets(whole: str):
    drawn = chart.svg(PANELS)
    assert re.findall(r"#[0-9a-fA-F]{6}", drawn) == []
    for name in set(re.findall(r"var\((--\w+)\)", drawn)):
        assert whole.count(f"{name}: #") == 2
    assert "prefers-color-scheme: dark" in whole


def test_a_chart_is_a_picture_and_the_same_each_time():
    assert chart.png(PANELS).startswith(b"\x89PNG\r\n")
    assert chart.svg(PANELS) == chart.svg(PANELS)


def test_results_are_for_this_user_alone_and_a_folder_that_cannot_be_is_told(tmp_path, capsys):
    assert results.write(tmp_path / "new", "tune", {"a": 1}, PANELS, PAGE)
    written = sorted((tmp_path / "new").iterdir())
    assert [path.name for path in written] == ["tune.html", "tune.json", "tune.png"]
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    assert "<svg" in written[0].read_text()
    (tmp_path / "file").write_text("")
    assert not results.write(tmp_path / "file", "tune", {"a": 1}, PANELS, PAGE)
    assert "name another folder with --out" in capsys.readouterr().err
