"""A secret reaches the workers, and nothing that others could read: no file, no text, no command line."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import pytest

from swift_loader import ConfigError, DataError, Secret, SwiftLoader
from swift_loader.reuse.origin import origin_of
from swift_loader.travel.payload import Unsendable, pack, unpack
from tests.locked_datasets import Locked, digest_of
from tests.slow import slow

TEXT = "correct-horse-battery-staple"


def _written_to(folder: Path) -> bytes:
    """All that any file below it holds."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def _watched(folder: Path) -> dict[str, object]:
    return {
        "logger": str(folder / "log"),
        "benchmark_file": str(folder / "benchmark.jsonl"),
        "trace_file": str(folder / "trace.json"),
        "replay_file": str(folder / "failed.replay"),
    }


@pytest.mark.parametrize("start_method", ["forkserver", slow("spawn"), slow("fork")])
def test_a_secret_reaches_workers_and_no_file(tmp_path: Path, start_method: str):
    settings = _watched(tmp_path)
    with SwiftLoader(
        Locked, {"key": Secret(TEXT)}, 2, 1, 2, start_method=start_method, allow_fork=True, **settings
    ) as loader:
        loader.start(0)
        batches = list(loader)
        told = repr(loader) + loader.report() + str(loader.state_dict())
    assert {one for batch in batches for one in batch["digest"]} == {digest_of(TEXT)}
    assert not any(batch["is_seen"].any() for batch in batches)
    assert os.getpid() not in {pid for batch in batches for pid in batch["pid"].tolist()}
    assert TEXT not in told
    assert TEXT.encode() not in _written_to(tmp_path)


def test_an_error_shows_no_secret_and_the_replay_file_is_not_written(tmp_path: Path):
    loader = SwiftLoader(Locked, {"key": Secret(TEXT), "refused": 5}, 2, 1, 1, shuffle=False, **_watched(tmp_path))
    with loader:
        loader.start(0)
        with pytest.raises(DataError, match="<Secret> does not open sample 5") as caught:
            list(loader)
    assert "Secret.from_environment" in str(caught.value.__notes__)
    assert "loader.replay(epoch=0, step=2)" in str(caught.value)
    assert not (tmp_path / "failed.replay").exists()
    texts = [str(caught.value), repr(caught.value.__cause__), *caught.value.__notes__]
    assert not any(TEXT in text for text in texts)
    assert TEXT.encode() not in _written_to(tmp_path)


def test_a_replay_file_names_the_variable_and_asks_for_it_again(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("STORE_KEY", TEXT)
    key = Secret.from_environment("STORE_KEY")
    with SwiftLoader(Locked, {"key": key}, 2, 1, 0, shuffle=False) as loader:
        loader.save_replay(tmp_path / "today.replay")
        batch = loader.replay(epoch=0, step=1)
    assert batch["digest"] == [digest_of(TEXT)] * 2
    written = _written_to(tmp_path)
    assert TEXT.encode() not in written
    assert b"STORE_KEY" in written


def test_a_file_is_refused_to_a_secret_without_a_variable_and_what_helps_is_told(tmp_path: Path):
    loader = SwiftLoader(Locked, {"key": Secret(TEXT)}, 2, 1, 0)
    with loader, pytest.raises(ConfigError, match=r"dataset_kwargs\['key'\] is a Secret.*from_environment") as caught:
        loader.save_replay(tmp_path / "today.replay")
    assert TEXT not in str(caught.value)
    assert _written_to(tmp_path) == b""


def test_a_pack_for_a_disk_holds_the_name_of_the_variable_alone(monkeypatch):
    monkeypatch.setenv("STORE_KEY", TEXT)
    secret = Secret.from_environment("STORE_KEY")
    packed = pack({"key": [secret]}, "disk")
    assert TEXT.encode() not in os.pread(packed.fd, 1 << 20, 0)
    monkeypatch.setenv("STORE_KEY", "another")
    assert unpack(packed.fd)["key"][0].reveal() == "another"
    packed = pack(secret, "disk")
    monkeypatch.delenv("STORE_KEY")
    with pytest.raises(ConfigError, match="environment variable STORE_KEY, which is not set here"):
        unpack(packed.fd)


def test_a_pack_for_a_worker_holds_it_even_in_what_is_sent_by_value():
    secret = Secret(TEXT)
    assert unpack(pack(lambda: secret).fd)().reveal() == TEXT
    with pytest.raises(Unsendable, match="Secret"):
        pack(lambda: secret, "disk")


def test_plain_pickle_takes_no_text():
    with pytest.raises(TypeError, match="never written to a file"):
        pickle.dumps({"key": Secret(TEXT)})


def test_a_secret_shows_nothing_of_itself(monkeypatch):
    monkeypatch.setenv("STORE_KEY", TEXT)
    known = Secret.from_environment("STORE_KEY")
    assert [f"{one} {one!r} {[one]}" for one in (Secret(TEXT), known)] == [
        "<Secret> <Secret> [<Secret>]",
        "<Secret $STORE_KEY> <Secret $STORE_KEY> [<Secret $STORE_KEY>]",
    ]
    assert not hasattr(known, "__dict__")
    assert known == Secret(TEXT) != Secret("another")
    assert len({known, Secret(TEXT)}) == 1
    assert copy.deepcopy([known])[0] is known


@pytest.mark.parametrize("wrong", ["", None, 3, b"bytes"])
def test_a_secret_is_a_text(wrong):
    with pytest.raises(ConfigError, match="a Secret is a text that is not empty"):
        Secret(wrong)


def test_another_key_makes_no_other_samples_so_a_cache_is_used_again():
    first, second = (origin_of(Locked, {"key": Secret(text), "refused": 1}, None, "") for text in (TEXT, "another"))
    assert first == second
