"""Sets of MosaicML's streaming and of LitData are read where they lie, and equal to what their writers were given.

The sets in `written/` are those writers' own bytes (`written/write_them.py` wrote them): the packages are not needed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from swift_loader import SwiftLoader
from swift_loader.errors import ConfigError, DataError, ShardError, SwiftLoaderError
from swift_loader.shards import ShardDataset, index
from tests.unit.shards.attacked import prompt_and_small
from tests.unit.shards.written import samples
from tests.unit.shards.written.samples import COUNT

WRITTEN = Path(__file__).parent / "written"
TREES = {
    "tree": lambda number: samples.tree(number, torch.as_tensor), "flat": samples.flat, "leaf": samples.leaf,
    "lists": samples.lists,
    "pair": lambda number: samples.pair(number, torch.as_tensor),
}  # fmt: skip


def same(found: Any, expected: Any) -> bool:
    """Whether a sample is what the writer was given; pictures in the one form that `decode` gives all of them."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return type(found) is type(expected) and len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, bytes) and isinstance(found, Image.Image):  # a JPEG
        expected = samples.picture(round(np.asarray(found)[..., 0].mean() / 10))
    if isinstance(expected, Image.Image):
        difference = np.asarray(found).astype(int) - np.asarray(expected.convert("RGB"))
        return bool(found.mode == "RGB" and np.abs(difference).max() <= 8)  # a JPEG is not what it was made of
    if isinstance(expected, np.ndarray | torch.Tensor):
        return type(found) is type(expected) and found.dtype == expected.dtype and bool((found == expected).all())
    if isinstance(expected, float):
        return bool(found == expected)
    return bool(found == expected)


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(WRITTEN / name, folder / name))


def changed(folder: Path, change: Any) -> Path:
    told = json.loads((folder / "index.json").read_text())
    change(told)
    (folder / "index.json").write_text(json.dumps(told))
    return folder


def test_what_mosaicml_wrote_is_read_equal() -> None:
    dataset = ShardDataset(WRITTEN / "mds", allow_pickle=True)
    assert (len(dataset), len(dataset.catalog.rows)) == (COUNT, 3)
    for number in range(COUNT):
        assert same(dataset[number], dict(sorted(samples.mds(number).items())))
    assert type(dataset[1]["int"]) is int
    assert type(dataset[1]["float"]) is np.float32
    assert dataset.key(4) == "000000004"
    for name in ("int", "float", "uint8", "float64"):
        assert dataset.column(name).tolist() == [
            np.float32(samples.mds(n)[name]) if name == "float" else samples.mds(n)[name] for n in range(COUNT)
        ]
    assert dataset.where(int=[2, 4]).indices.tolist() == [2, 4]
    with pytest.raises(ConfigError, match="no column 'text': there is float, float64, int, uint8"):
        dataset.column("text")


@pytest.mark.parametrize("name", TREES)
def test_what_litdata_wrote_is_read_equal(name: str) -> None:
    dataset = ShardDataset(WRITTEN / f"litdata_{name}", allow_pickle=True)
    assert len(dataset) == COUNT
    for number in range(COUNT):
        assert same(dataset[number], TREES[name](number))


def test_parts_of_samples_are_asked_for_by_name() -> None:
    assert ShardDataset(WRITTEN / "mds", ("int", "nothing;text", "__key__"))[3] == (3, "text 3", "000000003")
    assert ShardDataset(WRITTEN / "mds", "png", decode="rgb8")[3].tolist() == [[[30, 7, 9]] * 5] * 4
    assert ShardDataset(WRITTEN / "mds", "pil", decode="l8")[3].tolist() == [[3] * 5] * 4
    assert ShardDataset(WRITTEN / "mds", "pil", decode="torchrgb8")[3].shape == (3, 4, 5)
    assert ShardDataset(WRITTEN / "mds", "jpeg", decode=None)[3] == samples.jpeg(3)
    assert ShardDataset(WRITTEN / "litdata_tree", ("nested.1.1.z", "int"))[3] == ("3", 3)


