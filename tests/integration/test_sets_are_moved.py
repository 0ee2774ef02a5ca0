"""A set goes to another store and comes back, shard by shard; what is damaged is mended from another copy."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from swift_loader.cli.shard_transfer import numbers_of
from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards import ShardDataset, create, store_at, verify
from swift_loader.shards.repairing import repair
from swift_loader.shards.transfer import transfer
from tests.s3_server import S3Server
from tests.slow import slow

ROOT = Path(__file__).resolve().parents[2]
COUNT = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("set")
    rng = np.random.default_rng(0)
    create([{"bin": rng.bytes(700 + number), "cls": number % 7} for number in range(COUNT)], folder, maxcount=16)
    return folder


def digests(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_arrives_is_the_same_bytes_and_a_second_call_moves_nothing(made: Path, tmp_path: Path) -> None:
    source, target = store_at(made), store_at(tmp_path / "copy", make=True)
    seen: list[tuple[int, int]] = []
    told = transfer(source, target, progress=lambda one: seen.append((one.shards, one.samples)))
    assert (told.shards, told.samples, told.shards_found, told.generation) == (4, COUNT, 0, 1)
    assert (seen[0], seen[-1]) == ((0, 0), (4, COUNT))
    assert digests(tmp_path / "copy") == digests(made)
    (tmp_path / "copy" / "shard-000002.tar").unlink()
    (tmp_path / "copy" / "index.swift").unlink()
    assert transfer(source, target).shards_found == 3
    assert digests(tmp_path / "copy") == digests(made)


def test_some_shards_are_a_set_of_their_own(made: Path, tmp_path: Path) -> None:
    told = transfer(store_at(made), store_at(tmp_path, make=True), shards=numbers_of("3,0..1"))
    assert told.shards == 3
    some = ShardDataset(tmp_path, "cls")
    assert len(some) == told.samples == COUNT - 16
    assert verify(tmp_path) == []
    for wrong in ("1,1", "x", "3..1"):
        with pytest.raises(ConfigError, match="--shards"):
            numbers_of(wrong)
    with pytest.raises(ConfigError, match="no shard 9"):
        transfer(store_at(made), store_at(tmp_path / "a", make=True), shards=[9])


def test_nothing_damaged_is_passed_on_and_no_other_set_written_over(made: Path, tmp_path: Path) -> None:
    for name, data in digests(made).items():
        (tmp_path / name).write_bytes(data)
    path = tmp_path / "shard-000001.tar"
    hurt = bytearray(path.read_bytes())
    hurt[3000] ^= 4
    path.write_bytes(hurt)
    target = store_at(tmp_path / "copy", make=True)
    with pytest.raises(ShardError, match="shard-000001"):
        transfer(store_at(tmp_path), target)
    assert not (tmp_path / "copy" / "shard-000001.tar").exists()
    assert not (tmp_path / "copy" / "index.swift").exists()
    create([{"cls": 1}], tmp_path / "other")
    with pytest.raises(ShardError, match="another set"):
        transfer(store_at(made), store_at(tmp_path / "other"))


@pytest.mark.parametrize("seed", [0, 1, *map(slow, range(2, 40))])
def test_any_damage_is_mended_and_little_is_read_for_it(made: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    expected = digests(made)
    for name, data in expected.items():
        hurt = bytearray(data)
        kind = rng.choice(["none", "flip", "flip", "cut", "gone"])
        if kind == "flip":
            hurt[rng.randrange(len(hurt))] ^= 1 << rng.randrange(8)
        elif kind == "cut":
            del hurt[rng.randrange(len(hurt)) :]
        if kind != "gone" or name.startswith("index-"):
            (tmp_path / name).write_bytes(hurt)
    damages = verify(tmp_path)
    repair(store_at(tmp_path), store_at(made), damages)
    assert digests(tmp_path) == expected


def test_one_sample_is_mended_by_its_bytes_and_the_table(made: Path, tmp_path: Path) -> None:
    for name, data in digests(made).items():
        (tmp_path / name).write_bytes(data)
    path = tmp_path / "shard-000000.tar"
    hurt = bytearray(path.read_bytes())
    hurt[700] ^= 1
    path.write_bytes(hurt)
    done = repair(store_at(tmp_path), store_at(made), verify(tmp_path))
    assert (done.shards, done.catalogs) == (1, 0)
    assert done.nbytes < len(hurt) / 2
    assert verify(tmp_path) == []
    create([{"cls": 1}], tmp_path / "other")
    with pytest.raises(ShardError, match="no copy"):
        repair(store_at(tmp_path), store_at(tmp_path / "other"), [])


@pytest.mark.slow
def test_the_commands_on_a_real_server(s3_server: S3Server, made: Path, tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "AWS_ACCESS_KEY_ID": s3_server.access_key}
    env |= {"AWS_SECRET_ACCESS_KEY": s3_server.secret_key, "AWS_ENDPOINT_URL": s3_server.endpoint}

    def shard(*words: object) -> tuple[int, str]:
        command = [sys.executable, "-m", "swift_loader.cli.main", "shard", *map(str, words)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
        assert s3_server.secret_key not in done.stdout + done.stderr
        return done.returncode, done.stdout + done.stderr

    url = "s3://new-bucket/a/set"
    assert shard("upload", made, url)[0] == 0
    code, said = shard("upload", made, url)
    assert (code, "4 of them were there" in said) == (0, True)
    code, said = shard("download", url, tmp_path / "back")
    assert (code, digests(tmp_path / "back")) == (0, digests(made))
    hurt = tmp_path / "back" / "shard-000001.tar"
    hurt.write_bytes(hurt.read_bytes()[:-5000])
    code, said = shard("verify", tmp_path / "back", "--repair-from", url)
    assert (code, digests(tmp_path / "back")) == (0, digests(made)), said
    assert shard("verify", url)[0] == 0
    assert shard("index", url)[0] == 0
    code, said = shard("download", "s3://new-bucket/none", tmp_path / "none")
    assert code == 2
    assert "no set" in said
    env["AWS_SECRET_ACCESS_KEY"] = "wrong-secret-0123"
    code, said = shard("verify", url)
    assert (code, "403" in said, "0123" in said) == (1, True, False)
