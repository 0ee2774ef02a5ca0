"""`swift-loader shard create` and `convert`: what is written, of which sources, and what is refused."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from swift_loader import shards
from swift_loader.cli import main as cli
from swift_loader.cli.shard_reading import InOrder
from swift_loader.cli.shard_rows import sample_of
from swift_loader.shards.making import Making
from tests.shard_datasets import Pictures
from tests.unit.shards.sources import Mixed, digests

WRITTEN = Path(__file__).resolve().parents[1] / "shards" / "written"
MADE = "tests.shard_datasets:Pictures"


def run(*words: object) -> int:
    return cli.main(["shard", *map(str, words)])


def create(*words: object) -> int:
    return run("create", *words, "--workers", 0)


def jpeg() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 4), (200, 10, 10)).save(out, "JPEG")
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of images as most people have it."""
    for number, name in enumerate(("cat/a.jpeg", "cat/b.jpg", "dog/c.png")):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(path)
    return tmp_path / "images"


def test_a_dataset_becomes_a_set_and_called_again_it_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert create(MADE, tmp_path, "--kwargs", '{"count": 20}', "--maxcount", 8) == 0
    assert "20 samples in 3 shards" in capsys.readouterr().out
    before = digests(tmp_path)
    assert create(MADE, tmp_path, "--kwargs", '{"count": 20}', "--maxcount", 8, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["shards"], told["shards_found"], told["generation"]) == (3, 3, 1)
    assert digests(tmp_path) == before
    image, label = shards.ShardDataset(tmp_path, ("png", "cls"), decode="rgb8")[0]
    pictures = Pictures()
    assert any(np.array_equal(image, pictures[index][0]) and label == pictures[index][1] for index in range(20))


def test_what_is_drawn_is_drawn_by_the_number_of_the_sample(tmp_path: Path):
    words = ("tests.shard_datasets:Drawn", "--maxcount", 8, "--kwargs", '{"count": 20}')
    assert create(words[0], tmp_path / "a", *words[1:]) == 0
    assert create(words[0], tmp_path / "b", *words[1:]) == 0
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    for name in ("index.swift", "index-000001.swift", "shard-000001.tar", "shard-000002.tar"):
        (tmp_path / "b" / name).unlink()
    assert create(words[0], tmp_path / "b", *words[1:]) == 0
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_a_folder_of_images_keeps_its_files_and_the_names_of_its_classes(folder: Path, tmp_path: Path):
    assert create(folder, tmp_path / "set", "--no-shuffle") == 0
    dataset = shards.ShardDataset(tmp_path / "set", ("jpg;png", "cls"), decode=None)
    files = [path.read_bytes() for path in sorted(folder.rglob("*.*"))]
    assert [(bytes(image), label) for image, label in dataset] == list(zip(files, (0, 0, 1), strict=True))
    assert dataset.catalog.meta["notes"] == {"classes": ["cat", "dog"]}


def test_fields_key_and_quality_are_as_told(tmp_path: Path):
    assert create(MADE, tmp_path / "a", "--fields", "photo.jpg=0,label=1", "--quality", 20, "--maxsize", "10kB") == 0
    assert shards.ShardDataset(tmp_path / "a").fields == ["label.cls", "photo.jpg"]
    assert max(path.stat().st_size for path in (tmp_path / "a").glob("*.tar")) <= 10_000
    assert create("tests.unit.shards.sources:Mixed", tmp_path / "b", "--key", "text", "--no-shuffle") == 0
    assert shards.ShardDataset(tmp_path / "b").key(1) == "text 1"


def test_parts_are_put_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for part in ("1/2", "0/2"):
        assert create(MADE, tmp_path / "a", "--part", part) == 0
    assert "still to come" in capsys.readouterr().out
    assert len(shards.ShardDataset(tmp_path / "a")) == 200
    (tmp_path / "a" / "index.swift").unlink()
    (tmp_path / "a" / "index-000001.swift").unlink()
    assert run("index", tmp_path / "a", "--merge") == 0
    assert len(shards.ShardDataset(tmp_path / "a")) == 200