def test_pickles_are_refused_at_once_unless_they_are_allowed() -> None:
    for name, field in (("mds", "pickled"), ("litdata_tree", "none")):
        for fields in (None, field, (field, "int")):
            with pytest.raises(ConfigError, match=f"field '{field}': it is pickled.*allow_pickle=True"):
                ShardDataset(WRITTEN / name, fields)
        assert ShardDataset(WRITTEN / name, "int")[2] == 2


def test_numbers_and_arrays_go_straight_to_their_rows() -> None:
    dataset = ShardDataset(WRITTEN / "mds", ("array", "int", "float"))
    array, number, half = np.zeros((4, 2, 3), np.float32), np.zeros(4, np.int64), np.zeros(4, np.float32)
    dataset.read_into([4, 0, 3, 3], (array, number, half))
    assert (array[:, 1, 2].tolist(), number.tolist(), half.tolist()) == ([4, 0, 3, 3], [4, 0, 3, 3], [2, 0, 1.5, 1.5])
    rows = np.zeros((2, 5), np.float32)
    ShardDataset(WRITTEN / "litdata_leaf").read_into([4, 1], rows)
    assert rows.tolist() == [[4] * 5, [1] * 5]
    for fields in ("shaped", "text", None):
        assert not hasattr(ShardDataset(WRITTEN / "mds", fields, allow_pickle=True), "read_into")
    assert not hasattr(ShardDataset(WRITTEN / "litdata_tree", allow_pickle=True), "read_into")


@pytest.mark.parametrize("fields", [("array", "int", "float", "float64", "uint8"), ("array", "int", "text")])
def test_a_loader_makes_the_batches_that_samples_make(fields: tuple[str, ...]) -> None:
    loader = SwiftLoader.from_dataset(
        ShardDataset(WRITTEN / "mds", fields), 5, nb_consumer=1, worker_per_consumer=0, shuffle=False
    )
    with loader:
        (batch,) = list(loader)
    expected = torch.utils.data.default_collate([tuple(samples.mds(n)[f] for f in fields) for n in range(COUNT)])
    for found, wanted in zip(batch, expected, strict=True):
        assert list(found) == list(wanted) if isinstance(found, list | tuple) else bool((found == wanted).all())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["mds", "litdata_tree"])
def test_checksums_are_made_when_they_are_asked_for(tmp_path: Path, name: str, workers: int) -> None:
    folder = copied(name, tmp_path)
    with pytest.raises(ConfigError, match="reads this as it is; checksums=True"):
        index(str(folder))
    before = ShardDataset(folder, allow_pickle=True)
    catalog = index(str(folder), checksums=True, workers=workers)
    dataset = ShardDataset(folder, allow_pickle=True)
    assert (dataset.generation, catalog.samples, len(dataset.catalog.rows)) == (1, COUNT, len(before.catalog.rows))
    for number in range(COUNT):
        assert same(dataset[number], before[number])
        assert dataset.key(number) == before.key(number)
    assert index(str(folder), checksums=True).digest == catalog.digest
    path = folder / dataset.catalog.name(0)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ShardError, match="a sample is damaged"):
        [ShardDataset(folder, allow_pickle=True)[number] for number in range(COUNT)]


