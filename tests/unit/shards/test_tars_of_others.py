"""Tar files that others wrote become sets as they are: what webdataset reads of them is what is read of them."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st
from webdataset import tariterators

from swift_loader.errors import ConfigError, ShardError, WorkerDied
from swift_loader.shards import ShardDataset, index
from swift_loader.shards.beside import Asked, Beside
from swift_loader.shards.folder import Folder
from swift_loader.shards.foreign import foreign_table
from swift_loader.shards.lookers import Lookers
from swift_loader.shards.table import MOST_SAMPLES, Table
from tests.slow import examples
from tests.unit.shards.attacked import prompt_and_small
from tests.unit.shards.sets_made import npy, sample, write_set


def packed(members: list[tuple[str, bytes]], style: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=style) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def read_by_webdataset(data: bytes) -> list[dict[str, Any]]:
    expanded = tariterators.tar_file_expander([{"url": "x", "stream": io.BytesIO(data)}])
    return [{k: v for k, v in one.items() if k != "__url__"} for one in tariterators.group_by_keys(expanded)]


def read_by_us(data: bytes) -> list[dict[str, Any]]:
    """All samples, by the table alone."""
    table = foreign_table(memoryview(data))
    found = []
    for at in range(table.samples):
        entries = zip(table.fields, table.entries[at].tolist(), strict=True)
        fields = {field.name: data[o : o + n] for field, (o, n, _) in entries if n < 1 << 63}
        found.append({"__key__": table.key(at), **fields})
    return found


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """What webdataset's own writer wrote."""
    for shard in range(3):
        with webdataset.TarWriter(str(tmp_path / f"set-{shard}.tar"), encoder=False) as writer:
            for number in range(shard * 7, shard * 7 + 7):
                writer.write({"__key__": f"a/b{number:05d}", **sample(number)})
    return tmp_path


@pytest.mark.parametrize("workers", [1, 2])
def test_what_webdataset_wrote_is_a_set_and_equal(written: Path, workers: int) -> None:
    told = []
    catalog = index(str(written), workers=workers, progress=told.append)
    assert (catalog.samples, len(told), told[-1].samples) == (21, 3, 21)
    dataset = ShardDataset(written, decode=None)
    expected = [one for path in sorted(written.glob("*.tar")) for one in read_by_webdataset(path.read_bytes())]
    for at, one in enumerate(expected):
        found = dataset[at]
        assert dataset.key(at) == one.pop("__key__")
        assert found.pop("cls") == int(one.pop("cls"))
        assert found.pop("json") == {"number": at}
        np.testing.assert_array_equal(found.pop("x.npy"), np.full((2, 3), at, np.float32))
        text = found.pop("txt", None)
        assert text == (one["txt"].decode() if "txt" in one else None)
        assert found == {"png": one["png"]}
    assert dataset.column("cls").tolist() == [at % 10 for at in range(21)]
    assert ShardDataset(written, "png", decode="rgb8")[13].tolist() == [[[13, 7, 9]] * 4] * 3


def test_arrays_alike_go_to_rows_and_damage_is_seen(written: Path) -> None:
    index(str(written))
    dataset = ShardDataset(written, ("x.npy", "cls"))
    rows, numbers = np.zeros((4, 2, 3), np.float32), np.zeros(4, np.int64)
    dataset.read_into([20, 3, 8, 3], (rows, numbers))
    assert (rows[:, 0, 0].tolist(), numbers.tolist()) == ([20, 3, 8, 3], [0, 3, 8, 3])
    data = bytearray((written / "set-0.tar").read_bytes())
    data[data.index(b"NUMPY") + 130] ^= 1
    (written / "set-0.tar").write_bytes(data)
    with pytest.raises(ShardError, match=r"a sample is damaged.*'a/b00000'"):
        ShardDataset(written, "x.npy")[0]


def test_a_pattern_needs_no_catalog_once_there_are_tables(written: Path) -> None:
    pattern = f"{written}/set-{{0..2}}.tar"
    with pytest.raises(ConfigError, match=r"has no table of ours.*shard index"):
        ShardDataset(pattern)
    index(pattern)
    assert len(ShardDataset(f"{written}/set-{{1,2}}.tar")) == 14


