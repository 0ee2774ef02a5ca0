"""Full shards go to a store that is far away several at a time: the bytes, and what is found, are the same."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swift_loader import ShardError
from swift_loader.shards import create, verify
from swift_loader.shards.folder import Folder

SAMPLES = [{"x.npy": np.full(3000, number % 256, np.uint8), "cls": number} for number in range(60)]


class Far(Folder):
    """A folder to which each object takes until others are on their way."""

    at_once = 3

    def __init__(self, path: Path, together: int = 3, fails: str = "") -> None:
        super().__init__(path, make=True)
        self.together, self.fails = threading.Barrier(together), fails
        self.under_way: list[int] = []

    def draft(self, name: str) -> Any:
        draft, publish = super().draft(name), None
        publish = draft.publish

        def when_others_are_on_their_way() -> None:
            self.under_way.append(sum(one.name.startswith("swift-upload") for one in threading.enumerate()))
            if name == self.fails:
                raise ShardError("the store is full")
            if name.startswith("shard-"):
                self.together.wait(30)
            publish()

        draft.publish = when_others_are_on_their_way
        return draft


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_as_many_as_the_store_bears_and_the_bytes_are_those_of_one_by_one(tmp_path: Path) -> None:
    plain = create(SAMPLES, tmp_path / "plain", maxcount=10)
    told: list[int] = []
    made = create(SAMPLES, Far(tmp_path / "far"), maxcount=10, progress=lambda one: told.append(one.shards))
    assert (made.shards, made.nbytes) == (plain.shards, plain.nbytes)
    assert bytes_in(tmp_path / "far").keys() == bytes_in(tmp_path / "plain").keys()
    assert verify(tmp_path / "far") == []
    for path in (tmp_path / "plain").glob("shard-*"):
        assert path.read_bytes() == (tmp_path / "far" / path.name).read_bytes()
    assert told[-1] == 6
    assert not [one for one in threading.enumerate() if one.name.startswith("swift-upload")]


def test_what_is_missing_between_those_that_were_there_is_written_by_the_next_call(tmp_path: Path) -> None:
    create(SAMPLES, Far(tmp_path / "far"), maxcount=10)
    before = bytes_in(tmp_path / "far")
    for path in [*(tmp_path / "far").glob("index*"), tmp_path / "far/shard-000002.tar"]:
        path.unlink()  # killed while the third was still on its way
    made = create(SAMPLES, Far(tmp_path / "far", together=1), maxcount=10)
    assert (made.shards_found, made.shards) == (2, 6)
    after = bytes_in(tmp_path / "far")
    assert {name: data for name, data in after.items() if "shard" in name} == {
        name: data for name, data in before.items() if "shard" in name
    }


def test_a_store_that_refuses_one_ends_it_and_leaves_nothing_half(tmp_path: Path) -> None:
    store = Far(tmp_path / "far", together=1, fails="shard-000001.tar")
    with pytest.raises(ShardError, match="the store is full"):
        create(SAMPLES, store, maxcount=10)
    assert all(name.startswith("shard-") for name in bytes_in(tmp_path / "far"))
    assert not [one for one in threading.enumerate() if one.name.startswith("swift-upload")]
    assert create(SAMPLES, tmp_path / "far", maxcount=10).shards == 6
    assert verify(tmp_path / "far") == []
