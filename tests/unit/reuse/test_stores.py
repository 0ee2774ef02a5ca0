"""A store gives back what was kept or nothing: whatever was changed, cut, killed or done at the same time."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from swift_loader.batch.record import MISSING
from swift_loader.reuse import index
from swift_loader.reuse.files import Disk, Foreign, open_files
from swift_loader.reuse.store import Store
from tests.slow import slow
from tests.unit.reuse.stores import ARENA_NBYTES, entry_bits, flip, keep, no_class, opened, origin, same, sample, text
from tests.watching import ROOT


def _filled(folder: Path, samples: int = 40):
    store = opened(folder, samples)
    for number in range(samples):
        assert keep(store, number, 0, (sample if number % 2 else text)(number))
    return store


def _expected(number: int):
    return (sample if number % 2 else text)(number)


def _record_bits(store, number: int) -> range:
    found = store.entry(number)
    return range(8 * found.offset, 8 * (found.offset + found.nbytes))


def _flips_found(folder: Path, count: int) -> int:
    """Flips that many bits, one at a time, of records and entries; each time the sample is gone, and back after."""
    store, rng = _filled(folder), random.Random(1)
    places = [_record_bits(store, number) for number in range(40)]
    found = 0
    for _ in range(count):
        number = rng.randrange(40)
        in_index = rng.random() < 0.2
        bits = entry_bits(40)[512 * number : 512 * (number + 1)] if in_index else places[number]
        path, bit = folder / ("kept.index" if in_index else "kept.data"), rng.choice(bits)
        flip(path, bit)
        found += store.get(number, 0) is MISSING
        flip(path, bit)
    assert all(same(store.get(number, 0), _expected(number)) for number in range(40))
    store.close()
    return found


@pytest.mark.parametrize("count", [10_000, slow(100_000)])
def test_every_flipped_bit_is_found(count: int, tmp_path):
    assert _flips_found(tmp_path, count) == count


def test_a_batch_with_a_flipped_bit_is_not_filled(tmp_path):
    store = opened(tmp_path)
    for number in range(40):
        keep(store, number, 0, {"x": np.full((4, 4), number), "y": number})
    numbers = np.array([5, 7, 39, 5], np.uint64)
    form = store.entry(5).form
    found = store.all_at(numbers, np.uint64(0), form)
    columns = [np.zeros((4, 128), np.uint8), np.zeros((4, 8), np.uint8)]
    assert store.fill(found, columns)
    assert columns[1].view(np.int64).ravel().tolist() == [5, 7, 39, 5]
    assert (columns[0].view(np.int64) == columns[1].view(np.int64)).all()
    assert store.all_at(numbers, np.uint64(1), form) is None
    for bit in random.Random(2).choices(_record_bits(store, 7), k=50):
        flip(tmp_path / "kept.data", bit)
        assert not store.fill(found, columns)
        flip(tmp_path / "kept.data", bit)
    assert store.fill(found, columns)
    store.close()


@pytest.mark.parametrize("maps", [True, False])
@pytest.mark.parametrize("name", ["kept.data", "kept.index"])
def test_a_file_that_is_cut_costs_samples_and_nothing_else(name: str, maps: bool, tmp_path):
    store = _filled(tmp_path)
    store.close()
    store = opened(tmp_path, maps=maps)
    assert same(store.get(39, 0), _expected(39))
    os.truncate(tmp_path / name, store.entry(20).offset if name == "kept.data" else index.place_of(20))
    for number in range(40):
        got = store.get(number, 0)
        assert (number >= 20 and got is MISSING) or same(got, _expected(number))
    assert store.get(39, 0) is MISSING
    assert keep(store, 39, 0, _expected(39))
    assert same(store.get(39, 0), _expected(39))
    store.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.reuse.stores import keep, opened, sample, text
folder, left, part = Path(sys.argv[1]), 0, 0

def dying(name):
    real = getattr(os, name)
    def write(fd, data, *rest):
        global left
        left -= 1
        if left == 0:
            if part and name != "ftruncate":
                raw = b"".join(bytes(memoryview(p).cast("B")) for p in data) if name == "pwritev" else bytes(data)
                os.lseek(fd, rest[0], 0)
                os.write(fd, raw[: max(1, len(raw) * part // 4)])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(fd, data, *rest)
    setattr(os, name, write)

for name in ("pwrite", "pwritev", "ftruncate"):
    dying(name)
attempt = deaths = 0
while True:
    attempt += 1
    child = os.fork()
    if child == 0:
        left, part = attempt, attempt % 4
        store = opened(folder)
        for number in range(40):
            generation = 1 if number < 10 else 0
            value = (sample if number % 2 else text)(number, generation)
            keep(store, number, generation, value)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
    deaths += 1
    # Whoever comes next sees each sample whole, of either generation, or not at all.
    store = opened(folder)
    from tests.unit.reuse.stores import same
    from swift_loader.batch.record import MISSING
    for number in range(40):
        make = sample if number % 2 else text
        for generation in (0, 1):
            got = store.get(number, generation)
            assert got is MISSING or same(got, make(number, generation)), (attempt, number)
    store.close()
print(deaths)
"""


def test_d12_a_writer_killed_at_any_write_leaves_whole_samples_or_none(tmp_path):
    _filled(tmp_path).close()  # of which ten are written over
    os.truncate(tmp_path / "kept.index", index.place_of(25))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        capture_output=True, text=True, check=False, env=env, timeout=100,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 50
    store = opened(tmp_path)
    for number in range(40):
        generation = 1 if number < 10 else 0
        assert same(store.get(number, generation), (sample if number % 2 else text)(number, generation))
    store.close()


