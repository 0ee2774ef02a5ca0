"""Windows of tokens, out of the files that nanoGPT, llm.c, numpy and Megatron write."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards.tokens import TokenDataset, file_of


def raw(path: Path, tokens: np.ndarray) -> Path:
    tokens.tofile(path)
    return path


def llmc(path: Path, tokens: np.ndarray, *, magic: int = 20240520) -> Path:
    head = np.zeros(256, "<i4")
    head[:3] = magic, 1, len(tokens)
    path.write_bytes(head.tobytes() + tokens.tobytes())
    return path


def megatron(path: Path, documents: list[np.ndarray], code: int) -> Path:
    tokens = np.concatenate(documents)
    tokens.tofile(path)
    sizes = np.array([len(each) for each in documents], np.int32)
    pointers = np.cumsum([0, *sizes[:-1]], dtype=np.int64) * tokens.itemsize
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(documents), len(documents) + 1)
    ends = np.arange(len(documents) + 1, dtype=np.int64)
    path.with_suffix(".idx").write_bytes(head + sizes.tobytes() + pointers.tobytes() + ends.tobytes())
    return path


TOKENS = np.arange(100, dtype=np.uint16)


@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=4), length=st.integers(1, 12), stride=st.integers(1, 20)
)
def test_each_window_is_a_slice_and_the_same_one_further_on(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], length: int, stride: int
) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    parts = [np.random.default_rng(at).integers(0, 999, count, np.uint16) for at, count in enumerate(counts)]
    paths = [raw(folder / f"{at}.bin", part) for at, part in enumerate(parts)]
    expected = [
        (part[at : at + length], part[at + 1 : at + 1 + length])
        for part in parts
        for at in range(0, len(part) - length, stride)
    ]
    if not expected:
        with pytest.raises(ConfigError, match="no file has"):
            TokenDataset(paths, length, dtype="uint16", stride=stride)
        return
    dataset = TokenDataset(paths, length, dtype="uint16", stride=stride)
    assert len(dataset) == len(expected)
    assert sum(dataset.runs()) == len(dataset)
    assert min(dataset.runs()) > 0
    rows = np.zeros((2, len(dataset), length), np.int64)
    dataset.read_into(range(len(dataset)), (rows[0], rows[1]))
    for index, (x, y) in enumerate(expected):
        for given_x, given_y in (dataset[index], rows[:, index]):
            assert given_x.dtype == np.int64
            np.testing.assert_array_equal(given_x, x)
            np.testing.assert_array_equal(given_y, y)


@pytest.mark.parametrize(("write", "dtype"), [
    (lambda path: raw(path / "a.bin", TOKENS), "uint16"),
    (lambda path: llmc(path / "a.bin", TOKENS), "uint16"),
    (lambda path: llmc(path / "a.bin", TOKENS.astype(np.uint32), magic=20240801), "uint32"),
    (lambda path: megatron(path / "a.bin", [TOKENS[:30].astype(np.int32), TOKENS[30:].astype(np.int32)], 4), "int32"),
    (lambda path: megatron(path / "a.bin", [TOKENS], 8), "uint16"),
    (lambda path: (np.save(path / "a.npy", TOKENS.astype(np.int64)), path / "a.npy")[1], "int64"),
], ids=["nanoGPT", "llm.c", "llm.c, 32 bits", "Megatron", "Megatron, 16 bits", "numpy"])  # fmt: skip
def test_each_kind_of_file_is_known(tmp_path: Path, write: object, dtype: str) -> None:
    path = write(tmp_path)
    assert file_of(str(path), "uint16").dtype == dtype
    dataset = TokenDataset(path, 9, dtype="uint16")
    np.testing.assert_array_equal(np.concatenate([dataset[at][0] for at in range(len(dataset))]), TOKENS[:99])


def test_a_pattern_takes_files_by_name(tmp_path: Path) -> None:
    for at in (2, 10, 1):
        raw(tmp_path / f"part_{at:02}.bin", np.full(5, at, np.uint16))
    dataset = TokenDataset(str(tmp_path / "part_*.bin"), 4, dtype="uint16")
    assert [int(dataset[at][0][0]) for at in range(3)] == [1, 2, 10]


def test_it_is_pickled_small_and_reads_on(tmp_path: Path) -> None:
    dataset = TokenDataset(raw(tmp_path / "a.bin", np.arange(60_000, dtype=np.uint16)), 10, dtype="uint16")
    first = dataset[3]
    data = pickle.dumps(dataset)
    assert len(data) < 1000
    np.testing.assert_array_equal(pickle.loads(data)[3], first)


def test_long_files_have_several_runs(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    runs = TokenDataset(path, 1024, dtype="uint16").runs()
    assert len(runs) == 8
    assert max(runs) - min(runs) <= 1


@pytest.mark.parametrize(("damage", "says"), [
    (lambda path: raw(path / "a.bin", TOKENS[:0]), "length"),
    (lambda path: (path / "a.bin").write_bytes(b"123"), "bytes"),
    (lambda path: llmc(path / "a.bin", TOKENS).write_bytes((path / "a.bin").read_bytes()[:-2]), "1,222 bytes"),
    (lambda path: megatron(path / "a.bin", [TOKENS], 8).with_suffix(".idx").write_bytes(b"MMIDIDX"), "Megatron"),
    (lambda path: megatron(path / "a.bin", [TOKENS], 99), "dtype 99"),
], ids=["empty", "an odd byte", "cut", "index cut", "unknown dtype"])  # fmt: skip
def test_what_is_damaged_is_told(tmp_path: Path, damage: object, says: str) -> None:
    damage(tmp_path)
    with pytest.raises((ShardError, ConfigError), match=says):
        TokenDataset(tmp_path / "a.bin", 4, dtype="uint16")


@pytest.mark.parametrize("array", [np.zeros((2, 3), np.uint16), np.zeros(9)], ids=["a table", "floats"])
def test_arrays_that_are_no_tokens_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises((ShardError, ConfigError), match=r"a\.npy"):
        TokenDataset(tmp_path / "a.npy", 2)


def test_a_file_that_has_become_shorter_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = raw(tmp_path / "a.bin", TOKENS)
    dataset = TokenDataset(path, 4, dtype="uint16")
    path.write_bytes(b"")
    with pytest.raises(ShardError, match="shorter"):
        dataset[0]


@pytest.mark.parametrize(("settings", "says"), [
    ({"length": 0}, "length"), ({"length": 4, "stride": 0}, "stride"), ({"length": 4, "dtype": None}, "dtype"),
    ({"length": 4, "out_dtype": "int8"}, "out_dtype"), ({"length": 4, "files": "no/*.bin"}, "no file"),
])  # fmt: skip
def test_bad_settings_are_refused(tmp_path: Path, settings: dict[str, object], says: str) -> None:
    given = {"files": raw(tmp_path / "a.bin", TOKENS), "dtype": "uint16", **settings}
    with pytest.raises(ConfigError, match=says):
        TokenDataset(given.pop("files"), given.pop("length"), **given)


def test_indices_are_those_of_a_list(tmp_path: Path) -> None:
    dataset = TokenDataset(raw(tmp_path / "a.bin", TOKENS), 9, dtype="uint16")
    count = len(dataset)
    np.testing.assert_array_equal(dataset[-2][0], dataset[count - 2][0])
    x, y = (np.zeros((2, 9), np.int64) for _ in range(2))
    dataset.read_into([-1, 0], (x, y))
    np.testing.assert_array_equal(y, [dataset[count - 1][1], dataset[0][1]])
    for index in (count, -count - 1):
        with pytest.raises(IndexError, match=f"no sample {index}"):
            dataset[index]
        with pytest.raises(IndexError, match=f"no sample {index}"):
            dataset.read_into([0, index], (x, y))
