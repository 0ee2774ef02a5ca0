"""The report says who waited for whom, in figures and in one sentence."""

from __future__ import annotations

import pytest

from swift_loader.cli.verdict import Consumer, sentence, table


def test_the_table_has_a_line_per_consumer_within_80_columns():
    huge = Consumer(batches=1_234_567, samples=98_765_432, wait_s=12_345.678, busy_s=98_765.4321)
    lines = table([Consumer(690, 22_080, 0.5, 9.5), huge]).splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
    assert len(set(map(len, lines))) == 1
    assert lines[2].split() == ["0", "690", "2,208", "0.50", "s", "5.0%", "9.50", "s", "95.0%"]


def test_a_consumer_that_did_nothing_is_shown_as_such():
    assert "0.00 s   0.0%" in table([Consumer(0, 0, 0.0, 0.0)])
    assert sentence([Consumer(0, 0, 0.0, 0.0)]) == "Nothing was loaded."


@pytest.mark.parametrize(
    ("wait_s", "said"),
    [
        (0.1, "The data waited for the model: consumer 1, which waited most, waited 1.0% of its time for data."),
        (2.0, "The model waited a little: consumer 1 waited 20.0% of its time for data."),
        (8.0, "The model waited for the data: consumer 1 waited 80.0% of its time."),
    ],
)
def test_the_sentence_is_about_the_consumer_that_waited_most(wait_s: float, said: str):
    assert sentence([Consumer(10, 320, 0.0, 10.0), Consumer(10, 320, wait_s, 10.0 - wait_s)]).startswith(said)


def test_it_reads_what_a_loader_counts():
    statistics = {"epoch": 2.0, "batches": 10.0, "samples": 320.0, "bytes": 1.0, "wait_s": 1.0, "busy_s": 3.0}
    assert Consumer.of(statistics) == Consumer(10, 320, 1.0, 3.0)
    assert Consumer.of(statistics).waited == 0.25