def test_a_store_that_is_written_anew_again_and_again_does_not_grow_for_ever(tmp_path):
    store, rng, sizes = opened(tmp_path, 60), random.Random(3), []
    for generation in range(40):
        for number in rng.sample(range(60), 60):
            assert keep(store, number, generation, np.zeros(rng.randrange(500, 4000)))
        sizes.append((tmp_path / "kept.data").stat().st_size)
    assert max(sizes) <= 60 * ARENA_NBYTES + 8 * ARENA_NBYTES  # at worst a sample in each, and what is being filled
    assert sizes[-1] == sizes[15]
    store.close()


def test_what_one_process_has_freed_another_may_use(tmp_path):
    one, other = opened(tmp_path, 40), opened(tmp_path, 40)
    for number in range(40):
        keep(one, number, 0, np.zeros(4000))
    for number in range(40):
        assert one.lock(number)
        one.drop(number)
        one.unlock(number)
    one.close()
    before = (tmp_path / "kept.data").stat().st_size
    for number in range(40):
        keep(other, number, 0, np.ones(3000))
    assert (tmp_path / "kept.data").stat().st_size == before
    assert all(same(other.get(number, 0), np.ones(3000)) for number in range(40))
    other.close()


def test_a_store_of_limited_size_keeps_what_came_first_and_stays_within_it(tmp_path):
    store = opened(tmp_path, 100, most_nbytes=1 << 18)
    kept = [keep(store, number, 0, np.full(1000, number)) for number in range(100)]
    assert kept == sorted(kept, reverse=True)
    assert 28 <= sum(kept) <= 32
    assert store.is_full
    assert (tmp_path / "kept.data").stat().st_size <= (1 << 18) + index.RECORDS
    assert all((store.get(number, 0) is not MISSING) == kept[number] for number in range(100))
    assert keep(store, 0, 1, np.full(900, 7))  # what is kept may be written anew
    store.close()


def test_older_samples_replace_newer_ones_only_where_nobody_needs_these(tmp_path):
    one, other = opened(tmp_path), opened(tmp_path)
    one.turn_to(6)
    assert keep(one, 0, 6, 66)
    assert one.lock(0)
    assert other.lock(1)
    other.unlock(1)
    one.unlock(0)
    assert other.lock(0)
    assert not other.keep(0, 3, 33, 8)  # somebody is at epoch 6
    assert one.get(0, 6) == 66
    one.turn_to(9)
    assert other.keep(0, 3, 33, 8)
    other.unlock(0)
    assert one.get(0, 6) is MISSING
    assert one.get(0, 3) == 33
    one.close()
    other.close()


def test_a_sample_is_made_by_one_at_a_time(tmp_path):
    one, other = opened(tmp_path), opened(tmp_path)
    assert one.lock(5)
    assert other.lock(6)
    assert not other.lock(5)  # after its deadline
    one.close()  # which ends its locks
    assert other.lock(5)
    other.close()


def test_a_store_of_other_samples_is_made_anew_and_says_what_differs(tmp_path):
    _filled(tmp_path).close()
    files = open_files(Disk(f"{tmp_path}/kept"), origin(40, "2"), ARENA_NBYTES)
    assert files.renewed == "version was '' and is '2'"
    files.close()
    store = opened(tmp_path)
    assert store.files.renewed == "version was '2' and is ''"
    assert all(store.get(number, 0) is MISSING for number in range(40))
    with pytest.raises(Foreign, match="samples was 40 and is 41"):  # while somebody uses it
        opened(tmp_path, 41)
    store.close()
    opened(tmp_path, 41).close()


def test_files_that_are_cut_between_being_looked_at_and_being_mapped_are_let_go_of(tmp_path):
    """Else the worker that opens them could not start, and the training ended."""
    files = open_files(Disk(f"{tmp_path}/kept"), origin(), ARENA_NBYTES)
    os.truncate(tmp_path / "kept.index", 5000)
    with pytest.raises(OSError, match="somebody cuts its files"):
        Store(files, no_class, most_nbytes=None, maps=True, wait_s=1.0)
    for fd in (files.index_fd, files.data_fd):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


@pytest.mark.parametrize("damage", ["header", "data header", "no data", "empty", "rubbish", "cut"])
def test_files_that_are_damaged_are_made_anew(damage: str, tmp_path):
    _filled(tmp_path).close()
    match damage:
        case "header":
            flip(tmp_path / "kept.index", 8 * 20)
        case "data header":
            flip(tmp_path / "kept.data", 3)
        case "no data":
            (tmp_path / "kept.data").unlink()
        case "empty":
            os.truncate(tmp_path / "kept.index", 0)
        case "rubbish":
            (tmp_path / "kept.index").write_bytes(os.urandom(5000))
        case "cut":
            os.truncate(tmp_path / "kept.index", index.place_of(10))
    store = opened(tmp_path)
    assert keep(store, 1, 0, sample(1))
    assert same(store.get(1, 0), sample(1))
    assert store.get(2, 0) is MISSING
    store.close()
    assert {path.name for path in tmp_path.iterdir()} == {"kept.index", "kept.data", "kept.lock"}


def test_files_are_this_users_alone(tmp_path):
    before = os.umask(0)
    try:
        opened(tmp_path / "new").close()
    finally:
        os.umask(before)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "new").iterdir()}
    assert modes == dict.fromkeys(("kept.index", "kept.data", "kept.lock"), "0o600")


def test_what_was_kept_says_so_in_a_record(tmp_path):
    """The header is JSON that a person can read with `strings`."""
    opened(tmp_path).close()
    raw = (tmp_path / "kept.index").read_bytes()[: index.HEADER_NBYTES]
    told, _ = json.JSONDecoder().raw_decode(raw[raw.index(b'{"') :].decode("latin-1"))
    assert told == {"dataset": "tests.Some", "arguments": "0", "version": "", "samples": 40}
