"""Files of a folder are there whole or not at all, under names that lead nowhere else; and where they are, by URL."""

import errno
import os
from pathlib import Path

import pytest

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards import create
from swift_loader.shards import folder as folders
from swift_loader.shards.folder import Folder
from swift_loader.shards.store import store_at
from swift_loader.shards.url import Place, place_of


@pytest.fixture(params=["nameless", "named"])
def folder(request, tmp_path, monkeypatch):
    if request.param == "named":  # as on disks that have no files without names
        monkeypatch.setattr(folders, "_NAMELESS", os.O_RDWR | os.O_DIRECTORY)
    return Folder(tmp_path / "set", make=True)


def put(folder, name, *pieces):
    draft = folder.draft(name)
    try:
        draft.write(pieces)
        draft.publish()
    finally:
        draft.discard()


def test_what_is_published_is_read(folder):
    put(folder, "a/b.tar", b"abc", memoryview(b"def"), *[b"x"] * 3000)
    assert folder.nbytes("a/b.tar") == 3006
    assert folder.read("a/b.tar", 2, 5) == b"cdefx"
    assert bytes(folder.whole("a/b.tar")[:7]) == b"abcdefx"


def test_nothing_is_seen_of_what_is_not_published(folder):
    draft = folder.draft("b.tar")
    draft.write([b"abc"])
    assert list(folder.listed()) == []
    with pytest.raises(FileNotFoundError):
        folder.nbytes("b.tar")
    draft.discard()
    assert os.listdir(folder.path) == []


def test_of_two_writers_of_a_name_one_is_told(folder):
    first, second = folder.draft("x.tar"), folder.draft("x.tar")
    second.write([b"second"])
    second.publish()
    first.write([b"first"])
    with pytest.raises(FileExistsError):
        first.publish()
    first.discard()
    second.discard()
    assert folder.read("x.tar", 0, 6) == b"second"
    assert os.listdir(folder.path) == ["x.tar"]


def test_where_a_file_has_one_name_only_it_is_renamed_and_nothing_is_written_over(tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(folders, "_NAMELESS", os.O_RDWR | os.O_DIRECTORY)
    monkeypatch.setattr(os, "link", no_links)
    folder = Folder(tmp_path)
    put(folder, "x.tar", b"first")
    with pytest.raises(FileExistsError):
        put(folder, "x.tar", b"second")
    assert folder.read("x.tar", 0, 5) == b"first"
    assert os.listdir(tmp_path) == ["x.tar"]


def test_what_the_system_writes_in_parts_is_written_whole(folder, monkeypatch):
    whole = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, pieces: whole(fd, [bytes(pieces[0])[:2]]))
    put(folder, "x", b"abc", b"defg")
    assert folder.read("x", 0, 7) == b"abcdefg"


def test_a_full_disk_leaves_nothing(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(OSError, match="No space"):
        create([{"bin": b"abc"}], folder.path)
    assert os.listdir(folder.path) == []


def test_what_is_replaced_is_the_old_one_or_the_new(folder):
    for data in (b"one", b"two"):
        folder.replace("index.swift", data)
        assert folder.read("index.swift", 0, 3) == data
    assert os.listdir(folder.path) == ["index.swift"]


def test_objects_are_listed_in_order_without_hidden_ones_and_folders(folder):
    for name in ("b", "a", "c/d", ".hidden"):
        put(folder, name, b"12")
    assert list(folder.listed()) == [("a", 2), ("b", 2)]
    assert list(folder.listed("b")) == [("b", 2)]
    folder.delete("a")
    folder.delete("a")
    assert list(folder.listed()) == [("b", 2)]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../b", "", "a\0b", "."])
def test_names_that_lead_elsewhere_are_refused(folder, name):
    for ask in (folder.nbytes, folder.draft, folder.whole, folder.delete, lambda name: folder.replace(name, b"")):
        with pytest.raises(ShardError):
            ask(name)


def test_reading_behind_the_end_says_where_it_ends(folder):
    put(folder, "x", b"12345")
    with pytest.raises(ShardError, match="too early") as caught:
        folder.read("x", 3, 10)
    assert (caught.value.offset, caught.value.expected, caught.value.shard) == (5, 13, "x")


def test_what_is_no_file_is_not_waited_for(folder):
    os.mkfifo(folder.path / "pipe")
    with pytest.raises(ShardError, match="no file"):
        folder.read("pipe", 0, 1)


def test_what_a_killed_writer_left_is_removed_and_what_another_is_at_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_NAMELESS", os.O_RDWR | os.O_DIRECTORY)
    there = Folder(tmp_path, make=True)
    (tmp_path / ".x.tar.00000000.part").write_bytes(b"left")
    (tmp_path / ".mine").write_bytes(b"the user's")
    draft = there.draft("y.tar")
    draft.write([b"abc"])
    Folder(tmp_path, make=True)
    assert sorted(name[:7] for name in os.listdir(tmp_path)) == [".mine", ".y.tar."]
    draft.publish()
    draft.discard()
    assert sorted(os.listdir(tmp_path)) == [".mine", "y.tar"]


def test_places_are_paths_or_addresses():
    assert (
        place_of("/data/x") == place_of(Path("/data/x")) == place_of("file:///data/x") == Place("file", "", "/data/x")
    )
    assert place_of("s3://bucket/a/b/") == Place("s3", "bucket", "a/b")
    assert place_of("https://host:8080/a") == Place("https", "host:8080", "a")


@pytest.mark.parametrize("url", ["", 5, None, "a\0b", "file://host/x", "s3:///x", "s3://b/../c", "http://[x/"])
def test_what_names_no_place_is_refused(url):
    with pytest.raises(ConfigError):
        place_of(url)


def test_keys_in_an_address_are_refused_and_not_repeated():
    with pytest.raises(ConfigError) as caught:
        place_of("s3://AKIA:SECRET@bucket/a?token=SECRET")
    assert "SECRET" not in str(caught.value)


def test_a_store_is_found_by_its_address(tmp_path):
    assert store_at(tmp_path).where == str(tmp_path)
    with pytest.raises(ConfigError, match="no folder"):
        store_at(tmp_path / "none")
    assert store_at(f"file://{tmp_path}/new", make=True).where == f"{tmp_path}/new"
    with pytest.raises(ConfigError, match="ftp://"):
        store_at("ftp://bucket/x")
