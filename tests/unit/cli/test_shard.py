"""`swift-loader shard`: what the commands print, and how they fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from swift_loader import shards
from swift_loader.cli import main as cli
from swift_loader.cli.shard_bar import Far, ShardBar
from tests.unit.shards.sources import Mixed


@pytest.fixture
def a_set(tmp_path: Path) -> str:
    shards.create(Mixed(20), tmp_path / "set", maxcount=8)
    return str(tmp_path / "set")


@pytest.fixture
def tars(a_set: str) -> str:
    """Tar files of a set that has no index and, as far as anybody sees, no tables."""
    for path in Path(a_set).glob("shard-*"):
        data = path.read_bytes()
        path.write_bytes(data[: data.rindex(b"__swift__/table")] + bytes(1024))
    for path in Path(a_set).glob("index*"):
        path.unlink()
    return a_set


def run(*words: object) -> int:
    return cli.main(["shard", *map(str, words)])


def damage(path: Path, key: str) -> None:
    """One bit of a sample's first field, which is behind the block that has its name."""
    data = bytearray(path.read_bytes())
    data[data.index(key.encode()) + 512 + 5] ^= 1
    path.write_bytes(data)


def test_info_says_what_a_set_is(a_set: str, capsys: pytest.CaptureFixture[str]):
    assert run("info", a_set) == 0
    told = capsys.readouterr().out
    assert "20 samples" in told
    assert "3 shards" in told
    assert "arrays, <f4 (2, 3)" in told
    assert run("info", a_set, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["samples"], told["shards"], told["generation"], told["complete"]) == (20, 3, 1, True)
    assert [field["name"] for field in told["fields"]][:2] == ["jpg", "label.cls"]


