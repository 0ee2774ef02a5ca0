"""The recorder adds up what it is told, writes it as JSON lines, and stays small."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from swift_loader.telemetry import BatchRecord, Late, Log, Recorder
from tests.unit.telemetry.epochs import MS, a_record
from tests.watching import until


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_statistics_count_since_the_start():
    recorder = Recorder(0, None, None)
    for epoch in range(2):
        for step in range(10):
            recorder.batch(a_record(step, epoch=epoch))
        recorder.epoch(epoch)
    statistics = recorder.statistics()
    assert statistics["epoch"] == 1
    assert statistics["batches"] == 20
    assert statistics["samples"] == 640
    assert statistics["bytes"] == 20_000
    assert statistics["wait_s"] == pytest.approx(0.1)
    assert statistics["busy_s"] == pytest.approx(0.3)
    assert all(isinstance(value, float) for value in statistics.values())


def test_statistics_see_records_that_were_not_flushed_yet_and_none_at_all():
    recorder = Recorder(0, None, None)
    assert recorder.statistics()["batches"] == 0
    recorder.batch(a_record())
    assert recorder.statistics()["batches"] == 1


def test_a_file_holds_a_line_per_batch_and_a_line_per_epoch(tmp_path: Path):
    path = tmp_path / "a folder" / "benchmark.jsonl"
    recorder = Recorder(3, str(path), None)
    for epoch in range(2):
        for step in range(3):
            recorder.batch(a_record(step, epoch=epoch))
        recorder.epoch(epoch)
    recorder.close()
    lines = lines_of(path)
    assert [line["kind"] for line in lines] == ["batch"] * 3 + ["epoch"] + ["batch"] * 3 + ["epoch"]
    run = lines[0]["run"]
    assert lines[5] == {"kind": "batch", "run": run, "consumer": 3, **a_record(1, epoch=1)._asdict()}


def test_the_summary_speaks_the_documents_words(tmp_path: Path):
    path = tmp_path / "benchmark.jsonl"
    recorder = Recorder(0, str(path), None)
    for step in range(10):
        recorder.batch(a_record(step))
    recorder.batch(a_record(10, fetch_ns=44 * MS, slowest_ns=40 * MS, slowest_index=99, land_ns=0))
    recorder.epoch(0)
    recorder.close()
    summary = lines_of(path)[-1]
    assert summary["epoch"] == 0
    assert summary["batches"] == 11
    assert summary["collect batch data"] == {
        "total_s": 0.084, "mean_ms": 7.636364, "p50_ms": pytest.approx(4, rel=0.05), "p95_ms": 44.0, "p99_ms": 44.0,
        "max_ms": 44.0,
    }  # fmt: skip
    for task in ("collate batch data", "serialize batch data", "transfer to device", "consumer waits for data"):
        assert set(summary[task]) == {"total_s", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms"}
    assert summary["slowest sample"] == {"index": 99, "ms": 40.0}
    assert summary["consumption"] == pytest.approx(11 / 0.230, rel=1e-4)
    assert summary["starved share"] == pytest.approx(0.055 / 0.230, rel=1e-4)
    assert summary["injection"] == pytest.approx(11 * 2 / 0.095, rel=1e-3)  # two workers, 95 ms of work


def test_each_epoch_is_summed_for_itself(tmp_path: Path):
    path = tmp_path / "benchmark.jsonl"
    recorder = Recorder(0, str(path), None)
    for epoch, steps in enumerate((4, 2, 0)):
        for step in range(steps):
            recorder.batch(a_record(step, epoch=epoch))
        recorder.epoch(epoch)
    recorder.close()
    assert [line["batches"] for line in lines_of(path) if line["kind"] == "epoch"] == [4, 2, 0]


def logged(path: Path, level: str, benchmark_file: Path | None = None) -> list[str]:
    """What the log's file has of one epoch of two batches."""
    log = Log(str(path), stdout=True, level=level, consumer=0)
    recorder = Recorder(0, benchmark_file and str(benchmark_file), log)
    for step in range(2):
        recorder.batch(a_record(step))
    recorder.epoch(0)
    recorder.close()
    log.close()
    written = path.with_name(f"{path.stem}-0{path.suffix}")
    return written.read_text().splitlines() if written.exists() else []


def test_without_a_file_a_log_of_json_has_the_epochs_figures_as_figures(tmp_path: Path, capsys):
    (line,) = [json.loads(line) for line in logged(tmp_path / "run.json", "INFO")]
    assert (line["kind"], line["level"], line["message"]) == ("epoch", "INFO", "epoch")
    assert line["collect batch data"]["total_s"] == 0.008
    *batches, last = [json.loads(line) for line in logged(tmp_path / "detailed.json", "DEBUG")]
    assert last["kind"] == "epoch"
    assert [(one["kind"], one["level"], one["step"]) for one in batches] == [("batch", "DEBUG", n) for n in range(2)]
    assert all(batches[0][name] == value for name, value in a_record()._asdict().items())
    assert capsys.readouterr().out == ""