def test_where_nothing_can_be_written_tables_lie_elsewhere(written: Path, tmp_path: Path) -> None:
    there = tmp_path / "tables"
    before = sorted(written.iterdir())
    index(str(written), index_to=str(there))
    assert sorted(written.iterdir()) == [*before, there]
    dataset = ShardDataset(written, "txt", index=there)
    assert dataset[20 - 2] == "text 18"
    assert len(ShardDataset(f"{written}/set-2.tar", index=there)) == 7
    with pytest.raises(ConfigError, match=r"has no index\.swift"):
        ShardDataset(written)


def test_called_again_it_takes_what_is_there(written: Path) -> None:
    first = index(str(written))
    times = {path: path.stat().st_mtime_ns for path in written.glob("*.tar.swift")}
    (written / "set-1.tar.swift").unlink()
    assert index(str(written)).digest == first.digest
    assert [path.stat().st_mtime_ns == was for path, was in times.items()].count(False) == 1
    with webdataset.TarWriter(str(written / "set-3.tar"), encoder=False) as writer:
        writer.write({"__key__": "new", "txt": b"x"})
    second = index(str(written))
    assert (second.generation, second.samples, second.uuid) == (2, 22, first.uuid)
    assert len(ShardDataset(written, generation=1)) == 21


def test_shards_of_ours_are_taken_by_their_ends(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "a", with_catalog=False)
    (folder / "z.tar").write_bytes(packed([("a.txt", b"x")]))
    catalog = index(str(folder))
    assert (catalog.samples, [path.name for path in folder.glob("*.tar.swift")]) == (24, ["z.tar.swift"])
    data = bytearray((folder / "shard-000001.tar").read_bytes())
    data[-1100] ^= 1
    (folder / "shard-000001.tar").write_bytes(data)
    with pytest.raises(ShardError, match="the footer is damaged"):
        index(str(folder))


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_wrong_is_named(written: Path, workers: int) -> None:
    (written / "set-1.tar").write_bytes(packed([("a.jpg", b"1"), ("a.txt", b""), ("a.JPG", b"2")]))
    with pytest.raises(
        ShardError, match=r"set-1.tar: a sample has two members of one name: 'a.JPG' \(at byte"
    ) as caught:
        index(str(written), workers=workers)
    assert (caught.value.shard, caught.value.set) == ("set-1.tar", str(written))
    assert not (written / "index.swift").exists()
    with pytest.raises(ConfigError, match=r"no shard 'no\.tar'"):
        index(f"{written}/{{no,set-0}}.tar", workers=workers)


