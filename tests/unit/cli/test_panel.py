"""What `swift-loader top` prints: true, at most 80 columns wide, and harmless to a terminal."""

from __future__ import annotations

import pytest

from swift_loader.cli.boards import Found, in_order
from swift_loader.cli.panel import figures_of, lines_of, part_of
from swift_loader.cli.top import _move_of
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


def test_what_was_fetched_from_a_store_is_a_line():
    assert "  store: 8 requests for 8 MB\n" in page(shown(store="8 requests for 8 MB")) + "\n"
    assert "store" not in page(shown())


def test_a_server_stands_where_a_worker_does_with_how_far_it_is():
    text = page(shown(workers=[worker(0, server="tcp://far:5557", transit_s=0.0123), worker(1, server="unix:/here")]))
    assert "       0    1000  tcp://far:5557, 12.3 ms away                  -" in text
    assert "       1    1001  unix:/here: fetches                           -" in text


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
    assert "1 batch so far; the consumer works" in page(shown(recent_batches=0, batches=1))


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


def short(*loaders: object, width: int = 80) -> list[str]:
    return lines_of([Found(4242, 7, one) for one in loaders], 100 * S, width, height=22)


def test_four_ranks_fit_a_terminal_whose_workers_are_summed_up():
    idle = [worker(number, stage="waits", index=-1, ordered=0) for number in range(3)]
    stuck = shown(consumer=2, workers=[*idle, worker(3, index=100, still_s=12.4)], is_waiting=True)
    ranks = [shown(consumer=n, workers=[worker(i) for i in range(4)]) for n in range(2)]
    lines = short(*ranks, stuck, shown(consumer=3, last=["DataError: " + "word " * 40]))
    assert len(lines) <= 22
    assert sum("batches/s" in line for line in lines) == 4
    assert "  4 workers (worker 3 still 12 s, fetches sample 100): 3 idle, 1 fetches" in lines
    assert lines.count("  4 workers: 4 fetch") == 2
    assert sum(line.startswith("  ! DataError: word") and line.endswith(" ...") for line in lines) == 1
    assert max(map(len, lines)) <= 80
    assert any("waits for an order" in line for line in short(stuck))  # alone it has room


def test_what_does_not_fit_is_scrolled_to():
    lines = [f"line {number}" for number in range(30)]
    assert part_of(lines, 0, 30, 80) == (lines, 0)
    part, first = part_of(lines, 3, 10, 80)
    assert part == [*lines[3:12], "lines 4-12 of 30; j, k and arrows scroll"]
    assert first == 3
    assert part_of(lines, 10**6, 10, 80) == ([*lines[21:], "lines 22-30 of 30; j, k and arrows scroll"], 21)
    assert part_of(lines, -5, 10, 80)[1] == 0
    assert part_of(lines, 0, 10, 12)[0][-1] == "lines 1-9 of"


@pytest.mark.parametrize(
    ("typed", "move"),
    [
        (b"jjj", 3), (b"\033[B\033OBk", 1), (b"\033[A", -1), (b" j", 21), (b"\033[5~", -20), (b"x\033", 0),
        (b"jq", None), (b"Q", None), (b"", None),
    ],
)  # fmt: skip
def test_keys_scroll_or_leave(typed: bytes, move: int | None):
    assert _move_of(typed, 20) == move


def test_jobs_are_not_mixed():
    found = [
        Found(pid, 7, shown(consumer=consumer, consumer_count=count), job)
        for pid, consumer, count, job in [
            (40, 1, 2, 30), (41, 0, 2, 30), (42, 1, 2, 31), (43, 0, 2, 31), (50, 0, 1, 20), (51, 0, 1, 20)
        ]
    ]  # fmt: skip
    assert [one.pid for one in in_order(found)] == [50, 51, 41, 40, 43, 42]


def test_one_batch_more_than_is_kept_does_not_leave_the_bar():
    assert "ready [##########] 10/10" in page(shown(ready=11))


@pytest.mark.parametrize(
    ("given", "width", "line"),
    [
        ({}, 61, "  12.5 batches/s  400 samples/s  starved 25%  works for 0.0 s"),
        ({}, 60, "  12.5 batches/s  starved 25%  works for 0.0 s"),
        ({"recent_batches": 123450, "recent_samples": 987654320, "recent_nbytes": 10**12, "since_ns": 30 * S}, 80,
         "  12,345 batches/s  98,765,432 samples/s  100 GB/s  starved 25%  works for 70 s"),
        ({"recent_batches": 123450, "recent_samples": 98765432100, "recent_nbytes": 10**12, "since_ns": 30 * S}, 80,
         "  12,345 batches/s  9,876,543,210 samples/s  starved 25%  works for 70 s"),
    ],
)  # fmt: skip
def test_rates_that_do_not_fit_are_left_out_whole(given: dict, width: int, line: str):
    assert line in page(shown(**given), width=width).splitlines()


def test_texts_of_other_processes_cannot_steer_the_terminal():
    nasty = "\033[2J\033]0;title\007\r\n\u202edone\x9b31m"
    text = page(shown(dataset=nasty, last=[nasty], workers=[worker(0, state=nasty, last_death=nasty, deaths=1)]))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len(text.splitlines()) == 7