def test_a_set_grows_and_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert create(MADE, tmp_path, "--kwargs", '{"count": 5}') == 0
    assert create(MADE, tmp_path, "--kwargs", '{"count": 7}') == 1
    assert "--append, or --overwrite" in capsys.readouterr().err
    assert create(MADE, tmp_path, "--kwargs", '{"count": 7}', "--append") == 0
    assert len(shards.ShardDataset(tmp_path)) == 12
    assert create(MADE, tmp_path, "--kwargs", '{"count": 7}', "--overwrite") == 0
    assert len(shards.ShardDataset(tmp_path)) == 7


def test_a_dry_run_tells_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = (MADE, tmp_path / "set", "--kwargs", '{"count": 3000}', "--maxsize", "100kB")
    assert create(*words, "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "set").exists()
    assert create(*words, "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert (told["looked_at"], told["samples"]) == (256, made["samples"])
    assert told["nbytes"] == pytest.approx(made["nbytes"], rel=0.05)
    assert told["shards"] == pytest.approx(made["shards"], rel=0.05)
    assert create(*words, "--dry-run") == 0
    assert "nothing was written" in capsys.readouterr().out


def test_tar_files_are_a_source_and_convert_keeps_their_bytes(tmp_path: Path):
    shards.create(Mixed(20), tmp_path / "a", maxcount=8)
    assert run("convert", tmp_path / "a", tmp_path / "b", "--maxcount", 8, "--workers", 0) == 0
    one, other = (shards.ShardDataset(tmp_path / name, decode=None) for name in "ab")
    assert list(one.keys()) == list(other.keys())
    for first, second in zip(one, other, strict=True):
        assert first.pop("x.npy").tobytes() == second.pop("x.npy").tobytes()
        assert first == second
    assert np.array_equal(one.column("label.cls"), other.column("label.cls"))
    shard = [path.read_bytes() for path in sorted((tmp_path / "a").glob("*.tar"))]
    again = [path.read_bytes() for path in sorted((tmp_path / "b").glob("*.tar"))]
    ends = [data.index(b"__swift__/table") for data in shard]
    assert [data[:end] for data, end in zip(shard, ends, strict=True)] == [
        data[:end] for data, end in zip(again, ends, strict=True)
    ]
    assert create(f"{tmp_path / 'a'}/shard-*.tar", tmp_path / "c", "--fields", "cls=label.cls", "--no-shuffle") == 0
    assert shards.ShardDataset(tmp_path / "c").fields == ["cls"]
    assert run("convert", tmp_path / "a", tmp_path / "d", "--new-keys", "--workers", 0) == 0
    assert shards.ShardDataset(tmp_path / "d").key(3) == "000000003"


def test_sets_of_other_libraries_are_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run("convert", WRITTEN / "litdata_flat", tmp_path / "a", "--workers", 0) == 0
    source, made = shards.ShardDataset(WRITTEN / "litdata_flat"), shards.ShardDataset(tmp_path / "a")
    assert [sample["n"] for sample in source] == [sample["n.cls"] for sample in made]
    assert [sample["text"] for sample in source] == [sample["text"] for sample in made]
    assert run("convert", WRITTEN / "mds", tmp_path / "b", "--workers", 0) == 2
    assert "'pickled' is pickled" in capsys.readouterr().err
    fields = "jpg=jpeg,x=array,pixels=pil,cls=int"
    assert run("convert", WRITTEN / "mds", tmp_path / "b", "--fields", fields, "--workers", 0) == 0
    source, made = (
        shards.ShardDataset(WRITTEN / "mds", ("jpeg", "array", "pil", "int"), decode="rgb8"),
        shards.ShardDataset(tmp_path / "b", decode="rgb8"),
    )
    for one, other in zip(source, made, strict=True):
        for part, name in zip(one, ("jpg", "x.npy", "pixels.png", "cls"), strict=True):
            assert np.array_equal(part, other[name])


def test_rows_of_arrays_are_told_of_and_converted(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]):
    rows = np.arange(24).reshape(8, 3)
    for half in range(2):
        np.save(tmp_path / f"x-{half}.npy", rows[half * 4 : half * 4 + 4])
    assert run("index", tmp_path / "x-*.npy") == 0
    assert run("convert", tmp_path, tmp_path / "set", "--workers", 0) == 0
    assert np.array_equal([sample["x.npy"] for sample in shards.ShardDataset(tmp_path / "set")], rows)
    capfdbinary.readouterr()
    assert run("info", tmp_path) == 0
    assert b"arrays, <i8 (3,)" in capfdbinary.readouterr().out
    assert run("ls", tmp_path, "--json") == 0
    assert [json.loads(line)["fields"] for line in capfdbinary.readouterr().out.splitlines()] == [{"x": 24}] * 8
    assert run("cat", tmp_path, 5) == 0
    assert capfdbinary.readouterr().out == rows[5].tobytes()


def test_rows_of_parquet_files_come_in_their_order(tmp_path: Path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"image": {"bytes": jpeg(), "path": "a.jpg"}, "label": number, "v": [1.0, number]} for number in range(10)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=3)
    assert create(tmp_path / "a.parquet", tmp_path / "set") == 0
    dataset = shards.ShardDataset(tmp_path / "set", ("image.jpg", "label.cls", "v.npy"), decode=None)
    assert [label for _, label, _ in dataset] == list(range(10))
    assert bytes(dataset[3][0]) == jpeg()
    assert dataset[3][2].tolist() == [1.0, 3.0]


