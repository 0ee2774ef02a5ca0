"""`swift-loader bench`: what is compared with what, what is said of it, and one real comparison."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import pytest

from swift_loader.cli import bench, bench_report, bench_side, main
from swift_loader.cli.bench_report import Report
from swift_loader.cli.bench_side import Batches, Excerpt, Measured, Spec, _Lap, told
from swift_loader.host import load
from swift_loader.plan.plan import Plan
from tests.watching import until

pytestmark = pytest.mark.usefixtures("_fonts_are_open")

SPEC = Spec("tests.datasets:Slow", {"count": 640, "seconds": 0.001}, 16, 1)
GOOD = Measured(samples_per_s=900.0, first_batch_s=0.3, gap_ms=0.2, cpu_ms=5.0, pss_mb=300.0, batches=40)


def reported(**sides: Measured) -> Report:
    return Report(SPEC, 640, 2.0, {side: [one] for side, one in sides.items()}, {})


def test_each_is_told_where_it_is_better_and_torch_by_its_better_way():
    torch = Measured(300.0, 0.1, 50.0, 5.1, 200.0, 40)
    persistent = Measured(450.0, 0.12, 10.0, 5.2, 210.0, 40)
    text = reported(swift=GOOD, torch=torch, torch_persistent=persistent).verdict
    ours, theirs, alike = text.split(". ")
    assert ours == (
        "swift_loader is better at throughput (900 against 450 samples/s), gap between epochs (0.2 against 10.0 ms)"
    )
    assert theirs == (
        "torch is better at first batch (0.1 against 0.3 s), memory of all processes (200 against 300 MB)"
    )
    assert alike == "Alike: CPU time per batch (5 against 5.1 ms)."


def test_sides_whose_rounds_overlap_are_alike():
    quick, slow = replace(GOOD, samples_per_s=1000.0), replace(GOOD, samples_per_s=700.0)
    torch = {"torch": [slow, quick, GOOD], "swift": [GOOD, slow, slow]}
    assert "Alike: throughput (700 against 900" in Report(SPEC, 640, 2.0, torch, {}).verdict


def test_the_page_has_the_columns_of_the_terminal():
    rounds = [GOOD, replace(GOOD, samples_per_s=700.0), replace(GOOD, samples_per_s=1000.0)]
    report = Report(SPEC, 640, 2.0, {"swift": rounds}, {})
    table = bench_report.page(report).table
    assert table.head == ("", "samples/s", "low - high", "first s", "gap ms", "CPU ms", "PSS MB")
    assert table.rows == [("swift_loader", "900", "700 - 1,000", "0.3", "0.2", "5", "300")]
    assert [word for cell in table.rows[0] for word in cell.split()] == report.table().splitlines()[2].split()


def test_our_side_is_set_as_a_user_gets_it():
    with bench_side.swift(SPEC, 640) as loader:
        assert loader._config.measures
        next(iter(loader))
        assert loader.statistics()["batches"] == 1


def test_what_could_not_be_measured_and_who_failed_is_said():
    report = reported(swift=GOOD, torch=Measured(300.0, 0.1, None, 5.1, None, 40))
    report.failures["torch_persistent"] = "exit code 1\nTypeError: found NoneType"
    text = str(report)
    assert "torch DataLoader: could not be measured: gap between epochs, memory of all" in text
    assert "torch, persistent failed: exit code 1\nTypeError: found NoneType" in text
    assert max(map(len, text.splitlines())) <= 80
    assert [line for line in report.table().splitlines() if line.endswith("failed")]
    assert len(bench_report.panels(report)) == len(bench_report.METRICS)
    assert json.loads(json.dumps(report.to_dict()))["failures"]
    assert str(Report(SPEC, 640, 2.0, {}, {})).count("There is nothing to compare.") == 1


@pytest.mark.parametrize(
    ("length", "sample_s", "steps"), [(640, 0.001, None), (10_000_000, 0.001, 62), (10_000_000, 0.2, 10)]
)
def test_an_epoch_is_whole_or_an_excerpt_that_fits_the_time(length: int, sample_s: float, steps: int | None):
    assert bench.sized(SPEC, length, sample_s, seconds=3.0).steps == steps


def test_an_excerpt_is_the_same_for_both_and_another_each_epoch():
    plan: Plan = Excerpt(length=1000, batch_size=4, steps=3, seed=1)
    batches = Batches(plan)
    epochs = [list(batches) for _ in range(2)]
    assert epochs == [plan.indices(epoch, 0, 0, 3) for epoch in range(2)]
    assert epochs[0] != epochs[1]
    assert len(batches) == plan.step_count(0, 0) == 3
    assert all(0 <= index < 1000 for epoch in epochs for batch in epoch for index in batch)
    assert json.dumps(plan.fingerprint())


def test_rates_are_within_epochs_and_gaps_between_them():
    laps = [_Lap(1.0, 2.0, 5.0, 11, is_whole=True), _Lap(2.5, 3.5, 7.0, 11, is_whole=True)]
    found = told(0.0, laps, samples=110, batch_size=10, pss_mb=None)
    assert found == Measured(100.0, 1.0, 500.0, pytest.approx(2000 / 11), None, 22)
    cut = told(0.0, [_Lap(1.0, 2.0, 5.0, 6, is_whole=False)], samples=110, batch_size=10, pss_mb=None)
    assert cut == Measured(50.0, 1.0, None, None, None, 6)


def test_a_family_is_this_process_and_all_below_it():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        try:
            until(lambda: child.pid in load.family())
            assert load.family()[0] == os.getpid()
            assert 1 not in load.family()
        finally:
            child.kill()
    assert load.family_cpu_s() > 0
    pss = load.family_pss_nbytes()
    assert pss is None or pss > 1 << 20


@pytest.mark.slow
def test_a_dataset_is_measured_beside_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["bench", SPEC.dataset, "--kwargs", json.dumps(SPEC.kwargs), "--batch-size", "16", "--workers", "1"]
    words += ["--sides", "swift", "torch", "--rounds", "1", "--seconds", "0.3", "--out", str(tmp_path), "--json"]
    code = main.main(words)
    out = capsys.readouterr()
    assert code == 0, out.err
    said = json.loads(out.out)
    assert said["failures"] == {}
    assert set(said["sides"]) == {"swift", "torch"}
    for side, (found,) in said["sides"].items():
        assert all(found[metric.key] is not None for metric in bench_report.METRICS), side
        # A sample waits for a millisecond: whoever is faster has left some out.
        assert 0 < found["samples_per_s"] < 1000, side
        assert found["batches"] == 3 * said["spec"]["steps"] == 30
    assert {path.name for path in tmp_path.iterdir()} == {"bench.html", "bench.png", "bench.json"}


def test_a_dataset_that_raises_is_told_with_its_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main.main(["bench", "tests.datasets:CannotBeBuilt", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "the dataset cannot be looked at" in said
    assert "FileNotFoundError: /no/such/folder" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["no.such:Dataset"], ["tests.datasets"], ["tests.datasets:Slow", "--kwargs", "[1]"]], ids=str
)
def test_a_wrong_call_is_answered_with_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main.main(["bench", *words]) == 2
    assert capsys.readouterr().err.startswith("swift-loader bench: ")


def test_the_settings_of_all_sides_are_the_same():
    parser = ArgumentParser()
    bench.add_arguments(parser)
    given = parser.parse_args(["tests.datasets:Slow", "--start-method", "spawn", "--collate", "tests.loaders:made"])
    spec = bench._spec(given)
    assert (spec.start_method, spec.collate, spec.workers) == ("spawn", "tests.loaders:made", 2)
