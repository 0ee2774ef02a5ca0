"""The report fits on 80 columns whatever the figures are, and its verdict says what they mean, and no more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.telemetry import Account, BatchRecord, Standing, rank_table, report
from swift_loader.telemetry.verdict import verdict
from swift_loader.telemetry.words import percent
from tests.unit.telemetry.epochs import MS, a_record, an_account


def epoch(count: int = 100, **changes: int) -> list[BatchRecord]:
    return [a_record(step, **changes) for step in range(count)]


def waiting(workers: int, wait_ms: int, **changes: Any) -> list[BatchRecord]:
    """Workers that fetch for 40 ms without a core, and a consumer that takes 10 ms for each batch."""
    nothing = dict.fromkeys(("collate_ns", "order_wait_ns", "slot_wait_ns", "land_ns", "delay_ns"), 0)
    times = {"fetch_ns": 40 * MS, "cpu_ns": MS, "wait_ns": wait_ms * MS, "busy_ns": 10 * MS}
    return [a_record(step, **{**nothing, **times, "worker": step % workers, **changes}) for step in range(100)]


def test_the_page_tells_throughput_waiting_times_workers_samples_and_memory():
    counted = {"slots_free": 3, "slots_leased": 1, "slots_lost": 0, "slot_bytes": 4_200_000}
    text = report(an_account(epoch(), workers_nbytes=(21_000_000, 26_000_000), counted=counted))
    for part in (
        "swift_loader: epoch 3, consumer 0 of 1, 2 workers",
        "100 batches of 3,200 samples in 2.1 s: 47.6 batches/s, 1,524 samples/s",
        "the consumer waited for data 24 %, landed it 5 %, worked 71 %",
        "where a batch spent its time            mean     p50     p95     p99     max",
        "  worker    wait for an order         2.0 ms  2.0 ms  2.0 ms  2.0 ms  2.0 ms",
        "            serialize batch data           0       0       0       0       0",
        "            transfer to device        500 us",
        "workers busy     67 %, 67 %",
        "slowest samples  7 (2.0 ms)",
        "memory           4 slots of 4.2 MB together, 2 workers with 21 MB to 26 MB of their own",
    ):
        assert " ".join(part.split()) in " ".join(text.split())


def test_an_epoch_that_goes_on_is_told_so_far():
    assert "epoch 3 so far, consumer 0 of 1, no workers" in report(an_account(epoch(), workers=0, is_whole=False))


def test_many_workers_are_told_of_in_one_line():
    records = [a_record(step, worker=step % 40, order_wait_ns=step % 40 * MS) for step in range(400)]
    assert "11 % at least, 20 % median, 91 % at most" in report(an_account(records, workers=40))


def test_caches_are_told_of_where_there_are_any():
    counted = {
        "cache_made": 20.0, "cache_reused": 80.0, "cache_nbytes": 5e9, "cache_hit_rate": 0.8,
        "rotation_made": 10.0, "rotation_reused": 30.0, "rotation_hit_rate": 0.75,
    }  # fmt: skip
    text = report(an_account(epoch(), counted=counted))
    assert "cache            80 % of samples reused, 80 reused, 20 made, holds" in text
    assert "rotation         75 % of samples reused, 30 reused, 10 made" in text
    assert "cache " not in report(an_account(epoch()))


def test_the_verdict_predicts_what_more_workers_bring():
    """Four batches in 40 ms: of these the consumer is busy for 25 ms and waits for 15."""
    records = [
        a._replace(wait_ns=wait, busy_ns=25 * MS) for a, wait in zip(waiting(1, 15), [15 * MS] * 100, strict=True)
    ]
    assert verdict(an_account(records, workers=1, starves="GPU")).startswith(
        "The GPU waited 38 % of the epoch. Fetching takes 100 % of a worker's time. With 2 workers instead of 1 the "
        "wait should fall to about 1 %. Fetching mostly waits"
    )


def test_the_verdict_says_how_little_is_left_where_cores_run_out():
    records = [a._replace(cpu_ns=40 * MS) for a in waiting(2, 30)]
    text = verdict(an_account(records, cores=3.0))
    assert "With 3 workers instead of 2 the wait should fall to about 25 %: then all of the 3 cores are busy;" in text
    assert verdict(an_account(records, cores=2.0)).endswith(
        "More workers would bring nothing: all of the 2 cores are busy; cheaper samples or more cores would help."
    )


def endless(workers: int, cpu_ms: int) -> list[BatchRecord]:
    """Workers that fetch for 40 ms, for a consumer that takes next to nothing for a batch."""
    wait_ms = 40 // max(1, workers)
    records = waiting(max(1, workers), wait_ms) * 4
    return [record._replace(busy_ns=MS // 1000, cpu_ns=cpu_ms * MS) for record in records]


@pytest.mark.parametrize(
    ("workers", "cpu_ms", "cores", "said"),
    [
        (8, 2, 1.0, "With 20 workers instead of 8 throughput should rise from 200 to about 500 batches/s: then the"),
        (2, 2, 1.0, "much (from 50.0 to about 100 batches/s), and so on up to about 20: then the only core is busy;"),
        (0, 1, 8.0, "Each worker should bring about 25.0 batches/s, as far as cores and memory last."),
        (0, 40, 4.0, "With 4 workers instead of none throughput should rise from 25.0 to about 100 batches/s: then"),
        (0, 40, 1.0, "Workers would bring nothing: the only core is busy;"),
        (20, 2, 1.0, "More workers would bring nothing: the only core is busy;"),
    ],
)  # fmt: skip
def test_of_a_consumer_that_takes_no_time_the_verdict_tells_throughput(workers, cpu_ms, cores, said):
    text = verdict(an_account(endless(workers, cpu_ms), workers=workers, cores=cores))
    assert said in text
    assert "wait should fall" not in text


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (150_000_000, "With 3 workers instead of 2 the wait should fall to about 25 %: there is no memory for more."),
        (90_000_000, "More workers would help, but the free memory has no room for them."),
        (None, "With 4 workers instead of 2 the wait should fall to about 1 %."),
    ],
)
def test_no_more_workers_are_recommended_than_memory_has_room_for(free: int | None, said: str):
    tight = an_account(waiting(2, 30), workers_nbytes=(100_000_000, 90_000_000), free_nbytes=free)
    assert said in verdict(tight)


def test_where_fetching_waits_threads_are_recommended_too_and_where_it_computes_they_are_not():
    text = verdict(an_account(waiting(2, 30)))
    assert text.endswith(
        " Fetching mostly waits, so worker_threads=4 would help too, if the dataset bears threads: `swift-loader "
        "check` tells, and `swift-loader tune` finds the best of both."
    )
    assert not any(line.endswith("-") for line in report(an_account(waiting(2, 30))).splitlines())
    assert "worker_threads" not in verdict(an_account(waiting(2, 30), threads=8))
    computing = [record._replace(cpu_ns=40 * MS) for record in waiting(2, 30)]
    assert "With 4 workers instead of 2" in verdict(an_account(computing))
    assert "threads" not in verdict(an_account(computing))


def test_the_verdict_names_others_that_hold_the_cores():
    records = [a._replace(cpu_ns=20 * MS, delay_ns=20 * MS) for a in waiting(2, 30)]
    text = verdict(an_account(records, cores=2.0, others_s=4.0))
    assert "other processes hold 1.0 of the 2 cores." in text


def test_where_nothing_starves_the_verdict_says_what_may_be_saved():
    records = waiting(8, 0, order_wait_ns=40 * MS)
    text = verdict(an_account(records, workers=8))
    assert text == (
        "The consumer waited 0.0 % of the epoch: nothing starves. 4 workers instead of 8 should do, with 1 % of "
        "waiting."
    )
    assert verdict(an_account(waiting(4, 0), workers=4)).endswith("nothing starves. All 4 workers are needed.")
    assert verdict(an_account(waiting(1, 0), workers=1)).endswith("nothing starves.")


FULL = {"slots_free": 0.0, "slots_full": 1.0, "slots_leased": 3.0, "slots_lost": 0.0, "slot_bytes": 4e6}


@pytest.mark.parametrize("most", [4e6, 4.9e6])
def test_where_slots_take_all_memory_that_they_may_the_verdict_does_not_ask_for_workers(most: float):
    short = an_account(waiting(2, 10, slot_wait_ns=20 * MS), counted={**FULL, "slot_bytes_most": most})
    text = verdict(short)
    assert "Workers waited 33 % of their time for memory: keep fewer batches, or raise memory_budget." in text
    assert "instead of" not in text


@pytest.mark.parametrize("counted", [{}, {**FULL, "slot_bytes_most": 5e6}])
def test_slots_that_are_only_made_for_the_first_time_are_no_lack_of_memory(counted: dict[str, float]):
    text = verdict(an_account(waiting(2, 30, slot_wait_ns=20 * MS), counted=counted))
    assert "memory" not in text
    assert "instead of 2 the wait should fall" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"order_wait_ns": 40 * MS}, "had nothing to do for 50 % of theirs: the limit lies between workers and"),
    ],
)
def test_the_verdict_does_not_ask_for_workers_that_would_not_help(changes: dict[str, int], said: str):
    text = verdict(an_account(waiting(2, 10, **changes)))
    assert said in text
    assert "instead of" not in text


def test_stragglers_are_told_apart_from_what_is_slow_for_all():
    records = waiting(8, 10, order_wait_ns=200 * MS)
    records[50:53] = [record._replace(fetch_ns=2000 * MS) for record in records[50:53]]
    assert "slow samples hold up the others; in_order=False" in verdict(an_account(records, workers=8))


def test_without_workers_the_first_ones_are_recommended():
    records = [record._replace(wait_ns=40 * MS) for record in waiting(1, 0)]
    text = verdict(an_account(records, workers=0))
    assert text.startswith("The consumer waited 80 % of the epoch.")
    assert "With 4 workers instead of none the wait should fall to about 1 %." in text


def test_few_batches_have_no_verdict():
    assert verdict(an_account(epoch(9))) == "9 batches are too few for a verdict: it takes 10."
    assert verdict(an_account(epoch(1))) == "1 batch is too few for a verdict: it takes 10."


@pytest.mark.parametrize("others_s", [0.0, 0.02])
def test_an_epoch_that_the_kernels_counts_are_too_coarse_for_has_no_advice(others_s: float):
    brief = waiting(2, 30)[:12]
    assert verdict(an_account(brief, others_s=others_s, cores=1.0)) == (
        "The consumer waited 75 % of the epoch. Fetching takes 100 % of a worker's time. The epoch was too short to "
        "recommend anything."
    )
    assert verdict(an_account(waiting(8, 0)[:12], workers=8)).endswith("nothing starves.")


@pytest.mark.parametrize(("share", "text"), [(0.0, "0.0 %"), (0.004, "0.4 %"), (0.314, "31 %"), (1.0, "100 %")])
def test_shares_have_as_many_digits_as_they_deserve(share: float, text: str):
    assert percent(share) == text


VARIED = (
    "fetch_ns", "collate_ns", "wait_ns", "busy_ns", "order_wait_ns", "slowest_ns", "merge_ns", "cpu_ns", "slot_wait_ns",
    "transfer_ns", "rows", "nbytes",
)  # fmt: skip
costs = st.fixed_dictionaries(dict.fromkeys(VARIED, st.integers(0, 10**14)))
records = st.lists(
    st.builds(
        lambda worker, times, sample: a_record(worker=worker, slowest_index=sample, **times),
        st.integers(0, 300), costs, st.integers(-1, 10**18),
    ), min_size=1, max_size=30,
)  # fmt: skip


@given(records, st.integers(0, 300), st.integers(1, 64), st.floats(0.1, 512), st.floats(0, 1e6))
def test_no_line_is_longer_than_80_columns(some, workers, threads, cores, others):
    counted = {"slots_free": 4000, "slot_bytes": 1e14, "cache_hit_rate": 0.5, "cache_made": 1e12, "cache_nbytes": 1e15}
    account = an_account(
        some, workers=workers, threads=threads, cores=cores, others_s=others, workers_nbytes=(1, 10**12) * 100,
        counted=counted, starves="GPU",
    )  # fmt: skip
    text = report(account)
    assert max(map(len, text.splitlines())) <= 80
    assert "\N{NO-BREAK SPACE}" not in text
    assert not any(word in text for word in ("nan", "inf ", "None"))


def test_the_table_of_ranks_names_the_one_that_sets_the_step():
    rows = [Standing(5, 1200, 22_080.4, 0.02, 0.97, 0.5), None, Standing(5, 1200, 9.5, 0.314, 0.6, 1.0)]
    lines = rank_table(rows).splitlines()
    assert lines[2].split() == ["0", "5", "1,200", "22,080", "2", "%", "97", "%", "50", "%"]
    assert lines[3].split() == ["1", "missing"]
    assert lines[4].split() == ["2", "5", "1,200", "9.5", "31", "%", "60", "%", "100", "%"]
    assert " ".join(lines[6:]) == (
        "Consumer 2 waited most, 31 % of its epoch: the slowest one sets the step for all. Nothing was heard of 1."
    )
    assert max(map(len, lines)) <= 80
    assert rank_table([None, None]) == "No consumer has told of an epoch."


def test_the_table_of_ranks_marks_an_epoch_that_goes_on():
    whole, so_far = Standing(5, 12, 9.5, 0.3, 0.6, 1.0), Standing(6, 3, 9.5, 0.2, 0.6, 1.0, is_so_far=True)
    lines = rank_table([whole, so_far]).splitlines()
    assert [line.split()[1] for line in lines[2:4]] == ["5", "6*"]
    assert " ".join(lines[5:]).endswith("sets the step for all. * so far: that epoch goes on.")


def test_one_of_something_is_told_as_one():
    text = report(an_account([a_record(rows=1)]))
    assert "1 batch of 1 sample in 21.0 ms: 47.6 batches/s" in text
    assert "1 batch is too few for a verdict" in text


def of_a_server(made_ms: int, transit_ms: int, waits_ms: int) -> Account:
    times = {"fetch_ns": made_ms * MS, "collate_ns": 0, "order_wait_ns": waits_ms * MS, "transit_ns": transit_ms * MS}
    records = [
        a_record(step, worker=0, nbytes=40_000_000, wait_ns=39 * MS, busy_ns=MS, land_ns=0, **times)
        for step in range(100)
    ]
    return an_account(records, workers=1, servers={0: "tcp://far:5557"}, dtype="float32")


def test_a_network_that_limits_is_named_with_what_to_send_over_it():
    account = of_a_server(made_ms=10, transit_ms=35, waits_ms=60)
    assert verdict(account) == (
        "The consumer waited 98 % of the epoch. The network limits: 1 GB/s of float32 came; send uint8, where the "
        "values allow it, and convert on the device: a quarter of the bytes."
    )
    page = report(account)
    assert "epoch 3, consumer 0 of 1, 1 worker at 1 server\n" in page
    assert "  network   come over the network    35.0 ms" in page
    assert "server 0         tcp://far:5557: 100 batches, 1 GB/s, 35.0 ms on the way" in page


def test_servers_whose_workers_are_busy_are_told_apart_from_a_network_that_limits():
    account = of_a_server(made_ms=70, transit_ms=35, waits_ms=1)  # of several workers, behind a connection that is busy
    assert "The servers' workers are busy" in verdict(account)
    assert "network" not in report(an_account([a_record(step) for step in range(20)]))


STORE = dict.fromkeys(
    ("requests", "nbytes", "retries", "hedges", "refetches", "waits", "kept_nbytes", "hits_kept", "hits_memory"), 0.0
)


def of_store(**figures: float) -> dict[str, float]:
    return {f"store_{name}": value for name, value in {**STORE, "dollars": 0.0, **figures}.items()}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (90e6, "batches want 212 MB/s, and it gives 90 MB/s. More workers bring nothing"),
        (400e6, "though it gives 400 MB/s and batches want 212 MB/s: it is late, not slow"),
    ],
)
def test_where_the_store_limits_that_is_said_and_not_that_more_workers_help(given: float, said: str):
    counted = of_store(wanted_bytes_per_s=212e6, given_bytes_per_s=given, waited_share=0.6)
    text = verdict(an_account(waiting(2, 30), counted=counted))
    assert f"Workers waited 60 % of their time for the store{':' if given < 2e8 else ','}" in text
    assert said in text
    assert "instead of" not in text
    counted["store_waited_share"] = 0.1
    assert "store" not in verdict(an_account(waiting(2, 30), counted=counted))


def test_what_came_from_a_store_and_for_whom_is_told():
    counted = of_store(requests=8, nbytes=64e6, rank_nbytes=32e6, wanted_bytes_per_s=212e6, hits_kept=3, hedges=1)
    text = " ".join(report(an_account(epoch(), counted=counted)).split())
    for part in (
        "8 requests for 64 MB",
        "32 MB of it for this consumer",
        "batches want 212 MB/s",
        "3 runs from the cache",
    ):
        assert part in text
    rows = [Standing(5, 1200, 9.5, 0.1, 0.9, 0.5, store_nbytes=32e6), Standing(5, 1200, 9.5, 0.2, 0.9, 0.5)]
    table = rank_table(rows).splitlines()
    assert table[0].endswith(" from store")
    assert [line.split()[-2:] for line in table[2:4]] == [["32", "MB"], ["%", "-"]]
    assert max(map(len, table)) <= 80
