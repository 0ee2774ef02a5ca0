"""The page on arguments: every argument has one row, with the default that it has."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest

from swift_loader.settings import arguments
from tests.api.argument_table import DESIGNED, REQUIRED

PAGE = Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "arguments.md"
#: Defaults that follow from other things, so that the page has words for them.
IN_WORDS = {
    "seed": "drawn once",
    "seed_numer": "",
    "seed_number": "",
    "data_queue_size": "10, fewer where batches are large",
    "max_buffer_size": "max(2, data_queue_size // worker_per_consumer), with 10 where it was not given",
    "collate_fn": "arrays and numbers become tensors of shape (B, ...), str, bytes and None lists",
    "batch_encoder": "pickle, large buffers out of band",
    "batch_decoder": "pickle, large buffers out of band",
    "nearby_shuffle": "5 * batch_size",
    "even": '"balance", or "none" without shuffling',
    "memory_budget": "half of what is free, divided by the ranks",
    "max_batch_nbytes": "a quarter of memory_budget",
}


def rows(text: str) -> list[tuple[str, str]]:
    """Each argument and what stands in its column of defaults, without the marks."""
    tables = [table.partition("\n\n")[0] for table in text.split("| argument |")[1:]]
    found = [re.findall(r"^\| (`.+?`) \| (.*?) ?\| ", table, re.MULTILINE) for table in tables]
    return [
        (name, default.replace("`", ""))
        for table in found
        for names, default in table
        for name in re.findall(r"`(\w+)`", names)
    ]


def meanings(text: str) -> dict[str, str]:
    """What the column of meanings says of each argument, without links."""
    tables = [table.partition("\n\n")[0] for table in text.split("| argument |")[1:]]
    found = [re.findall(r"^\| (`.+?`) \| .*? ?\| (.*) \|$", table, re.MULTILINE) for table in tables]
    return {
        name: re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", meaning)
        for table in found
        for names, meaning in table
        for name in re.findall(r"`(\w+)`", names)
    }


def docstrings(code: str) -> dict[str, str]:
    """The text that stands below each annotated name of a class, on one line, without its full stop."""
    (body,) = (node.body for node in ast.parse(code).body if isinstance(node, ast.ClassDef))
    return {
        name.target.id: " ".join(text.value.value.split())[:-1]
        for name, text in itertools.pairwise(body)
        if isinstance(name, ast.AnnAssign)
        and isinstance(name.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def test_what_an_editor_shows_of_an_argument_is_what_the_page_says():
    page, shown = meanings(PAGE.read_text()), docstrings(Path(arguments.__file__).read_text())
    assert set(shown) == set(DESIGNED)
    of_the_page = {name: page[name][0].upper() + page[name][1:] for name in shown}
    assert shown == of_the_page


def test_every_argument_has_one_row():
    assert sorted(name for name, _ in rows(PAGE.read_text())) == sorted([*DESIGNED, *REQUIRED, "shuffle"])


@pytest.mark.parametrize("name", [*DESIGNED, *REQUIRED, "shuffle"])
def test_the_default_of_an_argument_is_the_one_that_it_has(name: str):
    told = dict(rows(PAGE.read_text()))[name]
    if name in REQUIRED:
        assert told == "required"
    elif name in IN_WORDS:
        assert told == IN_WORDS[name]
    else:
        assert ast.literal_eval(told) == {**DESIGNED, "shuffle": True}[name]


def test_words_stand_only_where_there_is_no_plain_default():
    plain = {name for name in IN_WORDS if DESIGNED[name] is not None and not callable(DESIGNED[name])}
    assert plain == {"data_queue_size"}


def test_a_row_is_read_with_all_its_names():
    head = "| argument | default | meaning |\n|---|---|---|\n"
    table = f"{head}| `a`, `b` | `1` | c |\n| `d` | | `e` |\n\n| `f` | 1 | g |\n"
    assert rows(table) == [("a", "1"), ("b", "1"), ("d", "")]
