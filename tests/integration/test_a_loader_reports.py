"""A loader tells at any time of its life what its epochs were spent on, and starts nothing for that."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from swift_loader import DataError
from tests.datasets import HalfFailing, Numbers, Slow
from tests.loaders import made, started, stream
from tests.slow import slow
from tests.watching import until


def test_a_loader_reports_before_it_runs_while_it_runs_and_after():
    loader = made(Slow, {"count": 96, "seconds": 0.002})
    assert loader.report() == "swift_loader: nothing to report yet: the loader was not started"
    assert loader.worker_pids == []
    with loader:
        loader.start(0)
        assert loader.report() == "swift_loader: nothing to report yet: no batch was handed out"
        batches = iter(loader)
        for _ in range(11):
            next(batches)
        assert "epoch 0 so far, consumer 0 of 1, 2 workers" in loader.report()
        assert next(batches, None) is not None
        whole = loader.report()
        assert whole.startswith("swift_loader: epoch 0, consumer 0 of 1, 2 workers\n12 batches of 96 samples in ")
        assert re.search(r"The consumer waited \d+ % of the epoch\. Fetching takes \d+ % of a worker's time\.", whole)
        assert re.search(r"memory +\d+ slots of \d+ [kM]?B together, 2 workers with", whole)
        next(iter(loader))
        assert loader.report().splitlines()[:4] == whole.splitlines()[:4]  # an epoch that begins says nothing yet
        alone = loader.report(all_ranks=True).splitlines()
        assert sum(line.startswith("       0      0        12") for line in alone) == 1
    after = loader.report()
    assert "epoch 1, 1 of its 12 batches, consumer 0 of 1" in after  # the one that was left
    assert "1 batch is too few for a verdict" in after


def test_without_measuring_there_is_nothing_to_report():
    with started(Numbers, {"count": 24}, benchmark=False) as loader:
        list(loader)
        assert loader.report() == "swift_loader: nothing was measured, since benchmark=False"


def test_without_workers_the_report_says_what_the_first_would_bring():
    with started(Slow, {"count": 96, "seconds": 0.008}, worker_per_consumer=0) as loader:
        list(loader)
        assert "epoch 0, consumer 0 of 1, no workers" in loader.report()
        text = " ".join(loader.report().split())
        # On a machine whose cores others hold, that may be nothing.
        assert re.search(r"[Ww]orkers? (should bring|instead of none throughput should rise|would bring)", text)


def test_the_log_has_the_report_and_names_the_worker_of_a_line(tmp_path):
    path = tmp_path / "run.json"
    with started(Slow, {"count": 96}, logger=str(path), benchmark_file=str(tmp_path / "lines")) as loader:
        batches = iter(loader)
        next(batches)
        os.kill(loader.worker_pids[1], signal.SIGKILL)
        until(lambda: "was killed by SIGKILL" in (tmp_path / "run-0.json").read_text(), "the line about its death")
        for _ in batches:
            pass
    lines = [json.loads(line) for line in (tmp_path / "run-0.json").read_text().splitlines()]
    warnings = [line["message"] for line in lines if line["level"] == "WARNING"]
    assert ["was killed by SIGKILL" in said for said in warnings] == [True]
    assert {(line["consumer"], line["level"]) for line in lines} == {(0, "INFO"), (0, "WARNING")}
    of_workers = [(line["worker"], line["message"]) for line in lines if "worker" in line]
    assert sum("has built its dataset, in process" in said for _, said in of_workers) >= 2
    assert [number for number, said in of_workers if "was killed by SIGKILL" in said] == [1]
    assert any(line["message"].startswith("swift_loader: epoch 0") for line in lines)
    epoch = json.loads((tmp_path / "lines").read_text().splitlines()[-1])
    assert epoch["kind"] == "epoch"
    assert epoch["verdict"].startswith("The consumer waited")
    assert epoch["cores"] > 0


@pytest.mark.parametrize(("count", "validate"), [(0, False), (1, True), slow(0, True), slow(1, False)])
def test_the_log_has_the_error_that_ends_a_run_and_how_to_make_the_batch_again(count: int, validate, tmp_path):
    logger = {"path": str(tmp_path / "run"), "level": "ERROR"}
    settings = {"shuffle": False, "worker_per_consumer": count, "validate": validate}
    with pytest.raises(DataError) as caught:
        stream(HalfFailing, logger=logger, **settings)
    told = (tmp_path / "run-0.log").read_text()
    assert f"ERROR   consumer 0: DataError: {str(caught.value).splitlines()[0]}" in told
    assert told.count("DataError") == 1
    assert f"in one process: {caught.value.replay}" in told


@pytest.mark.parametrize("count", [0, 2])
def test_statistics_have_shares_and_rates_of_the_newest_epoch(count: int):
    with started(Slow, {"count": 32, "seconds": 0.005}, worker_per_consumer=count) as loader:
        assert loader.statistics()["starved_share"] == 0
        list(loader)
        found = loader.statistics()
    assert 0.5 < found["starved_share"] <= 1
    assert found["samples_per_s"] == pytest.approx(8 * found["batches_per_s"])
    assert found["fetch_p50_s"] > 0.03
    assert 0 <= found["worker_busy_share"] <= 1
    assert all(isinstance(value, int | float) for value in found.values())


@pytest.mark.parametrize("count", [0, 1])
def test_statistics_start_nothing_and_are_to_be_had_after_close(count: int):
    with made(Numbers, {"count": 32}, worker_per_consumer=count) as loader:
        assert loader.statistics() == {}
        loader.start(0)
        list(loader)
        during = loader.statistics()
    after = loader.statistics()
    assert set(after) == set(during)
    assert {name: after[name] for name in ("batches", "samples", "wait_s", "samples_per_s", "epoch")} == {
        name: during[name] for name in ("batches", "samples", "wait_s", "samples_per_s", "epoch")
    }
    assert after["batches"] == 4
    assert loader.statistics() == after


def test_left_out_samples_that_are_too_many_are_told_with_their_place_and_in_the_log(tmp_path):
    settings = {"batch_size": 4, "shuffle": False, "on_error": "skip", "max_skipped": 1, "worker_per_consumer": 1}
    settings["logger"] = str(tmp_path / "run")
    told = pytest.raises(DataError, match=r"max_skipped=1 \(consumer 0, epoch 0, step 0\)")
    with started(HalfFailing, **settings) as loader, told:
        list(loader)
    lines = (tmp_path / "run-0.log").read_text().splitlines()
    assert sum("WARNING consumer 0: a sample was left out" in line for line in lines) == 2
    assert sum("ERROR   consumer 0: DataError: " in line for line in lines) == 1
