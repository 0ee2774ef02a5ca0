"""`swift-loader tune` and `loader.tune()`: real short runs, and everything that may go wrong with them."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swift_loader import ConfigError, DataError
from swift_loader.cli import main
from swift_loader.cli import tune as command
from swift_loader.tuning import Progress, Tuning
from swift_loader.tuning.asked import config_for
from swift_loader.tuning.looks import Choice
from tests.datasets import Failing, Noted, Numbers, Slow, calls
from tests.loaders import made, started
from tests.watching import descendants, until

pytestmark = pytest.mark.usefixtures("_fonts_are_open")

SLOW = json.dumps({"count": 512, "seconds": 0.001})
Tune = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tune(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tune:
    def run(*words: str) -> tuple[int, str, str]:
        code = main.main(["tune", *words, "--out", str(tmp_path / "out")])
        return code, *capsys.readouterr()

    return run


def test_the_command_writes_what_it_finds(tune: Tune, tmp_path: Path):
    code, out, err = tune("tests.datasets:Slow", "--kwargs", SLOW, "--consumer-ms", "10", "--seconds", "8", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["batch_ms"] > 30  # a sample waits for a millisecond
    tried = [row["choice"] for row in found["rows"]]
    assert list(found["settings"].values()) in [list(choice.values()) for choice in tried]
    # Where the machine is far too busy, even such samples want a core for most of their time, or the time is over.
    if found["waiting_share"] > 0.5 and found["is_whole"]:
        assert max(choice["threads"] for choice in tried) > 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tune.html", "tune.png", "tune.json"}
    assert json.loads((tmp_path / "out" / "tune.json").read_text()) == found
    assert descendants() == []


def test_the_table_fits_a_terminal(tune: Tune):
    code, out, err = tune("tests.datasets:Numbers", "--consumer-ms", "5", "--seconds", "2", "--max-workers", "2")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert [line for line in out.splitlines() if line.startswith(">")]
    assert out.isascii()


def test_a_dataset_that_raises_is_told_as_the_loader_tells_it(tune: Tune, tmp_path: Path):
    code, out, err = tune("tests.datasets:Failing", "--seconds", "2")
    assert (code, out) == (1, "")
    assert "OSError: disc error at" in err
    assert err.splitlines()[-1].startswith("swift-loader tune: DataError: fetch of sample 5 raised OSError")
    assert not (tmp_path / "out").exists()
    assert descendants() == []


@pytest.mark.parametrize(
    "words",
    [
        ["no.such:Dataset"], ["tests.datasets:Numbers", "--settings", '{"bogus": 1}'],
        ["tests.datasets:Numbers", "--consumer-ms", "-1"], ["tests.datasets:Numbers", "--max-workers", "0"],
        ["tests.datasets:Numbers", "--collate", "tests.loaders"],
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_call_is_answered_with_2(tune: Tune, words: list[str]):
    code, out, err = tune(*words)
    assert (code, out) == (2, "")
    assert err.startswith("swift-loader tune: ")


class Terminal(io.StringIO):
    """What is written to it is looked at."""

    def isatty(self) -> bool:
        return True


def test_the_bar_has_room_for_what_is_tried_and_behind_it_for_a_ctrl_c(monkeypatch: pytest.MonkeyPatch):
    terminal, watch = Terminal(), command._Watch()
    monkeypatch.setattr("sys.stderr", terminal)
    words = Choice(16, 16, 40, 40).words(Choice(1))
    with watch.shown(100.0):
        watch(Progress(words, 3.0, 100.0, Tuning(choice=Choice(1))))
        frames = terminal.getvalue().split("\r")
    assert f"| <1:37 left, {words}" in frames[-1]
    assert max(map(len, frames)) <= 78


def test_ctrl_c_leaves_no_bar_above_what_is_told(tune: Tune, monkeypatch: pytest.MonkeyPatch):
    class Interrupts(command._Watch):
        def __call__(self, progress: Progress) -> None:
            super().__call__(progress)
            signal.raise_signal(signal.SIGINT)

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(command, "_Watch", Interrupts)
    code, out, _ = tune("tests.datasets:Numbers")
    assert (code, out) == (130, "stopped; so far:\n\nNothing was measured yet.\n")
    assert "left, 1 worker" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\033[K")


def test_ctrl_c_ends_the_command_with_what_was_found(tune: Tune, tmp_path: Path):
    main = threading.main_thread().ident

    def is_busy_with_a_batch() -> bool:
        """As it is nearly all the time: an interrupt in the midst of a system call may cost the descriptor it opens."""
        return sys._current_frames()[main].f_code.co_qualname == "_Alive.look"

    def interrupt() -> None:
        until(lambda: len(calls(tmp_path)) > 100, "samples")
        until(is_busy_with_a_batch, "a step of the consumer")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    code, out, _ = tune(
        "tests.datasets:Noted", "--kwargs", json.dumps({"folder": str(tmp_path)}), "--consumer-ms", "20"
    )
    thread.join(20)
    assert code == 130
    assert out.startswith("stopped")
    assert descendants() == []


class Stop:
    """Interrupts, as Ctrl-C does, before the run of that number."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.seen: list[Progress] = []

    def __call__(self, progress: Progress) -> None:
        self.seen.append(progress)
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_leaves_a_note_of_what_was_found_and_nothing_else():
    stop = Stop(at=4)
    with made(Slow, {"seconds": 0.001}) as loader:
        with pytest.raises(KeyboardInterrupt) as stopped:
            loader.tune(5, seconds=30, threads=False, on_progress=stop)
        assert descendants() == []
    (note,) = stopped.value.__notes__
    assert note.startswith("swift_loader was tuning; so far:\n")
    assert "starved" in note
    assert [progress.now for progress in stop.seen][:2] == ["1 worker", "1 worker"]
    assert stop.seen[-1].so_far.rows