def test_datasets_of_the_hub_are_read_from_this_disk_with_their_files_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(os, "environ", {**os.environ, "HF_HOME": str(tmp_path / "home")})
    hub = pytest.importorskip("datasets")
    for offline in ("huggingface_hub.constants.HF_HUB_OFFLINE", "datasets.config.HF_HUB_OFFLINE"):
        monkeypatch.setattr(offline, True)  # the command sets both before it imports them: here they may have been
    hub.disable_progress_bars()
    features = hub.Features({"image": hub.Image(), "label": hub.ClassLabel(names=["cat", "dog"])})
    rows = {"image": [{"bytes": jpeg(), "path": None}] * 6, "label": [n % 2 for n in range(6)]}
    kept = hub.Dataset.from_dict(rows, features)
    hub.DatasetDict({"train": kept}).save_to_disk(tmp_path / "cats")
    kept.save_to_disk(tmp_path / "one")
    for number, name in enumerate(("cats", "cats:train", "one")):
        assert create(f"hf:{tmp_path}/{name}", tmp_path / f"set{number}", "--no-shuffle") == 0
        dataset = shards.ShardDataset(tmp_path / f"set{number}", ("image.jpg", "label.cls"), decode=None)
        assert [(bytes(image), label) for image, label in dataset] == [(jpeg(), n % 2) for n in range(6)]
        assert dataset.catalog.meta["notes"] == {"classes": ["cat", "dog"]}
    assert create(f"hf:{tmp_path}/cats:test", tmp_path / "other") == 2
    assert "name one of train" in capsys.readouterr().err
    assert create("hf:nobody/dogs", tmp_path / "other") == 2
    assert "not on this disk" in capsys.readouterr().err


def test_a_row_is_a_sample_without_what_is_empty(tmp_path: Path):
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    row = {"a": None, "b": [], "c": [1, 2], "d": ["x"], "e": {"bytes": None, "path": str(tmp_path / "a.wav")}}
    sample = sample_of(row)
    assert sample.pop("c").tolist() == [1, 2]
    assert sample == {"b": [], "d": ["x"], "e.wav": b"RIFF"}


def test_tokens_and_arrays_become_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tokens, table = tmp_path / "t.bin", tmp_path / "x.npy"
    np.arange(1000, dtype=np.uint16).tofile(tokens)
    np.save(table, np.arange(12.0).reshape(4, 3))
    assert create(tokens, tmp_path / "t") == 2
    assert '--kwargs \'{"length"' in capsys.readouterr().err
    assert create(tokens, tmp_path / "t", "--kwargs", '{"length": 99, "dtype": "uint16"}', "--no-shuffle") == 0
    assert create(table, tmp_path / "x", "--no-shuffle") == 0
    assert run("info", tmp_path / "t") == 0
    told = capsys.readouterr().out
    assert "tar, in rows" in told
    assert "arrays, <u2 (100,)" in told
    dataset = shards.ShardDataset(tmp_path / "t", "tokens.npy")
    assert (len(dataset), dataset[1].tolist()) == (10, list(range(99, 199)))
    assert shards.ShardDataset(tmp_path / "x", "x.npy")[2].tolist() == [6, 7, 8]


