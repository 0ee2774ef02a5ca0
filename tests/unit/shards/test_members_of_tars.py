"""Headers that we write are those that `tarfile` reads, and of anybody's files what `tarfile` reads is what we read."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.errors import ShardError
from swift_loader.shards import tar

PARTS = st.text("abcdefghijklmnopqrstuvwxyz_0ä", min_size=1, max_size=60)
NAMES = st.lists(PARTS, min_size=1, max_size=20).map("/".join).filter(lambda name: len(name.encode()) <= 1000)


def packed(files):
    """A tar file as we write it."""
    parts = [
        piece
        for name, data in files
        for piece in (tar.header(name.encode(), len(data)), data, tar.PADDING[-len(data) % 512])
    ]
    return b"".join(parts) + tar.END


def listed(data):
    view = memoryview(data)
    return [(m.name, bytes(view[m.offset : m.offset + m.nbytes])) for m in tar.members(view)]


def by_tarfile(files, style):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=style) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


@given(st.lists(st.tuples(NAMES, st.binary(max_size=2000)), max_size=6))
def test_tarfile_reads_what_we_write(files):
    with tarfile.open(fileobj=io.BytesIO(packed(files)), errorlevel=2) as archive:
        found = [(info, archive.extractfile(info).read()) for info in archive]
    assert [(info.name, data) for info, data in found] == files
    assert all((i.mode, i.uid, i.gid, i.mtime, i.isreg()) == (0o444, 0, 0, 0, True) for i, _ in found)


@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=2000)), max_size=6),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_we_read_what_tarfile_writes(files, style):
    expected = [(name.encode(), data) for name, data in files]
    assert listed(by_tarfile(files, style)) == expected
    assert listed(packed(files)) == expected


@pytest.mark.parametrize("nbytes", [1, 99, 100, 101, 155, 156, 254, 255, 256, 257, 1000])
def test_a_name_of_any_length_is_one_that_tarfile_reads(nbytes):
    for name in (
        "a" * nbytes,
        "b/" * (nbytes // 2) + "a" * (nbytes % 2 or 2),
        "c" * (nbytes // 2) + "/" + "d" * nbytes,
    ):
        header = tar.header(name.encode(), 3)
        assert len(header) <= tar.header_nbytes(len(name))
        with tarfile.open(fileobj=io.BytesIO(packed([(name, b"xyz")]))) as archive:
            assert archive.getnames() == [name]


def test_folders_are_passed_over():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("folder")
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
        archive.addfile(tarfile.TarInfo("folder/a.txt"), io.BytesIO())
    assert [name for name, _ in listed(out.getvalue())] == [b"folder/a.txt"]


@pytest.mark.parametrize(
    "kind", [tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"S", b"M", b"?"]
)
def test_what_is_no_file_is_refused(kind):
    info = tarfile.TarInfo("x")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(ShardError):
        listed(info.tobuf(tarfile.GNU_FORMAT) + tar.END)


@pytest.mark.parametrize(
    "field", [(-5).to_bytes(12, "big", signed=True), b"\x80" + b"\xff" * 11, b"99999999999\0", b"-1         \0"]
)
def test_a_size_that_cannot_be_is_refused(field):
    with pytest.raises(ShardError):
        listed(_resummed(124, field) + tar.END)


def test_sizes_of_gnu_in_bytes_are_read():
    assert listed(_resummed(124, b"\x80" + bytes(10) + b"\x02") + b"ab" + bytes(510) + tar.END) == [(b"a.txt", b"ab")]


def _resummed(at, field):
    block = bytearray(tar.header(b"a.txt", 0))
    block[at : at + len(field)] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def test_each_bit_of_a_header_counts():
    header = tar.header(b"a/b.txt", 5)
    for bit in range(512 * 8):
        flipped = bytearray(header)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = listed(bytes(flipped) + bytes(512) + tar.END)
        except ShardError:
            continue
        assert 148 * 8 <= bit < 156 * 8  # the sum itself, in the padding around its digits
        assert found == [(b"a/b.txt", bytes(5))]


PAX = {
    "no_length": b"path=x\n", "too_long": b"99 path=x\n", "no_newline": b"9 path=xy", "no_equals": b"8 pathx\n",
    "zero": b"0 path=x\n", "size_not_a_number": b"11 size=x1\n", "size_huge": b"29 size=99999999999999999999\n",
    "sparse": b"21 GNU.sparse.map=0\n", "endless_digits": b"9" * 3000 + b" path=x\n",
}  # fmt: skip


@pytest.mark.parametrize("name", PAX)
def test_a_record_that_cannot_be_is_refused(name):
    record = PAX[name]
    head = bytearray(tar.header(b"pax", len(record)))
    head[156:157] = b"x"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    with pytest.raises(ShardError):
        listed(bytes(head) + record + tar.PADDING[-len(record) % 512] + packed([("a.txt", b"abc")]))


def test_a_record_that_is_too_large_or_has_no_member_is_refused():
    long = tarfile.TarInfo("x" * 70_000)
    with pytest.raises(ShardError, match="too large"):
        listed(long.tobuf(tarfile.PAX_FORMAT) + tar.END)
    with pytest.raises(ShardError, match="no member"):
        listed(tarfile.TarInfo("x" * 300).tobuf(tarfile.PAX_FORMAT)[:-512] + tar.END)


@pytest.mark.parametrize("cut", [1, 511, 513, 1025, 1536 - 1])
def test_a_tar_that_is_cut_inside_a_member_is_refused(cut):
    data = packed([("a.txt", b"x" * 700), ("b.txt", b"y")])[: -len(tar.END)]
    with pytest.raises(ShardError):
        listed(data[: len(data) - cut])


def test_a_member_larger_than_tar_can_say_is_refused():
    with pytest.raises(ShardError, match="8 GiB"):
        tar.header(b"x", 8 << 30)


@pytest.mark.parametrize(
    ("name", "hidden"), [(b"__swift__/table", True), (b"__x__", True), (b"a/__x__", False), (b"__x", False)]
)
def test_what_readers_pass_over_is_known(name, hidden):
    assert tar.is_hidden(name) is hidden
