"""Each check finds what it is there to find, and says so in words that help; it is content with a good dataset."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from swift_loader import ConfigError
from swift_loader.testing import check_dataset, lab
from tests.integration.testing import wrong_datasets as wrong
from tests.slow import slow_but

#: Dataset, the check that must tell, its verdict, and what it must say.
TABLE: list[tuple[type, str, str, tuple[str, ...]]] = [
    (wrong.HoldsAGenerator, "sending", "ok", ("by pickle",)),  # its class and arguments are sent, not itself
    (wrong.CannotBeBuilt, "building", "problem", ("FileNotFoundError", "'/no/such/file'")),
    (wrong.DiesWhenBuilt, "building", "problem", ("exited with code 3", "builds the dataset")),
    (
        wrong.HangsWhenBuilt,
        "building",
        "problem",
        ("no worker has built it within ", "wrong_datasets.py:", "in __init__", "raise seconds="),
    ),
    (wrong.Large, "building", "advice", ("60", "MB of memory", "share_dataset=True")),
    (wrong.LengthByProcess, "length", "problem", ("not the same wherever it is built",)),
    (wrong.OneTooLong, "length", "problem", ("len() is 200", "sample 199", "IndexError")),
    (wrong.Raises, "samples", "problem", ("OSError: disc error at", "in __getitem__", "on_error='skip'")),
    (wrong.Segfaults, "samples", "problem", ("sample 199", "SIGSEGV", "wrong_datasets.py:", "dataset[199]")),
    (wrong.Hangs, "samples", "problem", ("sample 199", "no progress for 1.", "in harm")),
    (wrong.Unbatchable, "samples", "problem", ("words of sample 0 is a set", "collate_fn")),
    (wrong.Ragged, "samples", "problem", ("boxes has shape (1, 4) in sample 0", "ragged='list'")),
    (wrong.OtherKeys, "samples", "problem", ("only one of them has mask",)),
    (wrong.OtherTypes, "samples", "problem", ("dtype int64", "dtype uint16")),
    (wrong.Promoted, "samples", "advice", ("dtype float64 in sample", "dtype float32", "a batch of both is float64")),
    (wrong.NotFinite, "samples", "advice", ("1 of 2 values that are NaN", "check_finite")),
    (wrong.OwnGenerator, "determinism", "ok", ("the same bytes twice", "draws from dataset.rng, anew in each epoch")),
    (wrong.HiddenGenerator, "determinism", "problem", ("noise of samples 0,", "not seeded", "worker_info().rng")),
    (wrong.DrawsOnce, "determinism", "problem", ("in another worker", "from dataset.rng", "or in set_epoch")),
    (wrong.TellsTheTime, "determinism", "problem", ("at of samples", "time() in __getitem__")),
    (wrong.OrderOfASet, "hashing", "problem", ("samples 0,", "another PYTHONHASHSEED", "sorted(names)")),
    (wrong.LengthByHash, "hashing", "problem", ("len() is 1", "hash() in __init__", "zlib.crc32")),
    (wrong.SeedsItself, "determinism", "advice", ("draws from random", "seeds by itself")),
    (wrong.Waits, "speed", "advice", ("waits for 9", "worker_threads=8")),
    (wrong.Leaks, "memory", "problem", ("MB more for each 1,000", "tracemalloc")),
]
#: One for each check; the others are slow rows.
QUICK = (
    wrong.HoldsAGenerator, wrong.CannotBeBuilt, wrong.OneTooLong, wrong.Ragged, wrong.HiddenGenerator,
    wrong.OrderOfASet, wrong.Waits, wrong.Leaks,
)  # fmt: skip


def settings_for(dataset: type) -> dict[str, Any]:
    seconds = {wrong.Hangs: 3.0, wrong.HangsWhenBuilt: 6.0, wrong.Waits: 6.0}.get(dataset, 20.0)
    return {"samples": 12, "seconds": seconds}


@pytest.fixture
def weighs_little(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of samples are looked at for time and memory, which others than these checks need not wait for."""
    row = getattr(request.node, "callspec", None)
    if row is None or row.params["check"] != "speed":
        monkeypatch.setattr(lab, "_WEIGHED", 200)


@pytest.mark.usefixtures("weighs_little")
@pytest.mark.parametrize(
    ("dataset", "check", "verdict", "words"),
    slow_but(TABLE, lambda row: row[0] in QUICK),
    ids=[f"{row[1]}-{row[0].__name__}" for row in TABLE],
)
def test_what_is_wrong_is_told(dataset: type, check: str, verdict: str, words: tuple[str, ...]):
    report = check_dataset(dataset, only=check, **settings_for(dataset))
    found = [one for one in report.findings if one.verdict == verdict]
    assert found, f"\n{report}"
    told = f"{found[0].text} {found[0].remedy}"
    assert not [word for word in words if word not in told], told


