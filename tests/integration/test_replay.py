"""A batch that a worker has made is made again in this process: the same bytes, random numbers included."""

from __future__ import annotations

import os
import pickle
import random
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swift_loader import ConfigError, DataError, LayoutError, PoisonedTicket, SwiftLoader
from swift_loader.batch.digest import checksum_of_all
from swift_loader.cli import main as cli
from swift_loader.consumer.replay import Replay
from tests.datasets import Numbers, Random
from tests.deadly_datasets import Crashes
from tests.loaders import made, started
from tests.replayed_datasets import Draws, DrawsAndFails, DrawsInThreads, Fails, ToldEpochs, encoded, first_and_last
from tests.slow import slow
from tests.watching import plain, run_warm

#: Each way of making batches once; a loader with processes takes a while to start.
WORLDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "shuffled, by two workers": (Draws, {"worker_per_consumer": 2}),
    "per sample, elastic, consumer 1 of 2": (
        Draws,
        {"random_per": "sample", "elastic": True, "nb_consumer": 2, "consumer": 1},
    ),
    "samples left out, collate_fn, consumer 1 of 2": (
        DrawsAndFails,
        {"on_error": "skip", "collate_fn": first_and_last, "nb_consumer": 2, "consumer": 1},
    ),
    "encoder, not shuffled": (
        ToldEpochs,
        {"batch_encoder": encoded, "batch_decoder": pickle.loads, "shuffle": False},
    ),
    "threads, nested": (DrawsInThreads, {"worker_threads": 3}),
}


@pytest.mark.parametrize("world", WORLDS)
def test_every_batch_of_two_epochs_is_made_again_byte_for_byte(world: str):
    dataset, settings = WORLDS[world]
    with started(dataset, {"count": 40}, **{"worker_per_consumer": 1, **settings}) as loader:
        epochs = [[checksum_of_all(batch) for batch in loader] for _ in range(2)]
        for epoch, batches in reversed(list(enumerate(epochs))):
            assert [checksum_of_all(loader.replay(epoch, step)) for step in range(len(batches))] == batches
    assert checksum_of_all(loader.replay(1, 0)) == epochs[1][0]  # closed, it still can
    assert len({*epochs[0], *epochs[1]}) == len(epochs[0]) * 2


def test_the_stream_and_the_scripts_own_random_numbers_do_not_change():
    def run(*, replays: bool) -> list[Any]:
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        found: list[Any] = []
        with started(Draws, worker_per_consumer=0) as loader:
            for batch in loader:
                if replays:
                    loader.replay(3, 1)
                found.append((plain(batch), random.random(), np.random.random(), torch.rand(1).item()))
        return found

    assert run(replays=True) == run(replays=False)


def test_a_loader_that_was_not_started_must_be_told_whose_batch():
    loader = made(Numbers, nb_consumer=2)
    with pytest.raises(ConfigError, match="which of the 2 consumers"):
        loader.replay(0, 0)
    with started(Numbers, nb_consumer=2, consumer=1, worker_per_consumer=0) as other:
        assert plain(loader.replay(0, 1, consumer_index=1)) == plain(list(other)[1])


@pytest.mark.parametrize(("epoch", "step"), [(0, 8), (-1, 0), (0, -1), (0, 1.5), (True, 0)])
def test_a_batch_that_is_not_is_refused(epoch: Any, step: Any):
    with pytest.raises(ConfigError, match=r"epoch|step"):
        made(Numbers).replay(epoch, step)


def test_what_is_raised_is_raised_again_with_the_frames_of_the_dataset():
    with started(Fails, {"at": 9}, shuffle=False, worker_per_consumer=1) as loader:
        it = iter(loader)
        next(it)
        with pytest.raises(DataError) as told:
            next(it)
        assert told.value.replay == "loader.replay(epoch=0, step=1)"
        assert str(told.value).endswith("\nThe same batch again, in one process: loader.replay(epoch=0, step=1)")
        with pytest.raises(DataError, match="sample 9") as again:
            loader.replay(0, 1)
    frame = again.value.__cause__.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    assert frame.tb_frame.f_locals["index"] == 9