def test_info_tells_of_a_shard_and_of_a_sample_and_saves_it(
    a_set: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run("info", a_set, "--shard", 2, "--json") == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 4
    assert run("info", a_set, "--sample", 9, "--save", tmp_path / "out", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    sample = Mixed(20)[int(told["key"])]
    assert (tmp_path / "out" / "000000009.jpg").read_bytes() == sample["jpg"]
    assert told["numbers"]["label.cls"] == sample["label"]
    assert len(told["saved"]) == len(told["sizes"])


def test_info_tells_what_an_epoch_costs(a_set: str, capsys: pytest.CaptureFixture[str]):
    assert run("info", a_set, "--plan", "batch=4,consumers=2,nodes=2,cache=1GB") == 0
    told = capsys.readouterr().out
    assert "3 steps" in told
    assert "100 % of later epochs" in told


def test_ls_lists_samples_and_cat_gives_bytes_alone(a_set: str, capfdbinary: pytest.CaptureFixture[bytes]):
    assert run("ls", a_set, "--json") == 0
    listed = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [line["index"] for line in listed] == list(range(20))
    assert run("ls", a_set, "--most", 2) == 0
    assert len(capfdbinary.readouterr().out.splitlines()) == 2
    assert run("cat", a_set, 7, "jpg") == 0
    assert capfdbinary.readouterr().out == Mixed(20)[int(listed[7]["key"])]["jpg"]


def test_verify_lists_what_is_damaged(a_set: str, capsys: pytest.CaptureFixture[str]):
    assert run("verify", a_set) == 0
    key = shards.ShardDataset(a_set).key(0)
    damage(Path(a_set) / "shard-000000.tar", key)
    capsys.readouterr()
    assert run("verify", a_set) == 1
    told = capsys.readouterr().out
    assert "shard-000000.tar  byte 512" in told
    assert key in told
    assert run("verify", a_set, "--json") == 1
    (damaged,) = json.loads(capsys.readouterr().out)["damages"]
    assert (damaged["shard"], damaged["offset"], damaged["key"]) == ("shard-000000.tar", 512, key)


def test_verify_may_look_at_some_samples_alone(a_set: str, monkeypatch: pytest.MonkeyPatch):
    from swift_loader.shards import verifying

    looked: list[int] = []
    chosen = verifying._chosen
    monkeypatch.setattr(verifying, "_chosen", lambda *told: [looked.extend(chosen(*told)), chosen(*told)][1])
    assert run("verify", a_set, "--sample", "25%") == 0
    assert len(looked) == 2 + 2 + 1


def test_tar_files_of_others_are_indexed_and_looked_through(
    tars: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run("verify", tars) == 2
    assert "shard index" in capsys.readouterr().err
    assert run("index", tars, "--index-to", tmp_path / "index", "--workers", 1) == 0
    assert "20 samples, 3 shards" in capsys.readouterr().out
    assert run("index", tars, "--index-to", tmp_path / "index", "--workers", 2) == 0
    assert "3 of 3 shards are there" in capsys.readouterr().err
    assert run("index", tars, "--index-to", tmp_path / "index", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["samples"], told["shards"], told["generation"]) == (20, 3, 1)
    assert run("verify", tars, "--index", tmp_path / "index") == 0
    assert run("verify", f"{tars}/shard-*.tar", "--index", tmp_path / "index") == 0
    key = shards.ShardDataset(tars, index=tmp_path / "index").key(0)
    damage(Path(tars) / "shard-000000.tar", key)
    assert run("verify", tars, "--index", tmp_path / "index") == 1
    assert key in capsys.readouterr().out


def test_damage_between_the_samples_of_others_is_found(tars: str, capsys: pytest.CaptureFixture[str]):
    assert run("index", tars, "--workers", 1) == 0
    path = Path(tars) / "shard-000001.tar"
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    assert run("verify", tars) == 1
    assert "between the samples" in capsys.readouterr().out


WRONG = [
    ("info", "{}", "--plan", "gpus=3"),
    ("info", "{}", "--plan", "batch=many"),
    ("info", "{}", "--plan", "consumers=3,nodes=2"),
    ("info", "{}", "--shard", "3"),
    ("info", "{}", "--sample", "20"),
    ("info", "{}", "--save", "x"),
    ("info", "{}", "--generation", "7"),
    ("info", "nowhere"),
    ("ls", "ftp://bucket/set"),
    ("cat", "{}", "20", "jpg"),
    ("cat", "{}", "3"),
    ("cat", "{}", "3", "png"),
    ("verify", "nowhere"),
    ("index", "nowhere"),
    ("index", "{}", "--merge", "--index-to", "x"),
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_wrong_call_is_one_sentence_and_code_2(words: list[str], a_set: str, capsys: pytest.CaptureFixture[str]):
    assert run(*(word.format(a_set) for word in words)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"swift-loader shard {words[0]}: ")
    assert told.err.count("\n") == 1


def test_what_is_damaged_is_one_sentence_and_code_1(a_set: str, capsys: pytest.CaptureFixture[str]):
    damage(Path(a_set) / "shard-000000.tar", shards.ShardDataset(a_set).key(0))
    assert run("cat", a_set, 0, "jpg") == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "checksum is wrong (at byte 512; sample" in told.err
    (Path(a_set) / "index.swift").write_bytes(b"x" * 5000)
    assert run("info", a_set) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_share_is_a_percentage_or_a_part(capsys: pytest.CaptureFixture[str]):
    for word in ("0", "101%", "2", "half", "-1%"):
        with pytest.raises(SystemExit) as left:
            run("verify", "x", f"--sample={word}")
        assert left.value.code == 2


def test_on_a_terminal_there_is_a_bar_which_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    now = 0.0
    monkeypatch.setattr("swift_loader.cli.shard_bar.time.monotonic", lambda: now)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with ShardBar("create") as shown:
        for second in (0, 100, 101, 110):  # workers take a while to start
            now = float(second)
            shown(Far(max(0, second - 99) * 100, 5000, "sample", second // 20, second * 1_000_000))
    frames = [frame for frame in capsys.readouterr().err.split("\r") if frame.strip()]
    assert frames[-1].startswith("create |")
    assert frames[-1].endswith("|  22 %, 5 shards, 110 MB, 100 samples/s, 1 MB/s, 39 s left")
    assert max(map(len, frames)) <= 78


def test_without_a_terminal_a_line_comes_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    now = 0.0
    monkeypatch.setattr("swift_loader.cli.shard_bar.time.monotonic", lambda: now)
    with ShardBar("create") as shown:
        for second in range(25):
            now = float(second)
            shown(Far(second * 100, 5000, "sample", second // 5, second * 1_000_000))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "create: 1,000 of 5,000 samples, 2 shards, 10 MB, 100 samples/s, 1 MB/s, 40 s left",
        "create: 2,000 of 5,000 samples, 4 shards, 20 MB, 100 samples/s, 1 MB/s, 30 s left",
    ]