COMPRESSED = {
    "mds": lambda told: told["shards"][0].update(compression="zstd:3", zip_data={"basename": "x.mds.zstd"}),
    "litdata_flat": lambda told: told["config"].update(compression="zstd"),
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_what_is_compressed_is_refused_with_advice(tmp_path: Path, name: str) -> None:
    folder = changed(copied(name, tmp_path), COMPRESSED[name])
    if name == "mds":
        assert len(ShardDataset(folder, "int")) == COUNT  # the plain ones are there too
        (folder / "shard.00000.mds").unlink()
    with pytest.raises(ConfigError, match=r"is compressed.*without compression="):
        ShardDataset(folder, "int")


def test_other_loaders_of_litdata_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has tokens: TokenDataset\("):
        ShardDataset(WRITTEN / "litdata_tokens")
    for change, text in (
        (lambda told: told["config"].update(item_loader="ParquetLoader"), "ParquetLoader, which is not read"),
        (lambda told: told["config"].update(encryption={"algorithm": "fernet"}), "is encrypted"),
        (lambda told: told["config"].update(data_format=["str", "hologram", "int"]), "hologram"),
        (lambda told: told["config"].update(data_format=["str", "no_header_numpy:99", "int"]), "dtype '99'"),
        (lambda told: told["config"].update(data_format=["str"]), "other leaves"),
        (
            lambda told: told["config"].update(data_spec='[1, {"type": "a.B", "context": "1", "children_spec": []}]'),
            "a.B",
        ),
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with pytest.raises(SwiftLoaderError, match=text):
            ShardDataset(changed(copied("litdata_flat", folder), change))


def test_columns_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for change in (
        lambda one: one["column_encodings"].__setitem__(0, "ndarray:object:2,3"),
        lambda one: one["column_encodings"].__setitem__(0, "ndarray:float32:0,3"),
        lambda one: one["column_encodings"].__setitem__(0, "list[list[hologram]]"),
        lambda one: one["column_encodings"].pop(),
        lambda one: one["column_sizes"].__setitem__(0, -4),
        lambda one: one["column_sizes"].__setitem__(0, 1 << 50),
        lambda one: one["column_sizes"].__setitem__(0, None),
        lambda one: one["column_names"].__setitem__(0, "bytes"),
        lambda one: one["raw_data"].update(basename="../x"),
        lambda one: one["raw_data"].update(bytes=-1),
        lambda one: one.update(samples=1 << 40),
        lambda one: one.update(samples="many"),
        lambda one: one.update(format="csv"),
        lambda one: one.pop("raw_data"),
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        copied("mds", folder)
        with pytest.raises(SwiftLoaderError):
            ShardDataset(
                changed(folder / "mds", lambda told, change=change: change(told["shards"][0])), allow_pickle=True
            )


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"shards": 3}', '{"shards": []}', '{"chunks": [], "config": {}}', "[" * 100_000]
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ShardError, match=r"index\.json"):
        ShardDataset(tmp_path)


def read_all(folder: Path) -> None:
    try:
        dataset = ShardDataset(folder, allow_pickle=False, fields=FIELDS[folder.name])
    except (ShardError, ConfigError):
        return
    for number in range(min(len(dataset), 20)):
        try:
            dataset[number]
        except (ShardError, DataError):
            pass


FIELDS: dict[str, Any] = {
    "mds": [name for name in samples.MDS_COLUMNS if name != "pickled"],
    "litdata_tree": [
        "int",
        "float",
        "text",
        "bytes",
        "tensor",
        "vector",
        "numpy",
        "numbers",
        "pil",
        "bool",
        "nested.1.1.z",
    ],
}


@settings(deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", FIELDS)
def test_s8_whatever_their_files_hold_is_read_or_refused_at_once(tmp_path_factory: Any, name: str, data: Any) -> None:
    folder = copied(name, tmp_path_factory.mktemp("s8"))
    paths = sorted(path for path in folder.iterdir() if path.name != "index.json")
    path = data.draw(st.sampled_from(paths))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.one_of(st.integers(0, 200), st.integers(0, len(content) - 1))) % len(content)
        content[place] = data.draw(st.one_of(st.sampled_from([0, 1, 127, 255]), st.integers(0, 255)))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    path.write_bytes(content)
    with prompt_and_small(COUNT + 1):
        read_all(folder)
    shutil.rmtree(folder.parent)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


@settings(deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", FIELDS)
def test_s8_whatever_their_index_tells_is_read_or_refused_at_once(tmp_path_factory: Any, name: str, data: Any) -> None:
    told = json.loads((WRITTEN / name / "index.json").read_text())
    at = told
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(at[key], dict | list) and at[key] and data.draw(st.integers(0, 3)):
            at = at[key]
        else:
            at[key] = data.draw(JSON)
            break
    folder = copied(name, tmp_path_factory.mktemp("s8"))
    (folder / "index.json").write_text(json.dumps(told))
    with prompt_and_small(COUNT + 1):
        read_all(folder)
    shutil.rmtree(folder.parent)
