"""The log is loguru's, and yet no line of ours reaches the user's sinks, nor theirs ours."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from loguru import logger as users_logger

from swift_loader.telemetry import Log


@pytest.fixture
def users_sink():
    sink = io.StringIO()
    handler = users_logger.add(sink, format="{message}", level="TRACE")
    yield sink
    users_logger.remove(handler)


def test_the_users_sinks_and_ours_never_see_each_other(users_sink: io.StringIO, tmp_path: Path):
    log = Log(str(tmp_path / "run"), stdout=False, level="DEBUG", consumer=0)
    log.warning("ours")
    users_logger.warning("theirs")
    log.close()
    users_logger.warning("after")
    assert users_sink.getvalue() == "theirs\nafter\n"
    text = (tmp_path / "run-0.log").read_text()
    assert "ours" in text
    assert "theirs" not in text


def test_what_the_user_configures_globally_does_not_change_our_log(tmp_path: Path):
    log = Log(str(tmp_path / "run"), stdout=False, level="DEBUG", consumer=0)
    users_logger.disable("swift_loader")
    try:
        users_logger.configure(extra={"consumer": "stolen"}, patcher=lambda record: record.update(message="patched"))
        late = Log(str(tmp_path / "late"), stdout=False, level="DEBUG", consumer=1)
        log.debug("first")
        late.info("second")
    finally:
        users_logger.configure(extra={}, patcher=lambda record: None)
        users_logger.enable("swift_loader")
        log.close()
        late.close()
    assert "DEBUG   consumer 0: first" in (tmp_path / "run-0.log").read_text()
    assert "INFO    consumer 1: second" in (tmp_path / "late-1.log").read_text()


def test_taking_all_of_the_users_handlers_off_leaves_our_log_alone(tmp_path: Path):
    script = (
        "from loguru import logger; from swift_loader.telemetry import Log\n"
        f"log = Log({str(tmp_path / 'run')!r}, stdout=True, level='INFO', consumer=0)\n"
        "logger.remove(); log.info('still here'); logger.info('nowhere')\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert "still here" in result.stdout
    assert result.stderr == ""
    assert "still here" in (tmp_path / "run-0.log").read_text()


def test_two_logs_are_two_logs(tmp_path: Path):
    first = Log(str(tmp_path / "a"), stdout=False, level="INFO", consumer=0)
    second = Log(str(tmp_path / "a"), stdout=False, level="INFO", consumer=1)
    first.info("one")
    first.close()
    second.info("two")
    second.close()
    assert [len((tmp_path / f"a-{c}.log").read_text().splitlines()) for c in (0, 1)] == [1, 1]


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("run", "run-3.log"),
        ("run.log", "run-3.log"),
        ("run.json", "run-3.json"),
        ("run.v2", "run.v2-3.log"),
        ("folder/sub/run.log", "folder/sub/run-3.log"),
    ],
)
def test_each_consumer_has_a_file_and_folders_are_made(tmp_path: Path, prefix: str, name: str):
    log = Log(str(tmp_path / prefix), stdout=False, level="INFO", consumer=3)
    log.info("hello")
    log.close()
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()] == [name]


def test_the_level_is_the_least_that_is_written(tmp_path: Path):
    log = Log(str(tmp_path / "run"), stdout=False, level="WARNING", consumer=0)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    log.close()
    lines = (tmp_path / "run-0.log").read_text().splitlines()
    assert [line.rsplit(": ", 1)[1] for line in lines] == ["c", "d"]


def test_standard_output_is_standard_output(capsys: pytest.CaptureFixture[str]):
    log = Log(None, stdout=True, level="INFO", consumer=2)
    log.info("hello", worker=3)
    log.close()
    captured = capsys.readouterr()
    assert captured.out.endswith("INFO    consumer 2: hello worker=3\n")
    assert captured.err == ""


def test_each_line_of_what_is_said_has_its_level_and_its_consumer(tmp_path: Path, capsys):
    log = Log(str(tmp_path / "run"), stdout=True, level="INFO", consumer=2)
    log.info("a page\n\nof {three} lines", worker=3)
    log.close()
    lines = (tmp_path / "run-2.log").read_text().splitlines()
    whose = "INFO    consumer 2:"
    assert [line[24:] for line in lines] == [f"{whose} a page", whose, f"{whose} of {{three}} lines worker=3"]
    assert capsys.readouterr().out.endswith(f"{whose} a page\n\nof {{three}} lines worker=3\n")


def test_without_path_and_stdout_nothing_is_written(capfd: pytest.CaptureFixture[str]):
    log = Log(None, stdout=False, level="DEBUG", consumer=0)
    log.error("nobody hears this")
    log.close()
    assert capfd.readouterr() == ("", "")


def test_braces_and_odd_fields_are_written_as_they_are(tmp_path: Path):
    log = Log(str(tmp_path / "run"), stdout=False, level="INFO", consumer=0)
    log.info('{"kind": "epoch"} {missing} <red>{}', path="{x}", message_={"a": 1})
    log.close()
    text = (tmp_path / "run-0.log").read_text()
    assert """{"kind": "epoch"} {missing} <red>{} path='{x}' message_={'a': 1}""" in text


def test_a_json_log_holds_one_object_per_line(tmp_path: Path):
    log = Log(str(tmp_path / "run.json"), stdout=False, level="INFO", consumer=1)
    log.info("hello {world}", worker=3, path=Path("/x"))
    log.close()
    (line,) = (tmp_path / "run-1.json").read_text().splitlines()
    told = json.loads(line)
    assert told.pop("time")
    assert told == {
        "level": "INFO",
        "consumer": 1,
        "message": "hello {world}",
        "worker": 3,
        "path": "PosixPath('/x')",
    }


def test_a_full_file_is_rotated_and_two_backups_are_kept(tmp_path: Path):
    log = Log(str(tmp_path / "run"), stdout=False, level="INFO", consumer=0)
    megabyte = "x" * 1_000_000
    for _ in range(45):
        log.info(megabyte)
    log.close()
    files = sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime)
    assert files[-1].name == "run-0.log"
    assert len(files) == 3
    assert all(path.stat().st_size <= 10_000_000 for path in files)


def test_a_closed_log_drops_what_is_said(tmp_path: Path):
    log = Log(str(tmp_path / "run"), stdout=False, level="INFO", consumer=0)
    log.info("before")
    log.close()
    log.close()
    log.info("after")
    assert "after" not in (tmp_path / "run-0.log").read_text()


def test_threads_may_share_a_log(tmp_path: Path):
    log = Log(str(tmp_path / "run"), stdout=False, level="INFO", consumer=0)
    threads = [threading.Thread(target=lambda n=n: [log.info("m", n=n) for _ in range(200)]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert len((tmp_path / "run-0.log").read_text().splitlines()) == 800
