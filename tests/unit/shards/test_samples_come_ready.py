"""What else than samples `create` takes: samples that are ready, and notes."""

import pickle

import pytest

from swift_loader import shards
from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards.making import Making
from swift_loader.shards.prepared import Prepared
from tests.unit.shards.sources import Mixed, digests


def test_notes_stand_in_the_catalog(tmp_path):
    shards.create(Mixed(4), tmp_path, notes={"classes": ["a", "b"]})
    catalog = shards.read_catalog(shards.store_at(tmp_path))
    assert catalog.meta["notes"] == {"classes": ["a", "b"]}
    with pytest.raises(ConfigError, match="notes"):
        shards.create(Mixed(4), tmp_path / "other", notes={"text": "x" * (1 << 20)})


def test_samples_may_come_ready_from_processes_that_encode_them(tmp_path):
    making = Making(name="one", maxcount=50)
    prepared = pickle.loads(pickle.dumps(Prepared(Mixed(), making)))
    shards.create(Mixed(), tmp_path / "a", name="one", maxcount=50)
    shards.create(
        Mixed(), tmp_path / "b", name="one", maxcount=50,
        read=lambda indices: [pickle.loads(pickle.dumps(prepared[index])) for index in indices],
    )  # fmt: skip
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    broken = Prepared([{"x": object()}], making)
    with pytest.raises(ShardError, match="cannot be written"):
        shards.create([0], tmp_path / "c", read=lambda indices: [pickle.loads(pickle.dumps(broken[0]))])