def test_a_loader_tunes_with_its_own_settings_and_stays_unstarted():
    with made(Numbers, {"count": 640}, shuffle=False, batch_size=16) as loader:
        found = loader.tune(10, seconds=2, max_workers=2)
        assert found.choice.workers in (1, 2)
        assert found.row is not None
        assert found.row.samples_per_s > 0
        assert [int(number) for batch in loader for number in batch] == list(range(640))
    with pytest.raises(Exception, match="was closed"):
        loader.tune(10)


def test_a_sample_that_raises_is_raised():
    with made(Failing) as loader, pytest.raises(DataError, match="sample 5"):
        loader.tune(10, seconds=2)


def test_a_loader_that_was_started_cannot_be_tuned():
    with started(Numbers) as loader, pytest.raises(ConfigError, match="that was not started"):
        loader.tune(10)


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"consumer_ms": -1}, "consumer_ms must be a number from 0 on, not -1"),
        ({"consumer_ms": "40"}, "consumer_ms must be a number"),
        ({"seconds": 0}, "seconds must be a number from 1 on"),
        ({"seconds": float("nan")}, "seconds must be a number"),
        ({"max_workers": 1.5}, "max_workers must be a whole number from 1 on, not 1.5"),
        ({"max_worker": 2}, r"tune\(\) has no argument 'max_worker'; it takes consumer_ms, device, max_workers"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(wishes: dict[str, Any], said: str):
    with made(Numbers) as loader, pytest.raises(ConfigError, match=said):
        loader.tune(**wishes)


def test_loaders_of_a_tuning_write_nothing_and_derive_what_was_not_set(tmp_path: Path):
    given = {"logger": str(tmp_path / "log"), "benchmark_file": str(tmp_path / "b"), "trace_file": str(tmp_path / "t")}
    config = made(Noted, {"folder": "x"}, benchmark=False, **given)._config
    tried = config_for(config, Choice(5, 2, 40, 7))
    assert (tried.worker_count, tried.worker_threads, tried.data_queue_size, tried.message_queue_size) == (5, 2, 40, 7)
    assert tried.max_buffer_size == 8
    assert tried.log is tried.benchmark_file is tried.trace_file is None
    assert tried.benchmark
    own = made(Noted, {"folder": "x"}, max_buffer_size=33)._config
    assert config_for(own, Choice(5, 2, 40)).max_buffer_size == 33
