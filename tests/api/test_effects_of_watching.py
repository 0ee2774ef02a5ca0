"""Arguments about queues, logs and measuring: each has its effect, seen in calls, files and output."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from swift_loader import ConfigError, DataError
from swift_loader.settings.log import LogSetting
from tests.datasets import Failing, Noted, Numbers, Pictures, Slow, calls
from tests.loaders import made, started, stream
from tests.slow import slow
from tests.watching import flat, settled, until


@pytest.mark.parametrize(("size", "least"), [(None, 10), (1, 1), (4, 4)])
def test_data_queue_size_is_how_many_batches_are_kept_ready(size: int | None, least: int, tmp_path):
    kwargs = {"folder": str(tmp_path), "count": 400}
    options = {"batch_size": 1, "worker_per_consumer": 1, "message_queue_size": 1, "max_buffer_size": 0}
    with started(Noted, kwargs, data_queue_size=size, **options) as loader:
        next(iter(loader))
        until(lambda: len(calls(tmp_path, "get")) > least, "a full queue")
        ready = settled(lambda: len(calls(tmp_path, "get"))) - 1
    assert ready <= least + 2  # and what the worker has in hand and in its channel


def test_data_queue_size_that_is_not_given_keeps_large_batches_within_a_memory():
    nbytes = 60 << 20  # two in the making, two that wait, and one that is in use; else there would be a dozen
    with started(Pictures, {"count": 16, "nbytes": nbytes}, batch_size=1, shuffle=False) as loader:
        assert [int(labels[0]) for _, labels in loader] == list(range(16))
        settled(lambda: loader.statistics()["slots_full"])
        assert 3 * nbytes < loader.statistics()["slot_bytes"] < 6.3 * nbytes


def stuck_behind_a_gate(folder: Path, at_least: int = 0, **settings) -> tuple[int, int]:
    """A worker waits in sample 40: how many steps wait in its channel, and how many the other one made meanwhile.

    The other one makes ``at_least`` so many, or it is waited for in vain.
    """
    kwargs = {"folder": str(folder), "count": 400, "gate_at": 40}
    options = {"batch_size": 1, "worker_per_consumer": 2, "shuffle": False, "data_queue_size": 500, **settings}
    with started(Noted, kwargs, **options) as loader:
        begun = iter(loader)
        taken = [int(next(begun)) for _ in range(36)]
        until(lambda: any(call.index == 40 for call in calls(folder, "get")), "sample 40")
        until(lambda: sum(call.index > 40 for call in calls(folder, "get")) >= at_least, f"{at_least} batches")
        settled(lambda: len(calls(folder, "get")), for_s=0.2)
        fetched = {call.index for call in calls(folder, "get")}
        (folder / "open").touch()
        assert taken + flat(begun) == list(range(400))
    later = {index for index in fetched if index > 40}
    waiting = [index for index in range(41, max(later, default=40)) if index not in later]
    return len(waiting), len(later)


@pytest.mark.parametrize(("size", "least", "most"), [(None, 3, 32), slow(10, 3, 10), (1, 0, 1), slow(2, 0, 2)])
def test_message_queue_size_is_how_many_orders_wait_in_a_workers_channel(size, least: int, most: int, tmp_path):
    # How many wait when the gate shuts depends on what the worker had just sent: never too many, sometimes enough.
    found = []
    while not found or (found[-1] < least and len(found) < 6):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        found.append(stuck_behind_a_gate(folder, message_queue_size=size, max_buffer_size=60)[0])
        assert found[-1] <= most
    assert found[-1] >= least


@pytest.mark.parametrize(
    ("size", "queue", "expected"), [slow(0, 10, 0), (7, 10, 7), (None, 10, 5), slow(None, 500, 250)]
)
def test_max_buffer_size_is_how_many_batches_of_a_worker_wait_to_be_merged(size, queue, expected, tmp_path):
    given = {"message_queue_size": 1, "max_buffer_size": size, "data_queue_size": queue}
    _, made_meanwhile = stuck_behind_a_gate(tmp_path, at_least=expected, **given)
    # And what that worker has in hand and in its channel; and, where load has made batches slow, the one that waits in
    # the channel of the other, which it takes over.
    assert made_meanwhile <= expected + 3


def test_benchmark_measures_by_default_and_not_if_it_is_false():
    with started(Slow, {"count": 16, "seconds": 0.002}) as loader:
        list(loader)
        measured = loader.statistics()
    assert measured["batches"] == 2
    assert measured["samples"] == 16
    assert measured["fetch_s"] > 0.02
    with started(Slow, {"count": 16, "seconds": 0.002}, benchmark=False) as loader:
        list(loader)
        assert "fetch_s" not in loader.statistics()


DOCUMENTED = {"collect batch data", "collate batch data", "serialize batch data", "transfer to device"}


@pytest.mark.parametrize("count", [0, 2])
def test_benchmark_file_gets_a_line_for_each_batch_and_epoch(count: int, tmp_path):
    path = tmp_path / "made" / "benchmark.json"
    with started(Numbers, {"count": 24}, benchmark_file=str(path), worker_per_consumer=count) as loader:
        for _ in range(2):
            list(loader)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["batch", "batch", "batch", "epoch"] * 2
    assert all(set(line) >= {*DOCUMENTED, "injection", "consumption"} for line in lines if line["kind"] == "epoch")


def test_benchmark_file_is_one_for_each_consumer(tmp_path):
    for consumer in range(2):
        with started(Numbers, nb_consumer=2, consumer=consumer, benchmark_file=tmp_path / "b.json") as loader:
            list(loader)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b-0.json", "b-1.json"]


def test_benchmark_file_counts_the_batches_of_an_epoch_that_was_left_early(tmp_path):
    path = tmp_path / "benchmark.json"
    with started(Numbers, {"count": 64}, benchmark_file=str(path)) as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        list(loader)
    epochs = [json.loads(line) for line in path.read_text().splitlines() if '"kind": "epoch"' in line]
    told = [(line["epoch"], line["batches"], line["steps"], line["whole"]) for line in epochs]
    assert told == [(0, 2, 8, False), (1, 8, 8, True)]


def test_benchmark_goes_to_the_log_where_there_is_no_file(tmp_path):
    with started(Numbers, {"count": 24}, logger=str(tmp_path / "log.json")) as loader:
        list(loader)
    lines = [json.loads(line) for line in (tmp_path / "log-0.json").read_text().splitlines()]
    assert [line["batches"] for line in lines if "consumption" in line] == [3]
    with started(Numbers, {"count": 24}, logger=str(tmp_path / "quiet.json"), benchmark=False) as loader:
        list(loader)
    assert "consumption" not in (tmp_path / "quiet-0.json").read_text()
    with started(Numbers, {"count": 24}, logger=str(tmp_path / "log")) as loader:
        list(loader)
    text = (tmp_path / "log-0.log").read_text()
    assert "consumption" not in text
    assert text.count("where a batch spent its time") == 1


def test_logger_as_a_text_is_the_prefix_of_a_file_for_each_consumer(tmp_path, capfd):
    for consumer in range(2):
        prefix = str(tmp_path / "new" / "folder" / "run")
        with started(Numbers, nb_consumer=2, consumer=consumer, logger=prefix) as loader:
            list(loader)
    written = {path.name: path.read_text() for path in (tmp_path / "new" / "folder").iterdir()}
    assert set(written) == {"run-0.log", "run-1.log"}
    assert all("started" in text for text in written.values())
    assert capfd.readouterr().out == ""


def test_logger_stdout_writes_to_standard_output(capfd):
    assert stream(Numbers, logger={"stdout": True})
    assert "started" in capfd.readouterr().out
    assert stream(Numbers, logger={"stdout": False})
    assert stream(Numbers)
    assert capfd.readouterr() == ("", "")


def test_logger_level_is_the_least_that_is_written(tmp_path):
    given = {"path": str(tmp_path / "log")}
    for level, is_written in [("ERROR", False), ("debug", True)]:
        assert stream(Numbers, logger={**given, "level": level})
        path = tmp_path / "log-0.log"
        assert (path.exists() and "started" in path.read_text()) is is_written


def test_logger_leaves_the_users_own_sinks_alone(capfd):
    from loguru import logger

    heard: list[str] = []
    sink = logger.add(heard.append, format="{message}")
    try:
        assert stream(Numbers, logger={"stdout": True})
        logger.info("mine")
    finally:
        logger.remove(sink)
    assert heard == ["mine\n"]
    assert "mine" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ("WARN", "WARNING"), ("fatal", "CRITICAL"), ("info", "INFO"), (logging.INFO, "INFO"), (logging.ERROR, "ERROR"),
        (5, "TRACE"), (25, "SUCCESS"), (None, "DEBUG"), (logging.NOTSET, None), (11, None), (True, None), (10.0, None),
    ],
)  # fmt: skip
def test_logger_level_is_a_name_or_a_number_of_pythons_logging(given: object, level: str | None):
    setting = {"stdout": False, "level": given}
    if level is None:
        with pytest.raises(ConfigError, match=r"logger\['level'\] must be one of TRACE, .*logging.INFO"):
            LogSetting.parse(setting)
    else:
        assert LogSetting.parse(setting) == LogSetting(path=None, stdout=False, level=level)


@pytest.mark.parametrize("logger", [5, ["x"], {"file": "x"}, {"stdout": 1}, {"level": "LOUD"}, {"path": 3}])
def test_logger_refuses_what_it_does_not_know(logger):
    with pytest.raises(ConfigError, match="logger"):
        made(Numbers, logger=logger)


@pytest.mark.parametrize("count", [0, 2])
def test_trace_file_is_a_trace_that_viewers_read(count: int, tmp_path):
    path = tmp_path / "made" / "trace.json"
    with started(Numbers, {"count": 32}, trace_file=str(path), worker_per_consumer=count) as loader:
        list(loader)
    trace = json.loads(path.read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    assert sum(event.get("ph") == "X" for event in events) >= 4


def test_replay_file_is_written_at_the_first_error_and_named_by_it(tmp_path):
    path = tmp_path / "failed.replay"
    settings = {"replay_file": path, "worker_per_consumer": 0, "shuffle": False}
    with started(Failing, {"bad": (9,)}, **settings) as loader, pytest.raises(DataError) as told:
        list(loader)
    assert told.value.replay == f"swift-loader replay --state {path} --epoch 0 --step 1 --rank 0"
    assert path.stat().st_mode & 0o777 == 0o600