def test_a_log_for_people_has_figures_of_batches_only_at_its_most_detailed(tmp_path: Path, capsys):
    assert logged(tmp_path / "run.log", "INFO") == []
    lines = logged(tmp_path / "detailed.log", "DEBUG")
    assert [line.partition(" epoch=")[2].partition(" fetch_ns")[0] for line in lines] == [
        f"0 step={step} worker={step} rows=32 nbytes=1000" for step in range(2)
    ]
    assert capsys.readouterr().out == ""


def test_figures_that_have_a_file_of_their_own_are_not_in_the_log_too(tmp_path: Path):
    assert logged(tmp_path / "run.json", "DEBUG", tmp_path / "benchmark.jsonl") == []
    assert len(lines_of(tmp_path / "benchmark.jsonl")) == 3


def test_memory_does_not_grow_with_the_run():
    recorder = Recorder(0, None, None)
    record = a_record()
    for _ in range(10_000):
        recorder.batch(record)
        assert sys.getsizeof(recorder._pending) < 10_000
    assert recorder.statistics()["batches"] == 10_000


def test_a_closed_recorder_is_harmless(tmp_path: Path):
    recorder = Recorder(0, str(tmp_path / "benchmark.jsonl"), None)
    recorder.batch(a_record())
    recorder.close()
    recorder.close()
    recorder.batch(a_record())
    recorder.epoch(0)
    assert recorder.statistics()["batches"] == 2
    assert len(lines_of(tmp_path / "benchmark.jsonl")) == 1


def test_a_second_run_appends(tmp_path: Path):
    path = tmp_path / "benchmark.jsonl"
    for _ in range(2):
        recorder = Recorder(0, str(path), None)
        recorder.batch(a_record())
        recorder.epoch(0)
        recorder.close()
        over_ms = time.time_ns() // 1_000_000
        until(lambda over_ms=over_ms: time.time_ns() // 1_000_000 > over_ms, "the next millisecond")
    lines = lines_of(path)
    assert [line["kind"] for line in lines] == ["batch", "epoch"] * 2
    first, second = ({line["run"] for line in some} for some in (lines[:2], lines[2:]))
    assert len(first) == len(second) == 1
    assert first != second
    first_told, second_told = (datetime.fromisoformat(line["time"]) for line in lines if line["kind"] == "epoch")
    assert first_told.tzinfo is not None
    assert first_told <= second_told


def test_the_repr_tells_where_it_goes(tmp_path: Path):
    recorder = Recorder(1, None, None)
    recorder.batch(a_record())
    assert repr(recorder) == "Recorder(consumer=1, batches=1, to='nowhere')"


def test_a_device_tells_later_how_long_its_copy_took(tmp_path: Path):
    path = tmp_path / "benchmark.jsonl"
    recorder = Recorder(0, str(path), None)
    asked: list[int] = []
    recorder.batch(Late(a_record(transfer_ns=5), lambda: asked.append(1) or 7 * MS))
    recorder.batch(Late(a_record(transfer_ns=5), lambda: None))
    assert asked == []
    recorder.close()
    assert [line["transfer_ns"] for line in lines_of(path)] == [7 * MS, 5]
    assert recorder.statistics()["transfer_s"] == pytest.approx(0.007, rel=1e-3)


def test_lines_are_on_disk_within_a_second_or_so_even_when_no_batch_follows(tmp_path: Path):
    path = tmp_path / "benchmark.jsonl"
    recorder = Recorder(0, str(path), None)
    recorder.batch(a_record())
    until(path.read_text, "a line")
    recorder.batch(a_record(1))
    until(lambda: len(lines_of(path)) == 2, "the second line")
    recorder.close()


def test_a_forgotten_recorder_leaves_no_line_behind_and_no_thread(tmp_path: Path):
    path = tmp_path / "benchmark.jsonl"
    recorder = Recorder(0, str(path), None)
    recorder.batch(a_record())
    del recorder
    gc.collect()
    assert len(lines_of(path)) == 1


def test_a_forked_child_does_not_write_its_parents_lines_again(tmp_path: Path):
    path = tmp_path / "benchmark.jsonl"
    recorder = Recorder(0, str(path), None)
    recorder.batch(a_record())
    child = os.fork()
    if child == 0:
        recorder.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    recorder.close()
    assert len(lines_of(path)) == 1


def test_the_file_is_read_in_one_line_and_says_what_each_line_is(tmp_path: Path):
    path = tmp_path / "benchmark.jsonl"
    recorder = Recorder(0, str(path), None)
    for step in range(3):
        recorder.batch(a_record(step))
    recorder.epoch(0, {"cores": 2.0})
    recorder.close()
    batches = [line for line in lines_of(path) if line["kind"] == "batch"]
    assert all(type(value) is int for line in batches for name, value in line.items() if name != "kind")
    assert all(set(line) == {"kind", "run", "consumer", *BatchRecord._fields} for line in batches)
    assert lines_of(path)[-1]["cores"] == 2.0
