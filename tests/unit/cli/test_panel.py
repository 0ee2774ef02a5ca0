"""What `swift-loader top` prints: true, at most 80 columns wide, and harmless to a terminal."""

from __future__ import annotations

import pytest

from swift_loader.cli.boards import Found
from swift_loader.cli.panel import figures_of, lines_of
from tests.shown import S, shown, worker

HOLDERS = ("slots_free", "slots_ordered", "slots_full", "slots_leased")


def page(*loaders: object, width: int = 80, at_s: float = 100.0) -> str:
    return "\n".join(lines_of([Found(4242, 7, one) for one in loaders], int(at_s * S), width))


def test_a_loader_in_full_swing():
    assert page(shown(ready=3, workers=[worker(0), worker(1, stage="waits", index=-1, ordered=0, unmerged=0)])) == (
        "consumer 0 of 1  pid 4242  Images                 epoch 3  step 117/400  up 90 s\n"
        "  12.5 batches/s  400 samples/s  2 MB/s  starved 25%  works for 0.0 s\n"
        "  ready [###.......] 3/10  slots: 2 free, 3 MB\n"
        "  worker     pid  is at                                     still orders  done\n"
        "       0    1000  fetches sample 17                             -      2     1\n"
        "       1    1001  waits for an order                            -      0     0"
    )


def test_no_loaders():
    assert page() == "No loader of yours runs on this machine."


def test_a_consumer_that_waits_now_starves_now():
    stuck = shown(is_waiting=True, since_ns=100 * S)
    assert "starved 62%  waits for 10 s" in page(stuck, at_s=110)
    figures = figures_of(stuck, 110 * S)
    assert (figures.batches_per_s, figures.starved) == (6.25, 0.625)


def test_a_worker_that_stands_still_is_told_with_its_sample_and_how_long():
    text = page(shown(workers=[worker(2, index=1234, still_s=75.4)]))
    assert "       2    1002  fetches sample 1234                        75 s      2     1" in text


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({"state": "starts", "stage": "builds the dataset", "index": -1}, "builds the dataset"),
        ({"pid": 0, "state": "is absent"}, "is absent"),
        ({"state": "was killed"}, "was killed"),
        ({"stage": "sends", "index": -1}, "sends"),
    ],
)
def test_what_else_workers_are_at(given: dict, at: str):
    assert f"  {at} " in page(shown(workers=[worker(0, **given)]))


def test_deaths_and_errors_are_told():
    text = page(shown(workers=[worker(1, deaths=2, last_death="was killed by SIGSEGV")], last=["DataError: bad"]))
    assert "  ! worker 1 was replaced 2 times: was killed by SIGSEGV" in text
    assert text.endswith("  ! DataError: bad")


def test_a_board_that_nobody_writes_is_told_of_only_while_something_should_be_made():
    assert "silent for 20 s" in page(shown(), at_s=120)
    assert "silent" not in page(shown(workers=[worker(0, ordered=0)]), at_s=120)


def test_a_loader_that_is_not_measured_says_so():
    assert "not measured (benchmark=False)" in page(shown(is_measured=False))
    assert "1 batches so far; the consumer works" in page(shown(recent_batches=0, batches=1))


@pytest.mark.parametrize("width", [20, 40, 79, 80, 132])
def test_no_line_is_wider_than_the_terminal(width: int):
    large = 10**15
    everything = shown(
        consumer=1023, consumer_count=1024, dataset="A" * 200, batch_size=10**6, epoch=10**6, step=10**9,
        step_count=10**9, began_ns=-(10**16), since_ns=-(10**16), recent_batches=large, recent_samples=large,
        recent_nbytes=large * 1000, ready=10**4, ready_most=10**4, last=["word " * 100, "x" * 500],
        slots={**dict.fromkeys(HOLDERS, 4096), "slot_bytes": large},
        workers=[worker(n, pid=4194304, index=10**12, still_s=1e6, ordered=99, deaths=9, last_death="d" * 300)
                 for n in (0, 1023)],
    )  # fmt: skip
    lines = page(everything, everything, width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any(line != line.rstrip() for line in lines)


def test_texts_of_other_processes_cannot_steer_the_terminal():
    nasty = "\033[2J\033]0;title\007\r\n\u202edone\x9b31m"
    text = page(shown(dataset=nasty, last=[nasty], workers=[worker(0, state=nasty, last_death=nasty, deaths=1)]))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len(text.splitlines()) == 7
