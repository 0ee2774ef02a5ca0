"""A set in a bucket's folder as a stream: its stages, its epochs, its ranks, and what it says of itself."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards import RemoteDataset, make_client
from swift_loader.shards.course import Course
from tests.unit.shards.sets_made import sample, write_set

COUNT = 23


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    server = tmp_path_factory.mktemp("server")
    folder = server / "bucket" / "set"
    folder.mkdir(parents=True)
    write_set(folder)
    return server


@pytest.fixture
def remote(server: Path) -> Iterator[RemoteDataset]:
    dataset = RemoteDataset(make_client(server), "bucket", "set")
    yield dataset
    vars(dataset).clear()  # pytest holds it for longer than the test


def numbers(dataset: Any) -> list[int]:
    return [item["number"] for (item,) in dataset]


def test_a_sample_is_a_dict_of_bytes_with_its_key(remote: RemoteDataset) -> None:
    found = {one["__key__"]: one for one in remote}
    assert len(found) == COUNT
    assert found["000000008"] == {"__key__": "000000008", **sample(8)}


def test_the_documents_chain(remote: RemoteDataset) -> None:
    def shade(image: Any) -> torch.Tensor:
        return torch.tensor(image.getpixel((0, 0))[0])

    dataset = remote.decode("pil").to_tuple("jpg;png", "cls").map_tuple(shade, lambda x: x).batched(4)
    batches = list(dataset)
    assert len(batches) == len(dataset) == 6
    for batch in batches:
        assert isinstance(batch, list)
        assert isinstance(batch[0], torch.Tensor)
        assert isinstance(batch[1], np.ndarray)
        assert (batch[0].numpy() % 10).tolist() == batch[1].tolist()
    assert sorted(itertools.chain(*(batch[0].tolist() for batch in batches))) == list(range(COUNT))


def test_each_iteration_is_another_epoch(remote: RemoteDataset, server: Path) -> None:
    dataset = remote.decode().to_tuple("json")
    first, second = numbers(dataset), numbers(dataset)
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first != second
    dataset.set_epoch(0)
    assert numbers(dataset) == first
    next(iter(dataset))  # this was epoch 1, left early
    dataset.set_epoch(1)
    assert numbers(dataset) == second
    unshuffled = RemoteDataset(server, "bucket", "set", shuffle=False)
    ordered = unshuffled.to_tuple("__key__")
    assert [int(key) for (key,) in ordered] == [int(key) for (key,) in ordered] == list(range(COUNT))


@pytest.mark.parametrize("batch", [None, 1, 4, 50])
@pytest.mark.parametrize("world", [1, 2, 3, 30])
def test_ranks_take_as_many_each_and_nothing_is_lost(
    remote: RemoteDataset, monkeypatch: pytest.MonkeyPatch, world: int, batch: int | None
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(world))
    dataset = remote.decode().to_tuple("json")
    if batch is not None:
        dataset = dataset.batched(batch)
    seen: Counter[int] = Counter()
    lengths = set()
    for rank in range(world):
        monkeypatch.setenv("RANK", str(rank))
        dataset.set_epoch(3)
        items = list(dataset)
        assert len(items) == len(dataset)
        lengths.add(len(items))
        seen.update(number["number"] for (found,) in items for number in (found if batch else [found]))
    assert len(lengths) == 1
    assert sorted(seen) == list(range(COUNT))
    if batch == 4 and world < COUNT:
        assert set(seen.values()) == {1}
    assert seen.total() <= max(COUNT, world) + world


def test_ranks_that_share_a_dataset_count_their_own_epochs(
    remote: RemoteDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    dataset = remote.decode().to_tuple("json")
    for _ in range(2):
        seen = []
        for rank in "01":
            monkeypatch.setenv("RANK", rank)
            seen += numbers(dataset)
        assert sorted(set(seen)) == list(range(COUNT))  # both were at the same epoch


STAGES: list[tuple[Callable[[RemoteDataset], Any], Callable[[list[Any]], bool]]] = [
    (lambda d: d.decode().to_tuple("txt;json").map(lambda one: one[0]), lambda x: "text 3" in x and {"number": 4} in x),
    (lambda d: d.decode().to_tuple("txt", missing_is_error=False), lambda x: x.count((None,)) == 4),
    (lambda d: d.decode("rgb8").to_tuple("png"), lambda x: all(one[0].shape == (3, 4, 3) for one in x)),
    (lambda d: d.decode("torchrgb8", only="png"), lambda x: x[0]["png"].shape == (3, 3, 4) and x[0]["cls"] >= b"0"),
    (lambda d: d.decode(lambda key, data: len(data) if key == ".png" else None), lambda x: x[0]["png"] > 60),
    (lambda d: d.to_tuple("cls", "png"), lambda x: {type(part) for one in x for part in one} == {bytes}),
    (lambda d: d.decode().to_tuple("cls json").map_tuple(float), lambda x: isinstance(x[0][0], float)),
    (lambda d: d.decode().map_dict(cls=lambda c: c + 1).to_tuple("cls"), lambda x: max(x) == (10,)),
    (lambda d: d.rename(image="jpg;png"), lambda x: "image" in x[0] and "png" not in x[0]),
    (lambda d: d.select_fields(lambda name: name == "cls"), lambda x: set(x[0]) == {"__key__", "cls"}),
    (lambda d: d.decode().to_tuple("cls").select(lambda one: one[0] < 3), lambda x: len(x) == 9),
    (lambda d: d.decode().to_tuple("cls").select(lambda one: one[0] < 3).shuffle(5).batched(4), lambda x: len(x) == 3),
    (lambda d: d.to_tuple("cls").batched(5).unbatched(), lambda x: len(x) == COUNT),
    (lambda d: d.to_tuple("cls").batched(5, partial=False), lambda x: [len(b[0]) for b in x] == [5] * 4),
    (lambda d: d.to_tuple("cls").batched(5, None), lambda x: isinstance(x[0], list) and isinstance(x[0][0], tuple)),
    (lambda d: d.decode().select_fields("cls".__eq__).batched(2), lambda x: isinstance(x[0]["cls"], np.ndarray)),
    (lambda d: d.to_tuple("__key__").slice(7), lambda x: len(set(x)) == 7),
    (lambda d: d.to_tuple("__key__").slice(1, 7, 2), lambda x: len(set(x)) == 3),
    (lambda d: d.to_tuple("__key__").repeat(3), lambda x: {*Counter(x).values()} == {3} and x[:COUNT] != x[COUNT:46]),
    (lambda d: d.to_tuple("__key__").with_epoch(30), lambda x: len(x) == 30 and len(set(x)) == COUNT),
    (lambda d: d.compose(lambda one: one.to_tuple("cls")), lambda x: len(x[0]) == 1),
    (lambda d: d.then(itertools.islice, 3), lambda x: len(x) == 3),
    (lambda d: d.to_tuple("cls").map(_odd, handler=lambda error: True), lambda x: 0 < len(x) < COUNT),
    (lambda d: d.to_tuple("cls").batched(4).map(lambda b: b[0]), lambda x: isinstance(x[0], list)),
]  # fmt: skip


def _odd(one: Any) -> Any:
    if int(one[0]) % 2:
        raise ValueError("odd")
    return one


@pytest.mark.parametrize(("stages", "holds"), STAGES)
def test_each_stage(remote: RemoteDataset, stages: Callable[..., Any], holds: Callable[..., bool]) -> None:
    dataset = stages(remote)
    found = list(iter(dataset))
    assert holds(found)
    if not dataset._links.flows and not any("Handled" in type(one).__name__ for one in dataset._left):
        assert len(dataset) == len(found)


@given(
    bends=st.lists(
        st.one_of(
            st.tuples(st.just("sliced"), st.integers(0, 5), st.integers(0, 30), st.integers(1, 3)),
            st.tuples(st.just("times"), st.integers(1, 3)),
            st.tuples(st.just("cut"), st.integers(1, 40)),
        ),
        max_size=3,
    ),
    steps=st.integers(1, 12),
)
def test_a_course_is_what_iterators_would_give(bends: list[Any], steps: int) -> None:
    def endless() -> Iterator[list[tuple[int, int]]]:
        for epoch in itertools.count():
            yield [(epoch, step) for step in range(steps)]

    course, epochs = Course(), endless()
    for name, *words in bends:
        course = getattr(course, name)(*words)
        epochs = _bent(epochs, name, words)
    for epoch in range(2 if course.count(steps) else 0):
        expected = next(epochs)
        assert [course.at(steps, epoch, place) for place in range(course.count(steps))] == expected


def _bent(epochs: Iterator[list[Any]], name: str, words: list[int]) -> Iterator[list[Any]]:
    if name == "sliced":
        return (one[slice(*words)] for one in epochs)
    if name == "times":
        return (list(itertools.chain(*itertools.islice(epochs, words[0]))) for _ in itertools.count())
    laid = itertools.chain.from_iterable(epochs)
    return (list(itertools.islice(laid, words[0])) for _ in itertools.count())


def test_len_is_not_guessed(remote: RemoteDataset) -> None:
    dataset = remote.to_tuple("cls").select(bool)
    with pytest.raises(TypeError, match="with_length"):
        len(dataset)
    assert len(dataset.with_length(7)) == 7


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda d: d.batched(0), "whole number"),
        (lambda d: d.to_tuple(), "names of fields"),
        (lambda d: d.map(3), "functions"),
        (lambda d: d.decode("tiff8"), "not known"),
        (lambda d: d.batched(2).decode("pil"), "before batched"),
        (lambda d: d.select(bool).repeat(2), "before select"),
        (lambda d: d.slice(1, 2, 0), "at least 1"),
        (lambda d: d.set_epoch(-1), "whole number"),
        (lambda d: d.batched(4)[0], "give batch_size to the loader"),
        (lambda d: d.batched(4).runs(), "give batch_size to the loader"),
        (lambda d: d.batched(4).by_index(), "give batch_size to the loader"),
    ],
)
def test_what_cannot_be_is_said(remote: RemoteDataset, wrong: Callable[..., Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        wrong(remote)


def test_a_field_that_is_missing_is_named(remote: RemoteDataset) -> None:
    with pytest.raises(ShardError, match="txt"):
        list(remote.decode().to_tuple("txt"))
    with pytest.raises(ShardError, match="no sample has a field 'jpg'"):
        list(remote.decode().to_tuple("jpg"))


def test_by_index_it_is_a_dataset_like_others(remote: RemoteDataset) -> None:
    dataset = remote.decode().to_tuple("json", "cls").map_tuple(lambda one: one["number"])
    assert dataset[21] == (21, 1)
    assert dataset.__getitems__([3, 0]) == [(3, 3), (0, 0)]
    by_index = dataset.by_index()
    assert (len(by_index), by_index[4]) == (COUNT, (4, 4))
    assert not isinstance(by_index, torch.utils.data.IterableDataset)
    assert isinstance(dataset, torch.utils.data.IterableDataset)


def test_a_pickle_goes_on_counting_and_holds_no_set(remote: RemoteDataset) -> None:
    dataset = remote.decode().to_tuple("json")
    first, second = numbers(dataset), None
    data = pickle.dumps(dataset)
    assert len(data) < 2500
    other = pickle.loads(data)
    second = numbers(other)
    dataset.set_epoch(1)
    assert numbers(dataset) == second != first


def test_pages_of_epochs_go_with_their_datasets(remote: RemoteDataset) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        remote.decode().to_tuple("json").batched(4)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_client_is_a_folder_or_a_server() -> None:
    assert make_client("/data/shards", "key", "secret") == make_client("file:///data/shards")
    client = make_client("http://localhost:8333", "key-0123", "secret-0123")
    assert "0123" not in repr(client)
    for words, said in (
        (("http://a", "key"), "access key"),
        ((3,), "list_objects"),
        (("localhost:8333",), "http://"),
        (("ftp://host",), "http"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_client(*words)
    for bucket, folder in (("a/b", "c"), ("..", "c"), ("a", "../c"), ("a", 3)):
        with pytest.raises(ConfigError, match=r"no (bucket|folder)|a folder is"):
            RemoteDataset(make_client("/nowhere"), bucket, folder)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:the tar files of:RuntimeWarning")
def test_tar_files_without_a_catalog_are_gone_through(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "b" / "s").mkdir(parents=True, exist_ok=True)
        with tarfile.open(tmp_path / "b" / "s" / f"part{number}.tar", "w") as tar:
            for inner in range(4):
                member = tarfile.TarInfo(f"{number}{inner}.txt")
                member.size = 2
                tar.addfile(member, io.BytesIO(b"%d%d" % (number, inner)))
    dataset = RemoteDataset(make_client(tmp_path), "b", "s")
    index = dataset._own_index
    assert index is not None
    found = sorted(text for (text,) in pickle.loads(pickle.dumps(dataset.decode().to_tuple("txt"))))
    assert found == [f"{number}{inner}" for number in range(3) for inner in range(4)]
    assert {path.suffix for path in (tmp_path / "b" / "s").iterdir()} == {".tar"}
    folder = Path(index.path)
    del dataset, index
    assert not folder.exists()
    with pytest.warns(RuntimeWarning, match="shard index"):
        RemoteDataset(make_client(tmp_path), "b", "s")


def test_a_prefix_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "bucket" / "set-old").mkdir(parents=True)
    write_set(tmp_path / "bucket" / "set-old")
    with pytest.raises(ConfigError, match="no folder"):
        RemoteDataset(make_client(tmp_path), "bucket", "set")