def test_errors_of_every_kind_name_the_command_and_the_file(tmp_path: Path):
    def ragged(samples: list[Any]) -> Any:
        raise LayoutError("they do not fit")

    def no_batch(data: bytes) -> Any:
        raise DataError("unreadable")

    path = tmp_path / "b.replay"
    file = rf"{re.escape(str(tmp_path))}/b(?:-[0-9a-f]{{12}})?\.replay"
    expected = rf"swift-loader replay --state ({file}) --epoch 0 --step 0 --rank 0"
    rows: list[tuple[Any, dict[str, Any], type[Exception], dict[str, Any]]] = [
        (Fails, {"at": 3}, DataError, {"validate": False}),
        (Numbers, {}, LayoutError, {"collate_fn": ragged}),
        (Numbers, {}, DataError, {"batch_encoder": bytes, "batch_decoder": no_batch, "worker_per_consumer": 0}),
        (Crashes, {"bad": {3: "abort"}}, PoisonedTicket, {"max_attempts": 1}),
    ]

    written: set[Path] = set()

    def take_one(dataset: Any, kwargs: dict[str, Any], settings: dict[str, Any]) -> None:
        settings = {"worker_per_consumer": 1, "shuffle": False, "replay_file": path, **settings}
        with started(dataset, kwargs, **settings) as loader:
            next(iter(loader))

    for dataset, kwargs, error, settings in rows:
        with pytest.raises(error) as told:
            take_one(dataset, kwargs, settings)
        found = re.fullmatch(expected, told.value.replay)
        assert found is not None, told.value.replay
        assert str(told.value).splitlines()[-1].endswith(f": {told.value.replay}")
        assert Path(found[1]).stat().st_mode & 0o7777 == 0o600
        written.add(Path(found[1]))
    assert len(written) == len(rows)
    assert set(tmp_path.glob("*.replay")) == written


def failed_run(folder: Path, bad: int, **settings: Any) -> str:
    """What to type after a run over 16 samples, all in one batch, of which one cannot be had."""
    settings = {"worker_per_consumer": 0, "shuffle": False, "seed": 1, "batch_size": 4, **settings}
    settings["replay_file"] = folder / "l.replay"
    with pytest.raises(DataError) as told, started(Fails, {"at": bad}, **settings) as one:
        list(one)
    return told.value.replay


@pytest.mark.usefixtures("elsewhere")
def test_two_loaders_that_name_one_file_have_each_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trains, validates = failed_run(tmp_path, 13), failed_run(tmp_path, 9)
    for command, bad in ((trains, 13), (validates, 9)):
        assert cli.main(shlex.split(command)[1:]) == 1
        assert f"sample {bad} is bad" in capsys.readouterr().err


def test_the_same_settings_and_seed_are_written_to_the_same_file(tmp_path: Path):
    command = failed_run(tmp_path, 13)
    (file,) = tmp_path.glob("*.replay")
    content = file.read_bytes()
    assert failed_run(tmp_path, 13) == command
    assert list(tmp_path.glob("*.replay")) == [file]
    assert file.read_bytes() == content
    assert failed_run(tmp_path, 13, seed=2) != command


def test_a_file_that_cannot_be_written_is_told_beside_the_error(tmp_path: Path):
    (tmp_path / "file").touch()
    settings = {"worker_per_consumer": 0, "shuffle": False, "replay_file": tmp_path / "file" / "x.replay"}
    with pytest.raises(DataError) as told, started(Fails, {"at": 3}, **settings) as loader:
        list(loader)
    assert told.value.replay == "loader.replay(epoch=0, step=0)"
    (note,) = told.value.__notes__
    assert re.fullmatch(r"replay_file: .*/file/x\.replay could not be written: .*File exists.*", note)


def test_nothing_is_written_that_nobody_has_named(tmp_path: Path):
    settings = {
        "shuffle": False,
        "benchmark_file": tmp_path / "b",
        "trace_file": tmp_path / "t",
        "logger": f"{tmp_path}/l",
    }
    with pytest.raises(DataError) as told, started(Fails, {"at": 3}, worker_per_consumer=0, **settings) as loader:
        list(loader)
    assert told.value.replay == "loader.replay(epoch=0, step=0)"
    assert not list(tmp_path.glob("*replay*"))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the command changes of its process is put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    here, modules = os.getcwd(), set(sys.modules)
    yield
    os.chdir(here)
    for name in {"mine"} & (set(sys.modules) - modules):
        del sys.modules[name]


MODULE = """
from pathlib import Path
import random
class OfModule:
    def __init__(self):
        self.bad = int(Path("bad.txt").read_text())
    def __len__(self):
        return 40
    def __getitem__(self, index):
        if index == self.bad:
            raise ValueError("the last one")
        return {"i": index, "noise": random.random()}
"""
DELIVERS = """
import sys
from mine import OfModule
from swift_loader import SwiftLoader
from swift_loader.cli.replay import lines_of
class OfMain(OfModule):
    pass
if __name__ == "__main__":
    dataset = OfModule if sys.argv[1] == "by name" else OfMain
    with SwiftLoader(dataset, None, 8, 2, 1, shuffle=False, seed=5) as loader:
        loader.start(1)
        loader.save_replay("run.replay")
        print(*lines_of(next(iter(loader))), sep="\\n")
"""


