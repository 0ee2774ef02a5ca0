"""Tar files that are made to harm who reads them."""

import io
import tarfile

from swift_loader.shards import tar


def _of(kind, name="x.txt", link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info.tobuf(tarfile.GNU_FORMAT) + tar.END


def _with(at, field):
    block = bytearray(tar.header(b"x.txt", 0))
    block[at : at + len(field)] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + tar.END


def _pax(record, kind=b"x"):
    head = bytearray(tar.header(b"pax", len(record)))
    head[156:157] = kind
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + record + tar.PADDING[-len(record) % 512] + tar.header(b"x.txt", 0) + tar.END


def _sparse():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("x.txt")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.realsize": str(1 << 60)}
        archive.addfile(info)
    return out.getvalue()


ATTACKS = {
    "a_link_to_a_file_elsewhere": _of(tarfile.SYMTYPE, link="/etc/passwd"),
    "a_hard_link": _of(tarfile.LNKTYPE, link="/etc/passwd"),
    "a_device": _of(tarfile.CHRTYPE),
    "a_block_device": _of(tarfile.BLKTYPE),
    "a_pipe": _of(tarfile.FIFOTYPE),
    "a_sparse_file_of_an_exabyte": _sparse(),
    "an_old_sparse_file": _of(b"S"),
    "a_member_of_an_exabyte": _with(124, b"\x80\0\0\0\x10\0\0\0\0\0\0\0"),
    "a_member_of_less_than_nothing": _with(124, b"\xff" * 12),
    "a_size_that_is_no_number": _with(124, b"0x000000010\0"),
    "a_size_behind_the_end": _with(124, b"00000077777\0"),
    "a_wrong_checksum": tar.header(b"x.txt", 0)[:100] + b"1" + tar.header(b"x.txt", 0)[101:] + tar.END,
    "a_checksum_that_is_no_number": tar.header(b"x.txt", 0)[:148] + b"abcdef\0 " + tar.header(b"x.txt", 0)[156:],
    "a_record_of_less_than_nothing": _pax(b"-9 path=x\n"),
    "a_record_of_nothing": _pax(b"0 path=x\n" * 10),
    "a_record_that_ends_elsewhere": _pax(b"99999999 path=x\n"),
    "a_record_without_an_end": _pax(b"9" * 60_000),
    "a_record_of_a_megabyte": _pax(b"1048576 path=" + b"a" * (1 << 20) + b"\n"),
    "a_size_of_a_googol": _pax(b"110 size=" + b"9" * 100 + b"\n"),
    "one_name_for_all": _pax(b"12 path=abc\n", b"g"),
    "one_size_for_all": _pax(b"10 size=5\n", b"g"),
    "a_name_of_a_gigabyte": _with(156, b"L")[:124] + b"10000000000\0" + _with(156, b"L")[136:],
    "nothing": b"",
    "half_a_block": bytes(100),
    "noise": bytes(range(256)) * 4,
    "a_cut": tar.header(b"x.txt", 1000) + bytes(700),
}
