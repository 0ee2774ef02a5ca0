"""Rows B1 and B2 of the faults: samples that raise, and errors that are hard to carry to another process."""

from __future__ import annotations

import pickle
import re
import traceback
import tracemalloc
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from swift_loader import DataError, PoisonedTicket
from swift_loader.errors import FailureReport
from tests.fault.oracle import World
from tests.fault.raising import ODD, ExitsWhenMade, Leaves, Odd, Rotten, TellsNothing, Unreadable
from tests.fault.worlds import in_some_worlds, in_the_other_worlds
from tests.loaders import made, started

#: All that leaves a worker of one error.
MOST_NBYTES = 64 * 1024


@in_the_other_worlds
def test_b1_a_sample_that_raises_is_told_whole_and_the_loader_goes_on(world: World):
    def row() -> None:
        with started(Rotten, {"bad": (13,)}, shuffle=False, **world.settings) as loader:
            for epoch in range(2):
                iterator = iter(loader)
                assert next(iterator)["index"].tolist() == list(range(8))
                with pytest.raises(DataError) as raised:
                    next(iterator)
                _check_what_was_told(raised.value, epoch)
                assert [batch["index"][0].item() for batch in iterator] == [16, 24, 32, 40, 48, 56]

    world.run(row)


def _check_what_was_told(error: DataError, epoch: int) -> None:
    where = rf"fetch of sample 13 raised Unreadable: .*\(consumer 0, worker [0-3], epoch {epoch}, step 1\)"
    assert re.search(where, str(error))
    original = error.__cause__
    assert type(original) is Unreadable
    assert (original.path, original.code) == ("/data/13", 77)
    told = str(original.__cause__)
    for line in ("in __getitem__", "self.read(index)", "in read", "OSError: [Errno 5] the disc", "direct cause of"):
        assert line in told
    assert told.index("OSError") < told.index("direct cause of") < told.index("Unreadable: ('/data/13', 77)")


def _values(loader: Any) -> dict[int, Any]:
    """Each sample's values, in the order in which they came."""
    found = {}
    for batch in loader:
        for row, index in enumerate(batch["index"].tolist()):
            assert index not in found
            found[index] = (batch["noise"][row].item(), batch["pixels"][row].tolist())
    return found


@in_some_worlds
def test_b1_with_skip_exactly_those_samples_are_missing_and_they_are_counted_and_listed(world: World, tmp_path: Path):
    bad = (0, 13, 14, 63)
    given = {"on_error": "skip", "random_per": "sample"}
    with made(Rotten, {"bad": ()}, **given, worker_per_consumer=0) as faultless:
        expected = _values(faultless)

    def row() -> tuple[dict[int, Any], float]:
        log = str(tmp_path / "log")
        with started(Rotten, {"bad": bad}, logger=log, **given, **world.settings) as loader:
            return _values(loader), loader.statistics()["samples_skipped"]

    found, count = world.run(row)
    assert list(found.items()) == [(index, value) for index, value in expected.items() if index not in bad]
    assert count == len(bad)
    listed = "\n".join(path.read_text() for path in tmp_path.glob("log*"))
    assert sorted(int(i) for i in re.findall(r"a sample was left out.*?index\W+(\d+)", listed)) == list(bad)
    assert "/data/13" in listed


# B2 -----------------------------------------------------------------------------------------------------------------


@in_some_worlds
def test_b2_an_error_that_is_hard_to_carry_arrives_as_text(world: World):
    given = {**world.settings, "batch_size": 1, "shuffle": False, "validate": False}

    def row() -> None:
        with started(Odd, {"count": len(ODD)}, **given) as loader:
            iterator = iter(loader)
            for index, (name, (_, told)) in enumerate(ODD.items()):
                with pytest.raises(DataError, match=rf"(?s)fetch of sample {index} raised {told}") as caught:
                    next(iterator)
                assert len(str(caught.value).encode("utf-8", "surrogatepass")) < MOST_NBYTES, name
                assert "__getitem__" in _remote(caught.value), name

    world.run(row)


def _remote(error: BaseException) -> str:
    """The worker's traceback: the last of the chain of causes."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error.text  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("name", [name for name in ODD if name != "Ctrl-C"])
def test_b2_what_leaves_a_worker_of_an_error_is_small_and_soon_there(name: str):
    ExitsWhenMade.made = False
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - of all kinds
        ODD[name][0]()
    tracemalloc.start()
    try:
        begun = monotonic()
        report = FailureReport.of(caught.value, "fetch", 3)
        took_s = monotonic() - begun
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(pickle.dumps(report, protocol=5)) < MOST_NBYTES
    assert peak < 8 << 20, "the error was copied"
    assert took_s < 20  # it would be for ever, or for minutes
    assert report.exception() is not None


@pytest.mark.soak
def test_b2_a_text_of_a_gigabyte():
    tracemalloc.start()
    try:
        error = ValueError("x" * (1 << 30))
        tracemalloc.reset_peak()
        assert len(pickle.dumps(FailureReport.of(error, "fetch", 3))) < MOST_NBYTES
        assert tracemalloc.get_traced_memory()[1] < (1 << 30) + (8 << 20)
    finally:
        tracemalloc.stop()


def test_b2_an_ordinary_error_is_told_as_python_tells_it():
    with pytest.raises(Unreadable) as caught:
        Rotten((3,)).read(3)
    report = FailureReport.of(caught.value, "fetch")
    assert report.traceback == "".join(traceback.format_exception(caught.value))


@pytest.mark.filterwarnings("ignore:swift-worker:RuntimeWarning")  # that it stands still, which other tests are about
def test_b2_an_error_whose_text_never_comes_is_a_sample_that_hangs():
    given = {"shuffle": False, "timeout_s": 0.5, "max_attempts": 1, "validate": False}
    with started(TellsNothing, **given) as loader, pytest.raises(PoisonedTicket, match=r"no progress.* sample 5"):
        next(iter(loader))


def test_b2_without_workers_ctrl_c_and_exit_are_the_users_own():
    for kind, error in (("Ctrl-C", KeyboardInterrupt), ("exit", SystemExit)):
        with started(Leaves, {"how": kind}, worker_per_consumer=0) as loader, pytest.raises(error):
            next(iter(loader))