def test_a_table_of_another_file_is_not_taken(written: Path) -> None:
    index(str(written))
    (written / "set-0.tar").write_bytes(packed([("a.txt", b"x")]))
    with pytest.raises(ShardError, match=r"set-0.tar.swift: (this is the table of another file|the samples' part)"):
        index(str(written))


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.tar.zst"])
def test_what_is_compressed_as_a_whole_is_refused_with_advice(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    for call in (index, ShardDataset):
        with pytest.raises(ConfigError, match="Unpack it" if call is index else "."):
            call(str(tmp_path))
        with pytest.raises(ConfigError, match="Unpack it"):
            call(f"{tmp_path}/{{{name},b.tar}}")


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no tar files"):
        index(str(tmp_path))
    (tmp_path / "a.tar").write_bytes(packed([("readme", b"x"), ("__a__", b"y")]))
    with pytest.raises(ShardError, match="no sample"):
        index(str(tmp_path))


def test_a_process_that_dies_is_told(written: Path) -> None:
    place = Beside(Folder(written), Folder(written))
    with pytest.raises(WorkerDied, match="set-"), Lookers(place, 2) as lookers:  # noqa: PT012 - it is inside that it raises
        for one in lookers._all:
            os.kill(one._process.pid, signal.SIGKILL)
            one._process.wait(10)
        list(lookers.lines([Asked("set-0.tar"), Asked("set-1.tar")]))


def test_two_at_once_write_one_table(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Beside(Folder(written), Folder(written))
    line = place.found_or_made(Asked("set-0.tar"))
    monkeypatch.setattr(
        Beside, "found", lambda self, name, seen=[]: seen.append(1) or (line if len(seen) > 1 else None)
    )
    assert Beside(*place).found_or_made(Asked("set-0.tar")) == line


PARTS = st.text("ab.A_/", min_size=1, max_size=6)


@settings(deadline=None)
@given(members=st.lists(st.tuples(PARTS, st.binary(max_size=40)), max_size=12))
def test_members_are_grouped_as_webdataset_groups_them(members: list[tuple[str, bytes]]) -> None:
    data = packed([(name, content) for name, content in members if not name.endswith("/")])
    try:
        expected: Any = read_by_webdataset(data)
    except ValueError:
        expected = None
    try:
        found: Any = read_by_us(data)
    except ShardError as error:
        text = str(error)
        if "cannot be called" in text or (expected == [] and "no sample" in text):
            return
        found = None
    assert found == expected


def test_columns_are_whole_numbers_in_digits_and_nothing_else() -> None:
    members = []
    for at, (cls, index_, txt) in enumerate([(b"3", b"1\n", b"5"), (b"-4", b"+2", b"6"), (b"07", b"1_0", b"7")]):
        members += [(f"{at}.cls", cls), (f"{at}.index", index_), (f"{at}.txt", txt), (f"{at}.x.cls", b"1" * 18)]
    table = foreign_table(memoryview(packed(members)))
    assert {name: column.tolist() for name, column in table.columns.items()} == {
        "cls": [3, -4, 7], "x.cls": [111111111111111111] * 3,
    }  # fmt: skip
    without = foreign_table(memoryview(packed([*members[:-4], members[-2]])))
    assert list(without.columns) == []


@pytest.mark.parametrize(
    "arrays",
    [
        [np.zeros((2, 3)), np.zeros((3, 2))],
        [np.zeros((2, 3)), np.zeros((2, 3), np.int64)],
        [np.zeros((2, 3), order="F")] * 2,
        [np.zeros((0, 3))] * 2,
        [np.array(["a", "b"])] * 2,
        [np.zeros(2, [("a", "i4")])] * 2,
        [np.zeros((1,) * 5)] * 2,
    ],
)
def test_arrays_that_differ_stay_bytes(arrays: list[Any]) -> None:
    table = foreign_table(memoryview(packed([(f"{at}.npy", npy(one)) for at, one in enumerate(arrays)])))
    assert [(field.name, field.dtype) for field in table.fields] == [("npy", "")]


def test_a_table_is_read_as_it_was_made() -> None:
    data = packed([(f"{at}.{name}", part) for at in range(50) for name, part in sample(at).items()])
    table = foreign_table(memoryview(data))
    again = Table.read(table.written(), len(data))
    assert (again.fields, again.samples, again.payload_digest) == (table.fields, 50, table.payload_digest)
    np.testing.assert_array_equal(again.entries, table.entries)
    assert [again.key(at) for at in range(50)] == [str(at) for at in range(50)]


MUTATIONS = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=8)


@settings(deadline=None, max_examples=examples(100))
@given(mutations=MUTATIONS, cut=st.integers(0, 1 << 20), is_cut=st.booleans())
def test_s8_whatever_a_tar_file_holds_is_read_or_refused_at_once(mutations: Any, cut: int, *, is_cut: bool) -> None:
    data = bytearray(packed([(f"{at}.{name}", part) for at in range(6) for name, part in sample(at).items()]))
    for place, value in mutations:
        data[place % len(data)] = value
    if is_cut:
        del data[cut % len(data) :]
    with prompt_and_small(), contextlib.suppress(ShardError):
        table = foreign_table(memoryview(bytes(data)))
        assert 1 <= table.samples <= MOST_SAMPLES
        Table.read(table.written(), len(data))


@settings(deadline=None)
@given(data=st.binary(max_size=4096))
def test_s8_rubbish_is_refused(data: bytes) -> None:
    with pytest.raises(ShardError):
        foreign_table(memoryview(data))


def test_many_fields_are_refused_before_room_is_made_for_them() -> None:
    members = [(f"{at}.f{at}", b"") for at in range(65)]
    with pytest.raises(ShardError, match="more than 64 fields"):
        foreign_table(memoryview(packed(members)))
    assert foreign_table(memoryview(packed(members[:64]))).samples == 64