def test_rows_are_looked_at_and_converted_as_other_sets_are(tmp_path: Path, capfdbinary: Any):
    samples = [{"x.npy": np.full(3, at, np.int16), "cls": at % 2} for at in range(6)]
    shards.create(samples, tmp_path / "tar", shuffle=False)
    rows, back = tmp_path / "rows", tmp_path / "back"
    assert run("convert", tmp_path / "tar", rows, "--format", "rows", "--workers", 0) == 0
    assert run("convert", rows, back, "--no-small-members", "--workers", 0) == 0
    assert run("verify", rows) == run("verify", back) == run("info", back) == run("info", rows, "--sample", 2) == 0
    capfdbinary.readouterr()
    assert run("ls", rows, "--json") == 0
    assert json.loads(capfdbinary.readouterr().out.splitlines()[3]) == {
        "index": 3, "shard": "shard-000000.tar", "key": "000000003", "fields": {"cls": 1, "x.npy": 6},
    }  # fmt: skip
    for folder in (rows, back):
        assert run("cat", folder, 3, "x.npy") == 0
        assert np.load(io.BytesIO(capfdbinary.readouterr().out)).tolist() == [3, 3, 3]
        assert run("cat", folder, 3, "cls") == 0
        assert capfdbinary.readouterr().out == b"1"
    assert run("create", MADE, tmp_path / "pictures", "--rows", "--workers", 0) == 1
    assert b"rows are arrays and numbers, and field 'png'" in capfdbinary.readouterr().err


WRONG = [
    ("create", "nothing", "{}"),
    ("create", "train.bin", "{}"),
    ("create", "tokens.npy", "{}"),
    ("create", "nothing-*.tar", "{}"),
    ("create", "tests.shard_datasets:None_", "{}"),
    ("create", "builtins:set", "{}"),
    ("create", MADE, "{}", "--kwargs", "count=3"),
    ("create", MADE, "{}", "--fields", "jpg"),
    ("create", MADE, "{}", "--fields", "jpg=0,jpg=1"),
    ("create", MADE, "{}", "--part", "2/2"),
    ("create", MADE, "{}", "--part", "one"),
    ("create", MADE, "{}", "--part", "0/2", "--append"),
    ("create", MADE, "{}", "--maxsize", "huge"),
    ("create", MADE, "{}", "--quality", "0"),
    ("create", MADE, "{}", "--workers", "-1"),
    ("create", MADE, "ftp://bucket/set"),
    ("create", MADE, "s3:/bucket/set"),
    ("convert", "nothing", "{}"),
    ("convert", str(WRITTEN / "mds"), "{}", "--format", "mds"),
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_wrong_call_is_one_sentence_and_code_2(words: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(*(word.format(tmp_path / "set") if word == "{}" else word for word in words)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"swift-loader shard {words[0]}: ")
    assert told.err.count("\n") == 1
    assert not list(tmp_path.glob("set/*"))


@pytest.mark.parametrize(("word", "library"), [("a.parquet", "pyarrow"), ("hf:cats", "datasets")])
def test_a_library_that_is_missing_is_named(
    word: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.delitem(sys.modules, "swift_loader.cli.shard_parquet", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    assert create(tmp_path / word if library == "pyarrow" else word, tmp_path / "set") == 2
    assert f"pip install {library}" in capsys.readouterr().err


def test_a_sample_that_raises_is_told_with_its_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert create("tests.shard_datasets:Broken", tmp_path) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "sample 7 raised ValueError: this picture is broken" in lines[-1]
    assert "ValueError: this picture is broken" in lines[-2]


def test_a_sample_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert create("tests.shard_datasets:Odd", tmp_path) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "index 7" in told


def test_a_full_disk_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("swift_loader.shards.folder.FolderDraft.publish", fail)
    assert create(MADE, tmp_path) == 1
    assert capsys.readouterr().err == (
        "swift-loader shard create: No space left on device; make room, and call the same again\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_plan_gives_all_indices_in_order():
    indices = Making(shuffle=True).indices(100, 30)
    plan = InOrder(indices)
    batches = plan.indices(0, 0, 0, plan.step_count(0, 0))
    assert [index for batch in batches for index in batch] == list(indices)
    assert plan.indices(0, 0, 2, 1) == batches[2:3]