@pytest.mark.usefixtures("weighs_little")
def test_nothing_is_wrong_with_a_good_one():
    report = check_dataset(wrong.Right, {"count": 100})
    assert [(one.check, one.verdict) for one in report.findings] == [
        (name, "ok")
        for name in (
            "sending", "building", "length", "samples", "determinism", "hashing", "threads", "speed", "memory", "faults"
        )
    ], f"\n{report}"  # fmt: skip
    report.assert_ok()
    assert report.is_ok
    assert "anew in each epoch" in report["determinism"][0].text
    assert report.figures["length.samples"] == 100
    assert 0 < report.figures["speed.median_s"] < 1
    assert report.figures["samples.nbytes"] == 3 * 8 * 8 + 8 + 8
    assert "came complete and in order" in report["faults"][0].text
    assert report.figures["faults.longest_wait_s"] < 60
    assert report.figures["faults.close_s"] < 30


def test_an_object_that_cannot_be_sent_is_named():
    (found,) = check_dataset(wrong.HoldsAGenerator(), only="sending").problems
    assert "dataset.parts['names'] is a generator" in found.text
    assert "__getstate__" in found.remedy


def test_an_argument_that_cannot_be_sent_is_named_too():
    def collate(samples: list) -> list:
        return [lines, samples]

    lines = (line for line in "ab")
    (found,) = check_dataset(wrong.Right, {"count": (3, lines)}, only="sending", collate_fn=collate).problems
    assert "dataset_kwargs['count'][1] is a generator" in found.text
    assert "collate_fn's lines is a generator" in found.text


def test_what_is_large_is_told():
    (found,) = check_dataset(wrong.Right, {"count": np.zeros(13_000_000)}, only="sending").advice
    assert found.text.startswith("104 MB by pickle")
    assert found.figures["nbytes"] > 104e6


@pytest.mark.usefixtures("weighs_little")
def test_samples_are_asked_for_as_a_loader_would_ask():
    (found,) = check_dataset(wrong.AddsToSamples, only="determinism", samples=4).problems
    assert "time() in __getitem__" in f"{found.text} {found.remedy}"


@pytest.mark.usefixtures("weighs_little")
def test_threads_that_move_a_file_for_each_other_are_found(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(np.random.default_rng(0).bytes(200_000))
    (found,) = check_dataset(wrong.SharedFile, {"path": str(path)}, only="threads").advice
    assert "not the same with worker_threads=8" in found.text
    assert "os.pread" in found.remedy
    (asked_for,) = check_dataset(wrong.SharedFile, {"path": str(path)}, only="threads", worker_threads=4).problems
    assert asked_for.remedy == found.remedy


@pytest.mark.usefixtures("weighs_little")
def test_what_a_killed_worker_leaves_in_the_way_is_found(tmp_path):
    report = check_dataset(wrong.LeavesALock, {"folder": str(tmp_path)}, only="determinism", samples=24, seconds=20)
    (found,) = report.problems
    assert "with workers killed on the way, sample" in found.text
    assert "FileExistsError" in found.text
    assert "lock file" in found.remedy


@pytest.mark.usefixtures("weighs_little")
def test_a_dataset_that_cannot_be_built_again_does_not_stand_kills(tmp_path):
    (found,) = check_dataset(wrong.FailsTheSecondTime, {"folder": str(tmp_path)}, only="faults").problems
    assert "the index is there already" in found.text


@pytest.mark.usefixtures("weighs_little")
def test_other_bytes_under_fire_are_a_problem_of_faults_where_nobody_has_told_them_yet():
    (found,) = check_dataset(wrong.TellsTheTime, only="faults").problems
    assert "other bytes" in found.text
    both = check_dataset(wrong.TellsTheTime, only=["determinism", "faults"], samples=8)
    assert [one.check for one in both.problems] == ["determinism"]


@pytest.mark.usefixtures("weighs_little")
def test_settings_decide_what_is_wrong():
    assert check_dataset(wrong.Ragged, only="samples", ragged="list").is_ok
    assert check_dataset(wrong.Unbatchable, only=["samples"], collate_fn=len).is_ok


def test_what_there_is_no_time_for_is_told_as_not_looked_at():
    begun = time.monotonic()
    report = check_dataset(wrong.Hangs, seconds=3.0)
    assert time.monotonic() - begun < 60
    assert report.skipped
    assert "not looked at" in str(report)
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    assert not others  # nothing of it keeps the user's own start_method="fork" from its work
    with pytest.raises(AssertionError, match="PROBLEM"):
        report.assert_ok()


def test_a_dataset_that_cannot_be_built_is_told_once():
    report = check_dataset(wrong.CannotBeBuilt)
    assert [one.check for one in report.problems] == ["building"]
    assert len(report.skipped) == 8
    assert str(report).count("It cannot be built") == 1


@pytest.mark.parametrize(
    ("arguments", "settings", "told"),
    [
        ((wrong.Right,), {"only": "sped"}, "did you mean 'speed'"),
        ((wrong.Right,), {"samples": 0}, "above 0"),
        ((wrong.Right,), {"seconds": -1}, "above 0"),
        ((wrong.Right,), {"ragged": "maybe"}, "ragged must be 'error' or 'list'"),
        ((wrong.Right,), {"batchsize": 3}, "did you mean 'batch_size'"),
        ((wrong.Right(), {"count": 3}), {}, "dataset_kwargs go to a class"),
        ((iter([]),), {}, "cannot be asked for a sample by index"),
    ],
)
def test_a_wrong_call_is_refused(arguments: tuple, settings: dict, told: str):
    with pytest.raises(ConfigError, match=told):
        check_dataset(*arguments, **settings)