@pytest.mark.parametrize("how", [slow("by name"), "by value"])
@pytest.mark.usefixtures("elsewhere")
def test_the_command_makes_the_batch_in_another_process(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "bad.txt").write_text("39")
    delivered = run_warm(tmp_path, DELIVERS, how)
    command = ["replay", "--state", str(tmp_path / "run.replay"), "--rank"]
    assert cli.main([*command, "1", "--step", "0"]) == 0
    assert capsys.readouterr().out == (
        "consumer 1, epoch 0, step 0: 8 samples: 20, 21, 22, 23, 24, 25, 26, 27\n" + delivered
    )
    assert os.getcwd() == str(tmp_path)
    assert cli.main([*command, "1", "--step", "2"]) == 1
    told = capsys.readouterr().err
    assert re.search(r'mine.py", line \d+, in __getitem__\n.*the last one', told, re.DOTALL)
    assert "fetch.py" not in told
    assert cli.main([*command, "1", "--step", "3"]) == 2
    assert cli.main([*command, "2", "--step", "0"]) == 2


@pytest.mark.usefixtures("elsewhere")
def test_the_debugger_opens_where_the_dataset_has_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[Any] = []
    monkeypatch.setattr("pdb.post_mortem", seen.append)
    path = tmp_path / "x.replay"
    made(Fails, {"at": 9}, shuffle=False).save_replay(path)
    assert cli.main(["replay", "--state", str(path), "--step", "1", "--pdb"]) == 1
    (frame,) = seen
    while frame.tb_next is not None:
        frame = frame.tb_next
    assert frame.tb_frame.f_locals["index"] == 9


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_read(mode: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "x.replay"
    made(Numbers).save_replay(path)
    path.chmod(mode)
    assert cli.main(["replay", "--state", str(path), "--step", "0"]) == 2
    assert "can be written by others" in capsys.readouterr().err


def test_a_file_of_another_user_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    if os.geteuid() != 0:
        pytest.skip("giving a file to another user takes root")
    path = tmp_path / "x.replay"
    made(Numbers).save_replay(path)
    os.chown(path, 12345, -1)
    assert cli.main(["replay", "--state", str(path), "--step", "0"]) == 2
    assert "belongs to another user (uid 12345)" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"short", pickle.dumps({"a": 1})])
def test_what_is_no_replay_file_is_told_from_one(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "x.replay"
    path.write_bytes(content)
    path.chmod(0o600)
    assert cli.main(["replay", "--state", str(path), "--step", "0"]) == 2
    assert "is not what loader.save_replay()" in capsys.readouterr().err
    assert cli.main(["replay", "--state", str(tmp_path / "none" / "x"), "--step", "0"]) == 2
    assert "No such file" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_what_is_there_does_not_lend_its_mode_to_a_replay_file(tmp_path: Path):
    path = tmp_path / "x.replay"
    path.touch(0o666)
    path.chmod(0o666)
    made(Numbers).save_replay(path)
    assert path.stat().st_mode & 0o7777 == 0o600


def test_a_dataset_that_cannot_be_pickled_is_refused_and_its_errors_name_what_works_here(tmp_path: Path):
    held = (number for number in ())  # nothing can send it
    loader = made(Fails, {"at": 3, "held": held}, worker_per_consumer=0, replay_file=tmp_path / "b", shuffle=False)
    with pytest.raises(ConfigError, match=r"cannot be written .* loader.replay\(\)"):
        loader.save_replay(tmp_path / "x")
    with pytest.raises(DataError) as told, loader:
        next(iter(loader))
    assert told.value.replay == "loader.replay(epoch=0, step=0)"


def test_a_given_dataset_is_written_with_all_that_it_holds(tmp_path: Path):
    settings = {"shuffle": False, "seed": 1, "replay_file": tmp_path / "x"}
    with SwiftLoader.from_dataset(Fails(9), 8, 1, 1, **settings) as loader:
        it = iter(loader)
        next(it)
        with pytest.raises(DataError) as told:
            next(it)
    assert told.value.replay == f"swift-loader replay --state {tmp_path}/x --epoch 0 --step 1 --rank 0"


def test_a_replay_goes_from_any_batch_to_any_other():
    recipe = made(Random, {"count": 40})._recipe(0)
    with Replay(recipe) as one, Replay(recipe) as other:
        assert plain(one.batch(5, 3)) == plain(other.batch(5, 3))
        one.batch(0, 0)
        assert plain(one.batch(5, 3)) == plain(other.batch(5, 3))
